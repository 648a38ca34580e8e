//! Through another handle's queues, while this one has none that leads anywhere; and the other side of it. See [`crate::lending`].

use nvme::Time;
use reactor::buf::IoBuf;
use reactor::{Receiver, Sender};
use store::gate::Permit;
use store::{Op, StoreError, Terms, Token};

use super::Handle;
use super::flight::What;
use super::lane::Lane;
use super::part::{RETRY_DELAY, State};
use crate::lending::{Debt, LOANS_MAX, Lending, Loan, LoanId};
use crate::message::ToHandle;

/// Where a handle hears of the others.
pub(crate) struct Inboxes {
    pub custodian: Receiver<ToHandle>,
    pub handles: Receiver<Lending>,
    /// The other end of `handles`, for those who answer.
    pub own: Sender<Lending>,
}

/// What a handle has with others.
#[derive(Debug, Default)]
pub(super) struct Lendings {
    /// Whose queues it may use.
    pub lender: Option<Sender<Lending>>,
    /// Loans that are not answered; a read that was given up may be among them.
    owed: usize,
    last: u64,
    /// What others asked, and there is no room for yet.
    asked: Vec<Loan>,
}

impl Handle {
    /// Whether commands are to go through another handle's queues.
    pub(super) fn borrows(&self) -> bool {
        self.lendings.lender.is_some()
            && self.lendings.owed < LOANS_MAX
            && !self.lanes.iter().any(Lane::is_usable)
    }

    /// Hands a part to the lender; false where it has to wait.
    pub(super) fn borrow_for(&mut self, index: u32) -> bool {
        let lba_bytes = self.shared.namespace.lba_bytes;
        let Some(payload) = self.buffer_of(index) else {
            return false;
        };
        let Some(part) = self.parts.get_mut(index) else {
            return true;
        };
        let (Some(flight), Some(lender)) = (self.flights.get(part.flight), &self.lendings.lender)
        else {
            return false;
        };
        let bytes = part.bytes(lba_bytes);
        let (offset, len, durable) = (bytes.start, bytes.end - bytes.start, flight.op.is_durable());
        let (op, bytes) = match part.what {
            What::Read | What::Patch => (
                Op::Read { offset },
                vec![0; usize::try_from(len).unwrap_or(0)],
            ),
            What::Write => (
                Op::Write { offset, durable },
                payload
                    .into_option()
                    .map_or_else(Vec::new, |it| it.to_vec()),
            ),
            What::Zero => (
                Op::Zero {
                    offset,
                    len,
                    durable,
                },
                Vec::new(),
            ),
            What::Deallocate => (Op::Discard { offset, len }, Vec::new()),
            What::Flush => (Op::Flush, Vec::new()),
        };
        self.lendings.last += 1;
        let loan = LoanId(self.lendings.last);
        let debt = Debt {
            loan,
            name: self.shared.name.clone(),
            offset,
            to: Some(self.own.clone()),
        };
        // Where the lender has no room for it the debt is answered all the same.
        self.lendings.owed += 1;
        part.state = State::Lent { loan };
        part.was_lent = true;
        let expires_at = flight.expires_at;
        let _ = lender.send(Lending::Ask(Box::new(Loan {
            op,
            bytes,
            expires_at,
            debt,
        })));
        true
    }

    /// What other handles ask and answer.
    pub(super) fn take_lendings(&mut self, now: Time) {
        while let Some(message) = self.handles.try_recv() {
            match message {
                Lending::Ask(loan) => self.lendings.asked.push(*loan),
                Lending::Repaid { loan, result } => self.repaid(loan, result, now),
            }
        }
        for loan in std::mem::take(&mut self.lendings.asked) {
            if self.closed {
                // The borrower hears that nobody does it.
                drop(loan);
            } else if self.flights.has_room() {
                self.lend(loan);
            } else {
                self.lendings.asked.push(loan);
            }
        }
    }

