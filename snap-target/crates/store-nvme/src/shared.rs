//! What all parts of one remote store know: the namespace, its limits, which lost controllers are dead when, and the ranges that wait for that.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvme::Time;
use nvme::initiator::{ControllerInfo, NamespaceInfo};
use store::gate::Gate;
use store::{Durability, Limits, RANGE_BYTES_MIN, SEGMENTS_MIN, TRANSFER_BYTES_MIN};

use crate::clock::Clock;
use crate::options::{DEADLINE_MAX, RemoteOptions};
use crate::report::PathReport;

/// Operations in flight on one handle.
pub(crate) const QUEUE_DEPTH_MAX: u32 = 256;
/// Longest discard or zeroing.
const RANGE_BYTES_MAX: u32 = 64 << 20;
const _: () = assert!(RANGE_BYTES_MAX >= RANGE_BYTES_MIN);

/// So long after it died a controller is remembered: nothing that was sent to it is outstanding any more.
const KEPT: Duration = Duration::from_secs(60);
const _: () = assert!(KEPT.as_secs() > DEADLINE_MAX.as_secs());

/// Which of a store's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PathIndex(pub usize);

/// One association of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AssociationId {
    pub path: PathIndex,
    pub generation: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub name: String,
    pub options: RemoteOptions,
    pub clock: Clock,
    /// The namespace as it was when the store was opened.
    pub namespace: NamespaceInfo,
    /// Of the controller that it was opened through.
    pub controller: ControllerInfo,
    pub limits: Limits,
    /// Keeps a read-modify-write of a block from undoing a write to another part of it.
    pub gate: Arc<Gate>,
    pub fences: Fences,
    /// By association.
    reports: Mutex<Vec<(PathIndex, PathReport)>>,
    /// How many handles are without an answer, by association.
    unanswered: Mutex<HashMap<PathIndex, usize>>,
    /// Handles that use the queues of others.
    pub borrowers: AtomicUsize,
}

impl Shared {
    pub fn set_reports(&self, reports: Vec<(PathIndex, PathReport)>) {
        *self.reports.lock().unwrap_or_else(PoisonError::into_inner) = reports;
    }

    pub fn reports(&self) -> Vec<PathReport> {
        let reports = self.reports.lock();
        let reports = reports.unwrap_or_else(PoisonError::into_inner);
        let unanswered = self.unanswered();
        let with_unanswered = |(index, report): &(PathIndex, PathReport)| PathReport {
            reactors_unanswered: unanswered.get(index).copied().unwrap_or(0),
            ..report.clone()
        };
        reports.iter().map(with_unanswered).collect()
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<PathIndex, usize>> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn new(
        name: String,
        options: RemoteOptions,
        clock: Clock,
        namespace: NamespaceInfo,
        controller: ControllerInfo,
        is_writable: bool,
    ) -> Self {
        let limits = limits(&namespace, &controller, is_writable);
        Self {
            name,
            options,
            clock,
            namespace,
            controller,
            limits,
            gate: Arc::default(),
            fences: Fences::default(),
            reports: Mutex::default(),
            unanswered: Mutex::default(),
            borrowers: AtomicUsize::new(0),
        }
    }
}

/// That a handle has waited too long for an answer of an association, as long as this is there.
#[derive(Debug)]
pub(crate) struct Unanswered {
    shared: Arc<Shared>,
    path: PathIndex,
}

impl Unanswered {
    pub fn new(shared: &Arc<Shared>, path: PathIndex) -> Self {
        *shared.unanswered().entry(path).or_default() += 1;
        let shared = shared.clone();
        Self { shared, path }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(count) = self.shared.unanswered().get_mut(&self.path) {
            *count -= 1;
        }
    }
}

/// What a killed daemon has sent may still take effect while its controller lives: KATO, CQT and the margin are below this together, which is looked at when a
/// store is opened.
const LINGERS_MS: u32 = 25_000;

fn limits(namespace: &NamespaceInfo, controller: &ControllerInfo, is_writable: bool) -> Limits {
    let mut limits = Limits::new(namespace.bytes());
    limits.alignment_bytes = namespace.lba_bytes;
    limits.transfer_bytes_max = TRANSFER_BYTES_MIN;
    limits.segments_max = SEGMENTS_MIN;
    limits.range_bytes_max = RANGE_BYTES_MAX;
    limits.atomic_write_bytes = namespace.lba_bytes;
    limits.queue_depth_max = QUEUE_DEPTH_MAX;
    limits.durability = if controller.volatile_write_cache {
        Durability::AfterFlush
    } else {
        Durability::Always
    };
    limits.writable = is_writable && !namespace.write_protected;
    limits.polled_when_idle = true;
    limits.lingers_ms = LINGERS_MS;
    limits
}

/// Ranges of changes that ended with an error and may still take effect, since the association that they were sent on was lost and its controller
/// may not be dead yet. Every later operation on such a range waits.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    inner: Mutex<Inner>,
    /// So that nobody takes the lock while nothing is fenced.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    fences: Vec<Fence>,
    /// When the controllers of associations that were lost are surely dead.
    deaths: HashMap<AssociationId, Death>,
    /// Queues of an association that handles have not closed. While there is one its controller may hear from it, and live.
    open: HashMap<AssociationId, usize>,
}

