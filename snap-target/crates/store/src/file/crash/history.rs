//! What happened in which order, and what a crash may leave of it.

use std::collections::HashSet;
use std::ops::Range;

/// What is written as a whole or not at all when power goes: a logical block of the smallest disks.
pub(super) const SECTOR_BYTES: usize = 512;

/// A point on the common clock of a run: each beginning and each end is one.
pub(super) type Moment = usize;

/// What a step does.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// The bytes from `offset` on are these. `durable`: the step ends only when they are on stable storage.
    Bytes {
        offset: usize,
        bytes: Vec<u8>,
        durable: bool,
    },
    /// The bytes of the range read as before or as zeros.
    Forget(Range<usize>),
    /// Everything that ended before this began is on stable storage when this ends.
    Sync,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has not.
    Running,
    /// Done, and whoever asked for it was told.
    Done(Moment),
    /// It failed: all, part or nothing of it happened.
    Failed(Moment),
}

/// One step of a history.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub effect: Effect,
    pub begun: Moment,
    pub end: End,
}

impl Step {
    pub(super) fn range(&self) -> Range<usize> {
        match &self.effect {
            Effect::Bytes { offset, bytes, .. } => *offset..offset + bytes.len(),
            Effect::Forget(range) => range.clone(),
            Effect::Sync => 0..0,
        }
    }

    pub(super) fn touches(&self, sector: &Range<usize>) -> bool {
        let range = self.range();
        range.start < sector.end && sector.start < range.end
    }

    fn done_before(&self, moment: Moment) -> bool {
        matches!(self.end, End::Done(at) if at < moment)
    }

    /// Whether it ended before `moment`, well or not: from then on it does nothing any more.
    fn over_before(&self, moment: Moment) -> bool {
        matches!(self.end, End::Done(at) | End::Failed(at) if at < moment)
    }

    /// Whether it may have done nothing even where later steps have.
    fn may_be_nothing(&self) -> bool {
        matches!(self.effect, Effect::Forget(_)) || matches!(self.end, End::Failed(_))
    }

    /// Writes the bytes that it changes into `content`, which has those of the places `at`.
    fn apply(&self, at: &[usize], content: &mut [u8]) {
        let range = self.range();
        for (at, to) in at.iter().zip(content) {
            match &self.effect {
                Effect::Bytes { offset, bytes, .. } if range.contains(at) => {
                    *to = bytes[at - offset];
                }
                Effect::Forget(_) if range.contains(at) => *to = 0,
                _ => {}
            }
        }
    }
}

/// What ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// The process (kill -9): what the kernel has taken stays.
    Process,
    /// Power: what is not on stable storage may be gone.
    Power,
}

/// A sector, and the places in it that are looked at.
#[derive(Clone, Debug)]
pub(super) struct Sector {
    pub bytes: Range<usize>,
    /// Offsets on the disk, ascending.
    pub at: Vec<usize>,
}

impl Sector {
    /// Its ends, and both sides of every place where a step of these histories begins or ends: between two of them all bytes share one fate.
    pub(super) fn new(start: usize, histories: [&History; 2]) -> Self {
        let bytes = start..start + SECTOR_BYTES;
        let steps = histories.into_iter().flat_map(|history| &history.0);
        let edges = steps.flat_map(|step| [step.range().start, step.range().end]);
        let sides = edges.flat_map(|edge| [edge.saturating_sub(1), edge]);
        let mut at: Vec<usize> = sides
            .chain([bytes.start, bytes.end - 1])
            .filter(|at| bytes.contains(at))
            .collect();
        at.sort_unstable();
        at.dedup();
        Self { bytes, at }
    }

    /// Its part of the whole disk's bytes.
    pub(super) fn of(&self, disk: &[u8]) -> Vec<u8> {
        self.at.iter().map(|&at| disk[at]).collect()
    }
}

/// The steps of one side: of a handle's caller, or of the medium.
#[derive(Clone, Debug, Default)]
pub(super) struct History(pub Vec<Step>);

impl History {
    /// Every content that `sector` may have after a crash at `moment`, where the disk had `before` at the start. Steps take effect in any order
    /// in which none overtakes one that had ended when it began; what is settled has taken effect, the rest has or has not.
    pub(super) fn contents(
        &self,
        sector: &Sector,
        before: &[u8],
        moment: Moment,
        crash: Crash,
    ) -> HashSet<Vec<u8>> {
        let steps: Vec<&Step> = self
            .0
            .iter()
            .filter(|step| step.begun < moment && step.touches(&sector.bytes))
            .collect();
        let settled = (0..steps.len())
            .filter(|&index| self.is_settled(steps[index], moment, crash))
            .fold(0_u64, |mask, index| mask | 1 << index);
        let mut walk = Walk {
            steps,
            at: &sector.at,
            settled,
            seen: HashSet::new(),
            found: HashSet::new(),
        };
        walk.from(0, sector.of(before));
        walk.found
    }