    /// Begins what another handle asks.
    fn lend(&mut self, loan: Loan) {
        let Loan {
            op,
            bytes,
            expires_at,
            debt,
        } = loan;
        let buf = match op.takes_buffer() {
            true => match IoBuf::from_bytes(&bytes) {
                Ok(buf) => Some(buf),
                Err(error) => {
                    let store = self.shared.name.clone();
                    let why = error.to_string();
                    return debt.repay(Err(StoreError::Resources { store, why }));
                }
            },
            false => None,
        };
        let mut flight = self.flight_of(op, buf, Token(debt.loan.0), Terms::default());
        // Its borrower holds the gate for it.
        flight.permit = Permit::not_needed();
        flight.expires_at = expires_at;
        flight.debt = Some(debt);
        if let Ok(index) = self.flights.insert(flight) {
            self.hungry.push_back(index);
        }
    }

    /// A loan was answered.
    fn repaid(&mut self, loan: LoanId, result: Result<Vec<u8>, StoreError>, now: Time) {
        self.lendings.owed -= 1;
        let is_it = |index: &u32| {
            self.parts
                .get(*index)
                .is_some_and(|part| part.state == State::Lent { loan })
        };
        // A read that was given up is not there any more.
        let Some(index) = self.parts.indices().find(is_it) else {
            return;
        };
        let Some(part) = self.parts.get_mut(index) else {
            return;
        };
        let flight = part.flight;
        // Of one that found no path nothing was done; its operation may have other parts.
        if part.what.is_change()
            && !matches!(result, Err(StoreError::Unreachable { .. }))
            && let Some(flight) = self.flights.get_mut(flight)
        {
            flight.may_have_begun = true;
        }
        match result {
            Ok(bytes) => {
                if !part.what.is_abandonable() || self.fill(index, &bytes) {
                    return self.part_done(index);
                }
                let store = self.shared.name.clone();
                let why = "what another reactor read does not fit".to_owned();
                self.fail_at(index, flight, StoreError::Resources { store, why });
            }
            // The lender left: what of it may still take effect is fenced.
            Err(StoreError::Cancelled { .. }) => self.wait(index, now + RETRY_DELAY),
            Err(StoreError::Unreachable { .. }) => {
                if let Some(error) = self.overdue(flight, false) {
                    self.fail_at(index, flight, error);
                }
            }
            Err(error) => self.fail_at(index, flight, error),
        }
    }

    /// Puts what a lender read where the part's own command would have put it; false where it does not fit.
    fn fill(&mut self, index: u32, bytes: &[u8]) -> bool {
        let lba_bytes = self.shared.namespace.lba_bytes;
        let Some(part) = self.parts.get_mut(index) else {
            return false;
        };
        if let Some(bounce) = &mut part.bounce {
            return bytes.len() == bounce.len() && bounce.copy_from(0, bytes) == bytes.len();
        }
        let at = usize::try_from(part.piece.buffer_offset).unwrap_or(usize::MAX);
        let is_whole =
            part.piece.is_whole(lba_bytes) && bytes.len() == part.piece.take_bytes as usize;
        let buf = self
            .flights
            .get_mut(part.flight)
            .and_then(|it| it.buf.as_mut());
        is_whole && buf.is_some_and(|buf| buf.copy_from(at, bytes) == bytes.len())
    }

    /// Nobody polls any more: what it has for others may still take effect, which is fenced before they hear of it.
    pub(super) fn give_loans_up(&mut self) {
        let lba_bytes = self.shared.namespace.lba_bytes;
        let is_lent = |flight: &u32| {
            self.flights
                .get(*flight)
                .is_some_and(|it| it.debt.is_some())
        };
        let mut ended = Vec::new();
        for index in self.parts.indices() {
            if let Some(part) = self.parts.get(index)
                && part.what.is_change()
                && is_lent(&part.flight)
                && let State::Issued { of, .. } | State::Unknown { of } = part.state
            {
                self.shared.fences.raise(part.bytes(lba_bytes), of);
                ended.push(of);
            }
        }
        for association in ended {
            self.tell_lost(
                association,
                "a reactor left with changes of another".to_owned(),
            );
        }
    }
}