impl Inner {
    /// The death of a controller whose queues are all closed.
    fn death(&self, of: AssociationId) -> Option<Death> {
        let death = self.deaths.get(&of).copied();
        death.filter(|_| !self.open.contains_key(&of))
    }
}

/// When the controller of a lost association is surely dead.
#[derive(Clone, Copy, Debug)]
struct Death {
    at: Time,
    /// How long that takes from the moment in which the last connection is closed.
    after: Duration,
}

#[derive(Debug)]
struct Fence {
    bytes: Range<u64>,
    of: AssociationId,
}

/// Whether an operation may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It has entered the gate.
    Begins,
    /// It has not.
    Waits,
    /// It has, and is to leave it again.
    Leaves,
}

/// How an operation stands toward the fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Free,
    /// Not before then; `None`: it is not known yet when.
    Fenced(Option<Time>),
}

impl Fences {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An association was lost, and its admin queue is closed; its controller is dead at that time, or so long after its last queue was closed.
    pub fn lost(&self, association: AssociationId, dead_at: Time, dead_after: Duration, now: Time) {
        let mut inner = self.lock();
        // A fence must not outlive what is remembered of its controller.
        self.lift(&mut inner, now);
        let Inner { deaths, open, .. } = &mut *inner;
        deaths.retain(|of, death| open.contains_key(of) || death.at + KEPT > now);
        let death = Death {
            at: dead_at,
            after: dead_after,
        };
        inner.deaths.insert(association, death);
    }

    /// A handle has a queue of an association.
    pub fn opened(&self, association: AssociationId) {
        *self.lock().open.entry(association).or_default() += 1;
    }

    /// It has closed it; the association may have been lost before.
    pub fn closed(&self, association: AssociationId, now: Time) {
        let Inner { deaths, open, .. } = &mut *self.lock();
        if let Some(count) = open.get_mut(&association) {
            *count -= 1;
        }
        open.retain(|_, count| *count > 0);
        if let Some(death) = deaths.get_mut(&association) {
            death.at = death.at.max(now + death.after);
        }
    }

    /// When the controller of an association is dead; `None` where that is not known yet: it is not lost, or a queue of it is not closed.
    pub fn dead_at(&self, association: AssociationId) -> Option<Time> {
        self.lock().death(association).map(|death| death.at)
    }

    /// A change of these bytes ended with an error and may still take effect.
    pub fn raise(&self, bytes: Range<u64>, of: AssociationId) {
        let mut inner = self.lock();
        inner.fences.push(Fence { bytes, of });
        self.count.store(inner.fences.len(), Ordering::Release);
    }

    /// Lifts the fences of controllers that are dead.
    fn lift(&self, inner: &mut Inner, now: Time) {
        let mut fences = std::mem::take(&mut inner.fences);
        fences.retain(|fence| inner.death(fence.of).is_none_or(|death| death.at > now));
        self.count.store(fences.len(), Ordering::Release);
        inner.fences = fences;
    }

    /// Whether an operation on these bytes may begin; `enters` says whether the gate lets it in. What waits at a fence holds up nobody there. Whoever held the
    /// gate may have raised a fence before it left: they are asked again.
    pub fn admit(&self, bytes: &Range<u64>, now: Time, enters: impl FnOnce() -> bool) -> Admission {
        if self.passage(bytes, now) != Passage::Free || !enters() {
            return Admission::Waits;
        }
        if self.passage(bytes, now) != Passage::Free {
            return Admission::Leaves;
        }
        Admission::Begins
    }

