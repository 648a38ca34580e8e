//! Operations on a small disk, run through a handle whose medium is recorded.

use std::collections::HashMap;
use std::io::{Read, Seek, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nix::sys::memfd::{MFdFlags, memfd_create};
use reactor::buf::IoBuf;
use reactor::{Fd, Ring, Wait};

use super::history::{Crash, Effect, End, History, Moment, SECTOR_BYTES, Sector, Step};
use super::record::{Clock, Flaws, Order, Record, RecordedFile, RecordedSize};
use crate::contract::{Op, Store, Terms, Token};
use crate::error::StoreError;
use crate::file::FileState;
use crate::file::handle::FileStore;
use crate::file::medium::RingFile;
use crate::file::open::Opened;
use crate::file::size::resize;
use crate::shared::Access;

/// Blocks of the disk under test.
pub(super) const BLOCKS: usize = 4;
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
    pub(super) fn unit(&self) -> usize {
        self.direct.unwrap_or(512)
    }

    pub(super) fn disk_bytes(&self) -> usize {
        BLOCKS * self.unit()
    }

    /// The disk, and behind it a sector that says how long the file is.
    pub(super) fn before(&self) -> Vec<u8> {
        self.image(vec![BEFORE; self.disk_bytes()], BLOCKS)
    }

    /// The same of a file of so many units.
    fn image(&self, mut bytes: Vec<u8>, units: usize) -> Vec<u8> {
        bytes.resize(self.disk_bytes(), 0);
        bytes.push(u8::try_from(units).unwrap());
        bytes.resize(self.disk_bytes() + SECTOR_BYTES, 0);
        bytes
    }

    /// What another size changes: the bytes behind it are zeros when they come back, and the size is another.
    pub(super) fn resized(&self, units: usize, durable: bool) -> [Effect; 2] {
        let (end, disk_bytes) = (units * self.unit(), self.disk_bytes());
        [
            Effect::Bytes {
                offset: end,
                bytes: vec![0; disk_bytes - end],
                durable,
            },
            Effect::Bytes {
                offset: disk_bytes,
                bytes: vec![u8::try_from(units).unwrap()],
                durable,
            },
        ]
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
    /// What the namespace makes of a Copy: a read, and then a write of what was read.
    Copy {
        from: usize,
        to: usize,
        units: usize,
        durable: bool,
    },
    /// The file is cut to so many units, or grown to them.
    Resize(usize),
}

impl Act {
    /// The size that the caller knows after it.
    pub(super) fn size_after(self, units: usize) -> usize {
        match self {
            Self::Resize(units) => units,
            _ => units,
        }
    }

    /// Whether a file of so many units has all that it is about.
    pub(super) fn is_inside(self, units: usize) -> bool {
        let before_end =
            |(from, beside): (usize, isize)| from < units || (from, beside) <= (units, 0);
        match self {
            Self::Write { to, .. } | Self::Zero { to, .. } => before_end(to),
            Self::Discard { to, .. } => before_end((to, 0)),
            Self::Copy {
                from,
                to,
                units: len,
                ..
            } => from.max(to) + len <= units,
            Self::Flush | Self::Resize(_) => true,
        }
    }
}

const fn write(from: (usize, isize), to: (usize, isize), durable: bool) -> Act {
    Act::Write { from, to, durable }
}

/// Every kind of operation, overlapping and adjacent; whole blocks and parts of one, two and three.
pub(super) const ACTS: [Act; 15] = [
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
    Act::Copy {
        from: 0,
        to: 2,
        units: 1,
        durable: false,
    },
    Act::Copy {
        from: 1,
        to: 0,
        units: 2,
        durable: true,
    },
    Act::Resize(2),
    Act::Resize(BLOCKS),
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
        let disk = &setting.before()[..setting.disk_bytes()];
        self.file.write_all_at(disk, 0).unwrap();
        self.file.flush().unwrap();
        let mut run = Run {
            bench: self,
            setting,
            store: None,
            units: BLOCKS,
            clock: Clock::default(),
            record: Record::default(),
            caller: History::default(),
            steps: Vec::new(),
            copies: HashMap::new(),
            results: HashMap::new(),
        };
        run.open();
        for (index, act) in acts.iter().enumerate() {
            if waits >> index & 1 != 0 {
                run.wait();
            }
            run.submit(index, *act);
        }
        run.wait();
        let mut after = Vec::new();
        (&self.file).rewind().unwrap();
        (&self.file).read_to_end(&mut after).unwrap();
        let units = after.len() / setting.unit();
        Recorded {
            medium: run.record.history(),
            moments: run.clock.now(),
            after: setting.image(after, units),
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
    fn state(&self, setting: Setting, units: usize) -> Arc<FileState> {
        let direct = setting.direct;
        let opened = Opened {
            name: "file:crash".to_owned(),
            fd: self.descriptor(),
            bytes: (units * setting.unit()) as u64,
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

/// The token of a copy's read has this bit.
const READING: u64 = 1 << 32;

/// A copy whose read is under way.
struct Copying {
    begun: Moment,
    from: usize,
    to: usize,
    durable: bool,
}

/// A run under way.
struct Run<'a> {
    bench: &'a Bench,
    setting: Setting,
    /// Of the file at its size.
    store: Option<FileStore<RecordedFile>>,
    /// What the caller knows to be there.
    units: usize,
    clock: Clock,
    record: Record,
    caller: History,
    /// By operation: its steps in the caller's history.
    steps: Vec<Range<usize>>,
    copies: HashMap<usize, Copying>,
    results: HashMap<usize, Result<u32, StoreError>>,
}

impl Run<'_> {
    /// Opens the file anew, at the size that the caller knows.
    fn open(&mut self) {
        let owner = self.bench.ring.register().unwrap();
        let file = RingFile::new(owner, Fd::from(self.bench.descriptor()));
        let medium = RecordedFile::new(
            file,
            self.clock.clone(),
            self.record.clone(),
            self.setting.order,
            self.setting.flaws,
        );
        let state = self.bench.state(self.setting, self.units);
        self.store = Some(FileStore::over(medium, state).unwrap());
    }

    fn submit(&mut self, index: usize, act: Act) {
        self.steps.push(0..0);
        let unit = self.setting.unit();
        let place = |(units, beside): (usize, isize)| (units * unit).strict_add_signed(beside);
        match act {
            Act::Flush => self.begin(index, Op::Flush, None, Effect::Sync),
            Act::Discard { from, to } => {
                let (offset, len) = ((from * unit) as u64, ((to - from) * unit) as u64);
                let effect = Effect::Forget(from * unit..to * unit);
                self.begin(index, Op::Discard { offset, len }, None, effect);
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
                self.begin(index, op, None, effect);
            }
            Act::Write { from, to, durable } => {
                let (from, to) = (place(from), place(to));
                self.write(index, from, content(index, from, to), durable);
            }
            Act::Copy {
                from,
                to,
                units,
                durable,
            } => {
                let copying = Copying {
                    begun: self.clock.now(),
                    from: from * unit,
                    to: to * unit,
                    durable,
                };
                let offset = copying.from as u64;
                self.copies.insert(index, copying);
                let buf = IoBuf::heap(units * unit).unwrap();
                let token = Token(index as u64 | READING);
                let read = Op::Read { offset };
                if let Err(rejected) = self
                    .store()
                    .submit(read, Some(buf), token, Terms::default())
                {
                    self.ended(index, Err(rejected.why));
                }
            }
            Act::Resize(units) => self.resize(index, units),
        }
    }

    fn store(&mut self) -> &mut FileStore<RecordedFile> {
        self.store.as_mut().unwrap()
    }

    fn write(&mut self, index: usize, offset: usize, bytes: Vec<u8>, durable: bool) {
        // Memory lies in its block as the bytes do on the disk: the middle of a long write goes direct.
        let skew = offset % self.setting.unit();
        let mut buf = IoBuf::heap(skew + bytes.len()).unwrap();
        buf.copy_from(skew, &bytes);
        let buf = buf.slice(skew..skew + bytes.len());
        let op = Op::Write {
            offset: offset as u64,
            durable,
        };
        let effect = Effect::Bytes {
            offset,
            bytes,
            durable,
        };
        self.begin(index, op, Some(buf), effect);
    }

    /// Submits an operation. One that is refused has no step: nothing of it happened.
    fn begin(&mut self, index: usize, op: Op, buf: Option<IoBuf>, effect: Effect) {
        self.steps[index] = self.note([effect]);
        if let Err(rejected) = self
            .store()
            .submit(op, buf, Token(index as u64), Terms::default())
        {
            self.caller.0.truncate(self.steps[index].start);
            self.steps[index] = 0..0;
            self.ended(index, Err(rejected.why));
        }
    }

    /// Steps that the caller begins now.
    fn note<const N: usize>(&mut self, effects: [Effect; N]) -> Range<usize> {
        let (begun, first) = (self.clock.tick(), self.caller.0.len());
        let steps = effects.into_iter().map(|effect| Step {
            effect,
            begun,
            end: End::Running,
        });
        self.caller.0.extend(steps);
        first..first + N
    }

    /// As the daemon does it (`manage/resize.rs`): a file grows before anybody sees more of it, and is cut when nobody uses what is behind the new end.
    fn resize(&mut self, index: usize, units: usize) {
        let grows = units >= self.units;
        if !grows {
            self.wait_for(|run| run.results.len() + 1 == run.steps.len());
            self.reopen(units);
        }
        self.steps[index] = self.note(self.setting.resized(units, true));
        let size = RecordedSize {
            file: &self.bench.file,
            clock: &self.clock,
            record: &self.record,
            setting: self.setting,
        };
        resize(&size, (units * self.setting.unit()) as u64).unwrap();
        self.ended(index, Ok(0));
        if grows {
            self.wait();
            self.reopen(units);
        }
    }

    /// A handle of another size takes over; the last one's operations have ended.
    fn reopen(&mut self, units: usize) {
        self.units = units;
        self.open();
    }

    /// The source of a copy is there: each byte that it held at some time since the copy began. Beside a change that is under way a read may have some bytes of
    /// a sector from before it and some from after it: nothing is promised to be seen as a whole ([`Limits::atomic_write_bytes`](crate::Limits)).
    fn copied(&mut self, index: usize, bytes: Vec<u8>) {
        let Copying {
            begun,
            from,
            to,
            durable,
        } = self.copies.remove(&index).unwrap();
        let before = self.setting.before();
        let mut image = before.clone();
        image[from..from + bytes.len()].copy_from_slice(&bytes);
        for start in (from..from + bytes.len()).step_by(SECTOR_BYTES) {
            let sector = Sector::new(start, [&self.caller, &self.caller]);
            let held: Vec<_> = (begun..=self.clock.now())
                .flat_map(|moment| {
                    self.caller
                        .contents(&sector, &before, moment, Crash::Process)
                })
                .collect();
            let read = sector.of(&image);
            let was_there = |(at, byte): (usize, &u8)| held.iter().any(|then| then[at] == *byte);
            assert!(
                read.iter().enumerate().all(was_there),
                "a copy reads what was never there"
            );
        }
        self.write(index, to, bytes, durable);
    }

    fn ended(&mut self, index: usize, result: Result<u32, StoreError>) {
        let now = self.clock.tick();
        let end = match result {
            Ok(_) => End::Done(now),
            Err(_) => End::Failed(now),
        };
        for step in &mut self.caller.0[self.steps[index].clone()] {
            step.end = end;
        }
        assert!(
            self.results.insert(index, result).is_none(),
            "it ended twice"
        );
    }

    /// Until all that was submitted has ended.
    fn wait(&mut self) {
        self.wait_for(|run| run.results.len() == run.steps.len());
    }

    fn wait_for(&mut self, is_over: impl Fn(&Self) -> bool) {
        let mut done = Vec::new();
        loop {
            self.store().poll(&mut done);
            let got_some = !done.is_empty();
            for completion in done.drain(..) {
                let token = completion.token.0;
                let index = usize::try_from(token & !READING).unwrap();
                match completion.result {
                    Ok(_) if token & READING != 0 => {
                        self.copied(index, completion.buf.unwrap().to_vec());
                    }
                    result => self.ended(index, result),
                }
            }
            if is_over(self) {
                return;
            }
            if !got_some {
                self.bench.ring.turn(Wait::Poll).unwrap();
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
