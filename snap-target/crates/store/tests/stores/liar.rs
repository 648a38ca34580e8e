//! Stores that break one promise each: the suite must notice, by the check that is there for it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use reactor::buf::IoBuf;
use reactor::{Owner, Ring};
use store::conformance::{CHECKS, Subject};
use store::{
    Backend, Completion, Limits, Op, OpenOptions, Rejected, SharedStore, Store, StoreError,
    StoreSpec, Terms, Token,
};

use crate::threaded::Threaded;

/// How long a completion is held by those that hold them.
const HELD: Duration = Duration::from_millis(3);
/// How often the liar looks whether a write that it called cancelled is to take effect after all.
const LATE_POLLS: u32 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Declares a cancel bound of 0 ms, and a cancel does nothing.
    IgnoresCancel,
    /// Declares that it takes guest memory, and does not.
    RefusesGuestMemory,
    /// Does not declare that it takes guest memory, and takes it.
    TakesGuestMemory,
    /// Holds completions without waking the ring.
    DoesNotWake,
    /// Has a timer of its own and does not ask to be polled.
    HidesItsTimer,
    /// A write that completed as cancelled takes effect later.
    WritesLate,
    /// Takes operations after it was closed.
    TakesWhenClosed,
    /// Never says that it is closed.
    NeverCloses,
    /// Keeps a view of a buffer that it gave back.
    KeepsABuffer,
    /// Has one more copy with each doubt.
    CountsDoubts,
    /// After a doubt it reads other bytes.
    ReadsElsewhere,
}

#[derive(Debug)]
struct Liar {
    inner: SharedStore,
    lie: Lie,
}

fn memory() -> SharedStore {
    SharedStore::open(
        &StoreSpec::Mem { bytes: 4 << 20 },
        OpenOptions::read_write(),
    )
    .unwrap()
}

impl Backend for Liar {
    fn name(&self) -> &str {
        "liar"
    }

    fn describe(&self) -> String {
        format!("{:?}", self.lie)
    }

    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        limits.guest_memory = self.lie != Lie::TakesGuestMemory;
        limits
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let owner = ring.register().unwrap();
        if self.lie == Lie::HidesItsTimer {
            owner.timer(Instant::now() + HELD, 0).unwrap();
        }
        Ok(Box::new(Handle {
            limits: self.limits(),
            inner: self.inner.open_handle(ring)?,
            lie: self.lie,
            owner,
            arrived: Vec::new(),
            held: VecDeque::new(),
            late: Vec::new(),
            kept: Vec::new(),
            doubts: 0,
        }))
    }
}

struct Handle {
    limits: Limits,
    inner: Box<dyn Store>,
    lie: Lie,
    owner: Owner,
    arrived: Vec<Completion>,
    held: VecDeque<(Instant, Completion)>,
    /// Writes and their bytes; `Some`: cancelled, and how many polls until it takes effect.
    late: Vec<(Op, Option<IoBuf>, Token, Option<u32>)>,
    kept: Vec<IoBuf>,
    doubts: u32,
}

impl Handle {
    /// Completes what was cancelled as cancelled, and writes it some polls later.
    fn write_late(&mut self, completions: &mut Vec<Completion>) {
        for (op, buf, token, polls) in &mut self.late {
            match polls {
                None => self
                    .inner
                    .submit(*op, buf.take(), *token, Terms::default())
                    .unwrap(),
                Some(LATE_POLLS) => completions.push(Completion {
                    token: *token,
                    buf: Some(IoBuf::from_bytes(&buf.as_ref().unwrap().to_vec()).unwrap()),
                    result: Err(StoreError::Cancelled {
                        store: "liar".to_owned(),
                        offset: op.offset(),
                    }),
                }),
                Some(0) => {
                    self.inner
                        .submit(*op, buf.take(), *token, Terms::default())
                        .unwrap();
                    self.inner.poll(&mut self.arrived);
                    self.arrived.retain(|done| done.token != *token);
                }
                Some(_) => {}
            }
            if let Some(polls) = polls {
                *polls = polls.wrapping_sub(1);
            }
        }
        self.late
            .retain(|(.., polls)| polls.is_some_and(|polls| polls != u32::MAX));
    }
}

