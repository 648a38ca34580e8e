//! Operations on a small disk, run through a handle whose medium is recorded.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nix::sys::memfd::{MFdFlags, memfd_create};
use reactor::buf::IoBuf;
use reactor::{Fd, Ring, Wait};

use super::history::{Effect, End, History, Moment, Step};
use super::record::{Clock, Flaws, Order, Record, RecordedFile};
use crate::contract::{Op, Store, Token};
use crate::error::StoreError;
use crate::file::FileState;
use crate::file::handle::FileStore;
use crate::file::medium::RingFile;
use crate::file::open::Opened;
use crate::shared::Access;

/// Blocks of the disk under test.
const BLOCKS: usize = 4;
/// What the disk holds at the start: neither zeros nor what an operation writes.
const BEFORE: u8 = 0xB0;

/// One kind of medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Bytes of a block of direct I/O; `None`: through the page cache, where every byte is written alone.
    pub direct: Option<usize>,
    pub order: Order,
    pub flaws: Flaws,
}

impl Setting {
    /// What offsets and lengths of the operations are multiples of, or just miss.
    fn unit(&self) -> usize {
        self.direct.unwrap_or(512)
    }

    pub(super) fn disk_bytes(&self) -> usize {
        BLOCKS * self.unit()
    }

    pub(super) fn before(&self) -> Vec<u8> {
        vec![BEFORE; self.disk_bytes()]
    }
}

/// One operation of a workload, in units of the setting and bytes beside them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Write {
        from: (usize, isize),
        to: (usize, isize),
        durable: bool,
    },
    Zero {
        from: (usize, isize),
        to: (usize, isize),
        durable: bool,
    },
    Discard {
        from: usize,
        to: usize,
    },
    Flush,
}

const fn write(from: (usize, isize), to: (usize, isize), durable: bool) -> Act {
    Act::Write { from, to, durable }
}

/// Every kind of operation, overlapping and adjacent; whole blocks and parts of one, two and three.
pub(super) const ACTS: [Act; 11] = [
    write((0, 0), (2, 0), false),
    write((1, 0), (3, 0), false),
    write((1, 0), (2, 0), true),
    write((0, 300), (2, -100), false),
    write((2, 100), (2, 200), true),
    write((1, -100), (3, 50), true),
    Act::Zero {
        from: (0, 0),
        to: (2, 0),
        durable: false,
    },
    Act::Zero {
        from: (0, 100),
        to: (1, 100),
        durable: true,
    },
    Act::Discard { from: 0, to: 2 },
    Act::Discard { from: 2, to: 3 },
    Act::Flush,
];

/// What a run left behind.
pub(super) struct Recorded {
    /// What the caller submitted, and was told.
    pub caller: History,
    /// What reached the medium.
    pub medium: History,
    pub moments: Moment,
    /// What the file holds at the end.
    pub after: Vec<u8>,
    /// How each operation ended.
    pub results: Vec<Result<u32, StoreError>>,
}

/// A file in memory, and a ring: made once, since both take longer than a run.
pub(super) struct Bench {
    ring: Ring,
    file: std::fs::File,
}

impl Bench {
    pub(super) fn new() -> Self {
        let file = memfd_create(c"crash", MFdFlags::MFD_CLOEXEC).unwrap();
        Self {
            ring: Ring::new(&reactor::RingConfig::default()).unwrap(),
            file: file.into(),
        }
    }

    /// Runs the operations. Bit n of `waits`: the n-th is submitted only after those before it have ended.
    pub(super) fn run(&mut self, setting: Setting, acts: &[Act], waits: u32) -> Recorded {
        self.file.set_len(0).unwrap();
        self.file.write_all_at(&setting.before(), 0).unwrap();
        self.file.flush().unwrap();
        let clock = Clock::default();
        let record = Record::default();
        let owner = self.ring.register().unwrap();
        let file = RingFile::new(owner, Fd::from(self.descriptor()));
        let medium = RecordedFile::new(
            file,
            clock.clone(),
            record.clone(),
            setting.order,
            setting.flaws,
        );
        let store = FileStore::over(medium, self.state(setting)).unwrap();
        let mut run = Run {
            ring: &self.ring,
            store,
            clock,
            caller: History::default(),
            results: HashMap::new(),
        };
        for (index, act) in acts.iter().enumerate() {
            if waits >> index & 1 != 0 {
                run.wait();
            }
            run.submit(index, *act, setting.unit());
        }
        run.wait();
        let mut after = vec![0; setting.disk_bytes()];
        self.file.read_exact_at(&mut after, 0).unwrap();
        Recorded {
            medium: record.history(),
            moments: run.clock.now(),
            after,
            results: (0..acts.len())
                .map(|index| run.results.remove(&index).unwrap())
                .collect(),
            caller: run.caller,
        }
    }