    /// Whether a step's effect is sure to be there after a crash at `moment`.
    pub(super) fn is_settled(&self, step: &Step, moment: Moment, crash: Crash) -> bool {
        if !step.done_before(moment) {
            return false;
        }
        let durable = match &step.effect {
            Effect::Bytes { durable, .. } => *durable,
            Effect::Forget(_) => return false,
            Effect::Sync => true,
        };
        if durable || crash == Crash::Process {
            return true;
        }
        self.0.iter().any(|sync| {
            matches!(sync.effect, Effect::Sync)
                && sync.done_before(moment)
                && step.done_before(sync.begun)
                && !self.is_lost_before(step, sync.begun)
        })
    }

    /// The kernel tells once that it could not write: what was not on stable storage then may never get there, whatever a later sync says.
    fn is_lost_before(&self, step: &Step, moment: Moment) -> bool {
        self.0.iter().any(|failed| {
            let can_tell = match failed.effect {
                Effect::Sync => true,
                Effect::Bytes { durable, .. } => durable,
                Effect::Forget(_) => false,
            };
            matches!(failed.end, End::Failed(at) if can_tell && at < moment && step.done_before(at))
        })
    }
}

/// Steps in every order that is possible, as far as each crash lets them come.
struct Walk<'a> {
    steps: Vec<&'a Step>,
    at: &'a [usize],
    /// A bit for each step that has taken effect for sure.
    settled: u64,
    seen: HashSet<(u64, Vec<u8>)>,
    found: HashSet<Vec<u8>>,
}

impl Walk<'_> {
    fn from(&mut self, applied: u64, content: Vec<u8>) {
        if !self.seen.insert((applied, content.clone())) {
            return;
        }
        if applied & self.settled == self.settled {
            self.found.insert(content.clone());
        }
        for index in (0..self.steps.len()).filter(|index| applied >> index & 1 == 0) {
            let step = self.steps[index];
            let waits = self.steps.iter().enumerate().any(|(other, earlier)| {
                applied >> other & 1 == 0 && earlier.over_before(step.begun)
            });
            if waits {
                continue;
            }
            let mut next = content.clone();
            step.apply(self.at, &mut next);
            self.from(applied | 1 << index, next);
            if step.may_be_nothing() {
                self.from(applied | 1 << index, content.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u8, durable: bool, begun: Moment, end: End) -> Step {
        let effect = Effect::Bytes {
            offset: 0,
            bytes: vec![value; SECTOR_BYTES],
            durable,
        };
        Step { effect, begun, end }
    }

    fn sync(begun: Moment, end: End) -> Step {
        Step {
            effect: Effect::Sync,
            begun,
            end,
        }
    }

    /// The values that the first sector may have after a crash at `moment`, in order.
    fn values(steps: &[Step], moment: Moment, crash: Crash) -> Vec<u8> {
        let history = History(steps.to_vec());
        let sector = Sector::new(0, [&history, &history]);
        let found = history.contents(&sector, &[0; SECTOR_BYTES], moment, crash);
        let mut values: Vec<u8> = found
            .iter()
            .map(|content| {
                assert!(content.iter().all(|&byte| byte == content[0]), "torn");
                content[0]
            })
            .collect();
        values.sort_unstable();
        values
    }

    /// What the rest stands on, by hand.
    #[test]
    fn what_a_crash_may_leave() {
        use Crash::{Power, Process};
        use End::{Done, Failed, Running};
        let one = write(1, false, 0, Done(1));
        let two = write(2, false, 2, Done(3));
        assert_eq!(values(std::slice::from_ref(&one), 0, Power), [0]);
        assert_eq!(values(std::slice::from_ref(&one), 1, Process), [0, 1]);
        assert_eq!(values(std::slice::from_ref(&one), 2, Process), [1]);
        assert_eq!(values(std::slice::from_ref(&one), 2, Power), [0, 1]);
        // The second is never overtaken by the first.
        assert_eq!(values(&[one.clone(), two.clone()], 4, Process), [2]);
        assert_eq!(values(&[one.clone(), two.clone()], 4, Power), [0, 1, 2]);
        // Two at a time: either is the last.
        let beside = write(2, false, 0, Done(3));
        assert_eq!(values(&[one.clone(), beside], 4, Process), [1, 2]);
        // A durable write settles itself, and what it overwrites.
        let durable = write(2, true, 2, Done(3));
        assert_eq!(values(&[one.clone(), durable.clone()], 3, Power), [0, 1, 2]);
        assert_eq!(values(&[one.clone(), durable], 4, Power), [2]);
        // A sync settles what had ended when it began, and nothing else.
        let steps = [one.clone(), sync(2, Done(4)), write(3, false, 3, Done(5))];
        assert_eq!(values(&steps, 4, Power), [0, 1, 3]);
        assert_eq!(values(&steps, 6, Power), [1, 3]);
        let early = write(1, false, 0, Done(3));
        assert_eq!(values(&[early, sync(2, Done(4))], 5, Power), [0, 1]);
        assert_eq!(values(&[one.clone(), sync(2, Running)], 5, Power), [0, 1]);
        // A sync that failed has used up the one report there is.
        let steps = [one, sync(2, Failed(3)), sync(4, Done(5))];
        assert_eq!(values(&steps, 6, Power), [0, 1]);
    }
}