impl Store for Handle {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected> {
        if self.lie == Lie::RefusesGuestMemory && buf.as_ref().is_some_and(IoBuf::is_guest) {
            let why = StoreError::Misuse {
                store: "liar".to_owned(),
                what: "no guest memory today",
            };
            return Err(Rejected { op, buf, why });
        }
        if self.lie == Lie::KeepsABuffer {
            self.kept.extend(buf.clone());
        }
        if self.lie == Lie::WritesLate
            && matches!(op, Op::Write { .. })
            && buf.as_ref().is_some_and(|buf| !buf.is_empty())
        {
            self.late.push((op, buf, token, None));
            return Ok(());
        }
        let op = match op {
            Op::Read { offset } if self.lie == Lie::ReadsElsewhere && self.doubts > 1 => Op::Read {
                offset: offset + 512,
            },
            op => op,
        };
        self.inner.submit(op, buf, token, terms)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        while self.owner.next_event().is_some() {}
        if self.lie == Lie::WritesLate {
            self.write_late(completions);
        }
        self.inner.poll(&mut self.arrived);
        let due = Instant::now()
            + match self.lie {
                Lie::IgnoresCancel | Lie::DoesNotWake => HELD,
                _ => Duration::ZERO,
            };
        for done in self.arrived.drain(..) {
            if self.lie == Lie::IgnoresCancel {
                self.owner.timer(due, 0).unwrap();
            }
            self.held.push_back((due, done));
        }
        while self
            .held
            .front()
            .is_some_and(|(due, _)| *due <= Instant::now())
        {
            completions.extend(self.held.pop_front().map(|(_, done)| done));
        }
    }

    fn close(&mut self) {
        if self.lie != Lie::TakesWhenClosed {
            self.inner.close();
        }
    }

    fn is_closed(&self) -> bool {
        self.lie != Lie::NeverCloses && self.held.is_empty() && self.inner.is_closed()
    }

    fn cancel(&mut self, token: Token) {
        for (.., polls) in self.late.iter_mut().filter(|(_, _, of, _)| *of == token) {
            *polls = Some(LATE_POLLS);
        }
    }

    fn doubt(&mut self, _offset: u64, _len: u64) -> u32 {
        self.doubts += 1;
        match self.lie {
            Lie::CountsDoubts => self.doubts,
            _ => 0,
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

/// What the named check says of a subject; `None`: it finds nothing wrong.
fn verdict(subject: &Subject<'_>, name: &str) -> Option<String> {
    let check = CHECKS.iter().find(|check| check.name == name).unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| (check.run)(subject))).err()?;
    let text = caught
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| caught.downcast_ref::<&str>().map(ToString::to_string));
    Some(text.unwrap_or_default())
}

#[test]
fn each_lie_is_found_by_the_check_that_is_there_for_it() {
    for (lie, check, part) in [
        (
            Lie::IgnoresCancel,
            "a_cancel_takes_effect_within_the_declared_bound",
            "a bound of 0 ms",
        ),
        (
            Lie::RefusesGuestMemory,
            "guest_memory_is_taken_as_declared",
            "no guest memory today",
        ),
        (
            Lie::TakesGuestMemory,
            "guest_memory_is_taken_as_declared",
            "this must be rejected",
        ),
        (
            Lie::DoesNotWake,
            "a_completion_wakes_a_ring_that_sleeps",
            "nothing woke the ring",
        ),
        (
            Lie::HidesItsTimer,
            "an_idle_store_is_quiet_or_asks_to_be_polled",
            "without asking to be polled",
        ),
        (
            Lie::WritesLate,
            "what_completed_takes_no_effect_any_more",
            "behind a newer one",
        ),
        (
            Lie::TakesWhenClosed,
            "a_closed_handle_ends_what_it_has_and_takes_no_more",
            "a closed handle takes nothing",
        ),
        (
            Lie::NeverCloses,
            "a_closed_handle_ends_what_it_has_and_takes_no_more",
            "with nothing in flight it is closed",
        ),
        (
            Lie::KeepsABuffer,
            "a_buffer_belongs_to_the_store_until_its_completion",
            "kept no view",
        ),
        (
            Lie::CountsDoubts,
            "doubt_changes_no_byte",
            "4096 bytes at 0: 2 copies",
        ),
        (Lie::ReadsElsewhere, "doubt_changes_no_byte", "0 after 0"),
    ] {
        let open = || {
            SharedStore::new(Liar {
                inner: memory(),
                lie,
            })
        };
        let subject = Subject::new(open).patience(Duration::from_millis(300));
        let found = verdict(&subject, check);
        assert!(
            found.as_ref().is_some_and(|text| text.contains(part)),
            "{lie:?}: {check} says {found:?}"
        );
        assert_eq!(verdict(&Subject::new(memory), check), None, "no lie");
    }
}

#[test]
fn a_flush_that_does_nothing_is_found_by_a_crash() {
    const CHECK: &str = "a_crash_loses_nothing_that_was_durable";
    let honest = Threaded::holding(&vec![0; 2 << 20], true);
    for (threaded, finds) in [(honest.clone(), false), (honest.without_flush(), true)] {
        let subject =
            Subject::new(|| threaded.store()).crashes(|_store| threaded.after_power_loss());
        let found = verdict(&subject, CHECK);
        assert_eq!(found.is_some(), finds, "{found:?}");
        assert!(found.is_none_or(|text| text.contains("which had been made durable")),);
    }
}