    fn descriptor(&self) -> OwnedFd {
        self.file.try_clone().unwrap().into()
    }

    /// The state says that the file has blocks; it is written through the page cache, which takes whole blocks as well.
    fn state(&self, setting: Setting) -> Arc<FileState> {
        let direct = setting.direct;
        let opened = Opened {
            name: "file:crash".to_owned(),
            fd: self.descriptor(),
            bytes: setting.disk_bytes() as u64,
            direct: direct.is_some(),
            alignment_bytes: direct.map_or(1, |bytes| u32::try_from(bytes).unwrap()),
            punches_holes: false,
            detour: None,
            may_block: false,
            gate: Arc::default(),
            hold: None,
        };
        Arc::new(FileState::of(opened, Access::ReadWrite))
    }
}

/// A run under way.
struct Run<'a> {
    ring: &'a Ring,
    store: FileStore<RecordedFile>,
    clock: Clock,
    caller: History,
    results: HashMap<usize, Result<u32, StoreError>>,
}

impl Run<'_> {
    fn submit(&mut self, index: usize, act: Act, unit: usize) {
        let place = |(units, beside): (usize, isize)| (units * unit).strict_add_signed(beside);
        let (op, buf, effect) = match act {
            Act::Flush => (Op::Flush, None, Effect::Sync),
            Act::Discard { from, to } => {
                let (offset, len) = ((from * unit) as u64, ((to - from) * unit) as u64);
                let range = from * unit..to * unit;
                (Op::Discard { offset, len }, None, Effect::Forget(range))
            }
            Act::Zero { from, to, durable } => {
                let (from, to) = (place(from), place(to));
                let (offset, len) = (from as u64, (to - from) as u64);
                let effect = Effect::Bytes {
                    offset: from,
                    bytes: vec![0; to - from],
                    durable,
                };
                let op = Op::Zero {
                    offset,
                    len,
                    durable,
                };
                (op, None, effect)
            }
            Act::Write { from, to, durable } => {
                let (from, to) = (place(from), place(to));
                let bytes = content(index, from, to);
                // Memory lies in its block as the bytes do on the disk: the middle of a long write goes direct.
                let skew = from % unit;
                let mut buf = IoBuf::heap(skew + bytes.len()).unwrap();
                buf.copy_from(skew, &bytes);
                let buf = buf.slice(skew..skew + bytes.len());
                let effect = Effect::Bytes {
                    offset: from,
                    bytes,
                    durable,
                };
                let offset = from as u64;
                (Op::Write { offset, durable }, Some(buf), effect)
            }
        };
        self.caller.0.push(Step {
            effect,
            begun: self.clock.tick(),
            end: End::Running,
        });
        if let Err(rejected) = self.store.submit(op, buf, Token(index as u64)) {
            self.ended(index, Err(rejected.why));
        }
    }

    fn ended(&mut self, index: usize, result: Result<u32, StoreError>) {
        let now = self.clock.tick();
        self.caller.0[index].end = match result {
            Ok(_) => End::Done(now),
            Err(_) => End::Failed(now),
        };
        assert!(
            self.results.insert(index, result).is_none(),
            "it ended twice"
        );
    }

    /// Until all that was submitted has ended.
    fn wait(&mut self) {
        let mut done = Vec::new();
        loop {
            self.store.poll(&mut done);
            let got_some = !done.is_empty();
            for completion in done.drain(..) {
                let index = usize::try_from(completion.token.0).unwrap();
                self.ended(index, completion.result);
            }
            if self.results.len() == self.caller.0.len() {
                return;
            }
            if !got_some {
                self.ring.turn(Wait::Poll).unwrap();
            }
        }
    }
}

/// What operation `index` writes: no two write the same byte to the same place, and none writes what was there.
fn content(index: usize, from: usize, to: usize) -> Vec<u8> {
    let of = |at: usize| {
        let value = at.wrapping_mul(13) ^ at >> 5;
        u8::try_from(1 + index * 14 + value % 13).unwrap()
    };
    (from..to).map(of).collect()
}
