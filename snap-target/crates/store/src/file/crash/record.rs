//! A medium that keeps a record of what reaches it, ends operations in other orders than they began, and fails on purpose.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::rc::Rc;

use nix::errno::Errno;
use nix::libc;
use reactor::buf::IoBuf;
use reactor::{Event, OpId, Waker, WriteMode};

use super::history::{Effect, End, History, Moment, Step};
use super::workload::Setting;
use crate::file::medium::{Medium, RingFile};
use crate::file::size::Extent;

/// The clock that both histories of a run are on.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Rc<Cell<Moment>>);

impl Clock {
    pub(super) fn tick(&self) -> Moment {
        let now = self.0.get();
        self.0.set(now + 1);
        now
    }

    pub(super) fn now(&self) -> Moment {
        self.0.get()
    }
}

/// In which order operations that are in flight together end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As the kernel says.
    Kernel,
    /// The last one first, once all are done.
    LastFirst,
}

/// What the medium cannot do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flaws {
    /// fallocate is not known here.
    pub no_allocate: bool,
    /// Of the syncs and durable writes the n-th fails, from 1, as a failing disk's does: EIO.
    pub sync_fails: Option<usize>,
}

/// What was asked of a medium and what became of it, and that goes on after its handle is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Record(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    history: History,
    /// Steps by operation, while they run.
    running: Vec<(OpId, Option<usize>, bool)>,
    syncs: usize,
}

impl Record {
    pub(super) fn history(&self) -> History {
        self.0.borrow().history.clone()
    }
}

pub(super) struct RecordedFile {
    file: RingFile,
    clock: Clock,
    record: Record,
    order: Order,
    flaws: Flaws,
    /// Ended in the kernel, and not yet told.
    ended: RefCell<VecDeque<Event>>,
}

impl RecordedFile {
    pub(super) fn new(
        file: RingFile,
        clock: Clock,
        record: Record,
        order: Order,
        flaws: Flaws,
    ) -> Self {
        Self {
            file,
            clock,
            record,
            order,
            flaws,
            ended: RefCell::default(),
        }
    }

    /// Notes what an operation that was started will do; `None` for reads.
    fn started(&self, op: Option<OpId>, effect: Option<Effect>) -> Option<OpId> {
        let op = op?;
        let mut inner = self.record.0.borrow_mut();
        let can_fail = matches!(
            effect,
            Some(Effect::Sync | Effect::Bytes { durable: true, .. })
        );
        inner.syncs += usize::from(can_fail);
        let fails = can_fail && self.flaws.sync_fails == Some(inner.syncs);
        let step = effect.map(|effect| {
            inner.history.0.push(Step {
                effect,
                begun: self.clock.tick(),
                end: End::Running,
            });
            inner.history.0.len() - 1
        });
        inner.running.push((op, step, fails));
        Some(op)
    }

    /// Notes how an operation ended, and makes of it what the flaws say.
    fn told(&self, event: &mut Event) {
        let mut inner = self.record.0.borrow_mut();
        let at = inner.running.iter().position(|(op, ..)| *op == event.op);
        let Some((_, step, fails)) = at.map(|at| inner.running.swap_remove(at)) else {
            return;
        };
        if fails {
            event.result = Err(Errno::EIO);
        }
        let Some(step) = step.and_then(|index| inner.history.0.get_mut(index)) else {
            return;
        };
        let now = self.clock.tick();
        step.end = match event.result {
            Ok(count) => {
                if let Effect::Bytes { bytes, .. } = &mut step.effect
                    && count != 0
                {
                    bytes.truncate(count as usize);
                }
                End::Done(now)
            }
            Err(_) => End::Failed(now),
        };
    }
}

impl Medium for RecordedFile {
    fn read(&self, offset: u64, buf: IoBuf, tag: u64) -> Option<OpId> {
        self.started(self.file.read(offset, buf, tag), None)
    }

    fn write(&self, offset: u64, buf: IoBuf, mode: WriteMode, tag: u64) -> Option<OpId> {
        let effect = Effect::Bytes {
            offset: usize::try_from(offset).unwrap(),
            bytes: buf.to_vec(),
            durable: mode == WriteMode::Durable,
        };
        self.started(self.file.write(offset, buf, mode, tag), Some(effect))
    }

    fn sync(&self, tag: u64) -> Option<OpId> {
        self.started(self.file.sync(tag), Some(Effect::Sync))
    }

    fn allocate(&self, mode: i32, offset: u64, len: u64, tag: u64) -> Option<OpId> {
        // A mode that no kernel knows: EOPNOTSUPP, and nothing happened.
        let (mode, effect) = if self.flaws.no_allocate {
            (1 << 30, None)
        } else if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            let offset = usize::try_from(offset).unwrap();
            let bytes = vec![0; usize::try_from(len).unwrap()];
            let durable = false;
            (
                mode,
                Some(Effect::Bytes {
                    offset,
                    bytes,
                    durable,
                }),
            )
        } else {
            // The test's file is in memory, where ranges are zeroed by holes alone.
            (mode, None)
        };
        self.started(self.file.allocate(mode, offset, len, tag), effect)
    }

    fn next_event(&self) -> Option<Event> {
        let mut ended = self.ended.borrow_mut();
        while let Some(event) = self.file.next_event() {
            ended.push_back(event);
        }
        let mut event = match self.order {
            Order::Kernel => ended.pop_front(),
            Order::LastFirst if ended.len() == self.record.0.borrow().running.len() => {
                ended.pop_back()
            }
            Order::LastFirst => None,
        }?;
        self.told(&mut event);
        Some(event)
    }

    fn cancel(&self, op: OpId) {
        self.file.cancel(op);
    }

    fn waker(&self) -> Waker {
        self.file.waker()
    }
}

/// The size of the file, on the same record: a byte behind the end is what it would read as, were the file longer again, and the size stands in a sector behind
/// the whole disk.
pub(super) struct RecordedSize<'a> {
    pub file: &'a File,
    pub clock: &'a Clock,
    pub record: &'a Record,
    pub setting: Setting,
}

impl RecordedSize<'_> {
    /// Does it, and notes what it was.
    fn done(&self, effects: Vec<Effect>, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let begun = self.clock.tick();
        work()?;
        let end = End::Done(self.clock.tick());
        let steps = effects
            .into_iter()
            .map(|effect| Step { effect, begun, end });
        self.record.0.borrow_mut().history.0.extend(steps);
        Ok(())
    }
}

impl Extent for RecordedSize<'_> {
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let units = usize::try_from(bytes).unwrap() / self.setting.unit();
        let effects = self.setting.resized(units, false);
        self.done(effects.into(), || self.file.set_len(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.done(vec![Effect::Sync], || self.file.sync_all())
    }
}
