//! One command's share of an operation, through all its attempts.

use std::ops::Range;
use std::time::Duration;

use nvme::Time;
use nvme::initiator::{Blocks, Command, Piece, command, nvm};
use nvme::queue::Slot;
use nvme_spec::{Nsid, Status};
use reactor::buf::IoBuf;

use super::flight::What;
use crate::lending::LoanId;
use crate::shared::AssociationId;

/// A command that was refused for a reason that passes is sent again after that time.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Part {
    pub flight: u32,
    pub what: What,
    pub piece: Piece,
    /// A block of its own, where the piece is not whole.
    pub bounce: Option<IoBuf>,
    pub state: State,
    /// The association of the last attempt, which did not answer or not well: another one is better.
    pub avoid: Option<AssociationId>,
    /// Another handle had it: what that one left of it may be fenced.
    pub was_lent: bool,
    /// Attempts that were given up because another path might answer sooner.
    pub given_up: u32,
    /// Answers that another path may do.
    pub sent_on: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To be issued, not before that time.
    Waiting { not_before: Time },
    /// A queue has it.
    Issued {
        of: AssociationId,
        slot: Slot,
        at: Time,
        abandoned: bool,
    },
    /// Another handle has it.
    Lent { loan: LoanId },
    /// A change that was sent on an association that was lost: it may take effect until the controller is dead.
    Unknown { of: AssociationId },
}

impl Part {
    /// The bytes of the namespace that its command works on.
    pub fn bytes(&self, lba_bytes: u32) -> Range<u64> {
        let start = self.piece.lba.0 * u64::from(lba_bytes);
        start..start + u64::from(self.piece.blocks) * u64::from(lba_bytes)
    }

    /// The command of the next attempt.
    pub fn command(&self, nsid: Nsid, lba_bytes: u32, durable: bool) -> Command {
        let blocks = Blocks {
            lba: self.piece.lba,
            count: self.piece.blocks,
            lba_bytes,
        };
        match self.what {
            What::Read | What::Patch => command::read(nsid, blocks),
            What::Write if durable => command::write_durable(nsid, blocks),
            What::Write => command::write(nsid, blocks),
            What::Zero => {
                let mut zeroes = nvm::write_zeroes(nsid, blocks.lba, blocks.count, false);
                if durable {
                    zeroes.sqe.set_fua();
                }
                zeroes
            }
            What::Deallocate => nvm::deallocate(nsid, &[(blocks.lba, blocks.count)]).0,
            What::Flush => command::flush(nsid),
        }
    }
}

/// How long an attempt of a read may go without an answer, where so many were given up and there are so many paths. The first one has `after`; those that follow have
/// an eighth of it, since paths that lead through one fabric fall silent together; and the last one, where nothing better is known, twice. Then all is begun again with
/// four times as much.
pub(super) fn patience(given_up: u32, after: Duration, paths: u32) -> Duration {
    let paths = paths.max(2);
    let (round, at) = (given_up / paths, given_up % paths);
    let of_round = after.saturating_mul(1 << (2 * round).min(16));
    match at {
        0 => of_round,
        last if last == paths - 1 => 2 * of_round,
        _ => of_round / 8,
    }
}

/// What an answer means for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// The same again, a little later.
    Later,
    /// It was not carried out here: another path may do.
    Elsewhere,
    Failed,
}

impl Verdict {
    pub fn of(status: Status) -> Self {
        const PATH_RELATED: u8 = 3;
        if status.is_success() {
            return Verdict::Done;
        }
        // What a path cannot do is said of the path, DNR or not.
        if status.sct() == PATH_RELATED {
            return Verdict::Elsewhere;
        }
        if status.do_not_retry() {
            return Verdict::Failed;
        }
        match status.code() {
            Status::NAMESPACE_NOT_READY
            | Status::COMMAND_INTERRUPTED
            | Status::TRANSIENT_TRANSPORT_ERROR
            | Status::ABORTED_SQ_DELETION => Verdict::Later,
            _ => Verdict::Failed,
        }
    }
}

/// Whether a change that was answered so may have taken effect, or a part of it. One that was never begun has a status that says so.
pub(super) fn may_have_begun(status: Status) -> bool {
    !matches!(
        status.code(),
        Status::NAMESPACE_NOT_READY
            | Status::ANA_INACCESSIBLE
            | Status::ANA_PERSISTENT_LOSS
            | Status::ANA_TRANSITION
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_means() {
        assert_eq!(Verdict::of(Status::SUCCESS), Verdict::Done);
        assert_eq!(Verdict::of(Status::ANA_TRANSITION), Verdict::Elsewhere);
        assert_eq!(
            Verdict::of(Status::ANA_PERSISTENT_LOSS.dnr()),
            Verdict::Elsewhere
        );
        assert_eq!(Verdict::of(Status::NAMESPACE_NOT_READY), Verdict::Later);
        assert_eq!(
            Verdict::of(Status::NAMESPACE_NOT_READY.dnr()),
            Verdict::Failed
        );
        assert_eq!(Verdict::of(Status::UNRECOVERED_READ_ERROR), Verdict::Failed);
        assert_eq!(Verdict::of(Status::RESERVATION_CONFLICT), Verdict::Failed);
    }

    /// Two of four paths that fall silent together take less than a second of a read.
    #[test]
    fn further_paths_are_asked_soon_and_the_last_one_has_time() {
        let waits = |paths: u32, attempts: u32| {
            let after = Duration::from_millis(800);
            let of = |given_up| patience(given_up, after, paths).as_millis();
            (0..attempts).map(of).collect::<Vec<_>>()
        };
        assert_eq!(waits(2, 5), [800, 1600, 3200, 6400, 12_800]);
        assert_eq!(waits(4, 6), [800, 100, 100, 1600, 3200, 400]);
        assert_eq!(waits(1, 2), waits(2, 2), "one is usable at the moment");
    }
}