    /// How an operation on these bytes stands.
    pub fn passage(&self, bytes: &Range<u64>, now: Time) -> Passage {
        if self.count.load(Ordering::Acquire) == 0 {
            return Passage::Free;
        }
        let mut inner = self.lock();
        self.lift(&mut inner, now);
        let mut passage = Passage::Free;
        for fence in &inner.fences {
            if fence.bytes.start >= bytes.end || bytes.start >= fence.bytes.end {
                continue;
            }
            passage = match (passage, inner.death(fence.of)) {
                (Passage::Fenced(None), _) | (_, None) => Passage::Fenced(None),
                (Passage::Free, Some(death)) => Passage::Fenced(Some(death.at)),
                (Passage::Fenced(Some(earlier)), Some(death)) => {
                    Passage::Fenced(Some(earlier.max(death.at)))
                }
            };
        }
        passage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_range_is_fenced_until_its_controller_is_dead() {
        let fences = Fences::default();
        let lost = AssociationId {
            path: PathIndex(0),
            generation: 3,
        };
        assert_eq!(fences.passage(&(0..u64::MAX), at(0)), Passage::Free);
        fences.raise(4096..8192, lost);
        assert_eq!(fences.passage(&(0..4097), at(0)), Passage::Fenced(None));
        assert_eq!(fences.passage(&(8192..9000), at(0)), Passage::Free);
        assert_eq!(fences.passage(&(0..4096), at(0)), Passage::Free);
        fences.lost(lost, at(9), Duration::from_secs(8), at(1));
        fences.closed(lost, at(2));
        let fenced = Passage::Fenced(Some(at(10)));
        assert_eq!(fences.passage(&(8191..8192), at(9)), fenced);
        assert_eq!(fences.passage(&(8191..8192), at(10)), Passage::Free);
        assert_eq!(fences.count.load(Ordering::Acquire), 0);
    }

    /// Another reactor's write fails, raises a fence, and leaves the gate, after this one looked and before it entered.
    #[test]
    fn a_fence_that_was_raised_before_the_gate_opened_is_seen() {
        let fences = Fences::default();
        let lost = AssociationId {
            path: PathIndex(0),
            generation: 1,
        };
        let admit = |enters: &dyn Fn() -> bool| fences.admit(&(0..10), at(0), enters);
        assert_eq!(admit(&|| true), Admission::Begins);
        assert_eq!(admit(&|| false), Admission::Waits);
        let meanwhile = || {
            fences.raise(5..6, lost);
            true
        };
        assert_eq!(admit(&meanwhile), Admission::Leaves);
        let nobody = || panic!("what waits at a fence holds up nobody at the gate");
        assert_eq!(admit(&nobody), Admission::Waits);
    }

    #[test]
    fn a_fence_does_not_outlive_what_is_remembered_of_its_controller() {
        let fences = Fences::default();
        let of = |generation| AssociationId {
            path: PathIndex(0),
            generation,
        };
        fences.raise(0..10, of(1));
        fences.lost(of(1), at(9), Duration::ZERO, at(0));
        // Nobody asks meanwhile.
        fences.lost(of(2), at(1009), Duration::ZERO, at(1000));
        assert_eq!(fences.dead_at(of(1)), None);
        assert_eq!(fences.passage(&(0..10), at(1000)), Passage::Free);
    }

    #[test]
    fn nobody_dies_while_a_queue_is_open() {
        let fences = Fences::default();
        let lost = AssociationId {
            path: PathIndex(0),
            generation: 1,
        };
        fences.opened(lost);
        fences.opened(lost);
        fences.raise(0..10, lost);
        fences.closed(lost, at(1));
        fences.lost(lost, at(9), Duration::from_secs(8), at(1));
        assert_eq!(fences.dead_at(lost), None);
        assert_eq!(fences.passage(&(0..10), at(100)), Passage::Fenced(None));
        fences.closed(lost, at(101));
        assert_eq!(fences.dead_at(lost), Some(at(109)));
        assert_eq!(fences.passage(&(0..10), at(109)), Passage::Free);
    }

    #[test]
    fn the_last_of_several_deaths_counts() {
        let fences = Fences::default();
        let of = |generation| AssociationId {
            path: PathIndex(1),
            generation,
        };
        for (generation, seconds) in [(1, 8), (2, 12), (3, 5)] {
            fences.raise(0..10, of(generation));
            fences.lost(of(generation), at(seconds), Duration::ZERO, at(0));
        }
        assert_eq!(
            fences.passage(&(0..1), at(6)),
            Passage::Fenced(Some(at(12)))
        );
        // What is dead fences nothing any more.
        fences.lost(of(4), at(20), Duration::ZERO, at(9));
        assert_eq!(
            fences.passage(&(0..1), at(9)),
            Passage::Fenced(Some(at(12)))
        );
    }
}
