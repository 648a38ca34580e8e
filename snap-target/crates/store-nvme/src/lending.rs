//! Commands of a handle that has no queue, on their way through another handle's.
//!
//! Buffers belong to their reactor, so the bytes go along as copies. That costs two copies and an allocation for each command: it is for reactors to which a
//! controller grants no queue.

use nvme::Time;
use reactor::Sender;
use store::{Op, StoreError};

use crate::options::HANDLES_MAX;

/// Commands that one handle has with others.
pub(crate) const LOANS_MAX: usize = 16;
/// Room in a handle's inbox for whatever all the others may have asked, and for all its own answers: it is never full.
pub(crate) const LENDINGS_MAX: usize = (HANDLES_MAX as usize + 1) * LOANS_MAX;

/// Between two handles.
#[derive(Debug)]
pub(crate) enum Lending {
    /// To the lender.
    Ask(Box<Loan>),
    /// Back to the borrower: how it ended, and what was read.
    Repaid {
        loan: LoanId,
        result: Result<Vec<u8>, StoreError>,
    },
}

/// Names a loan among those of its borrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoanId(pub u64);

/// An operation on whole blocks, which its borrower has let through gate and fences.
#[derive(Debug)]
pub(crate) struct Loan {
    pub op: Op,
    /// What is written; of a read, as many zeros.
    pub bytes: Vec<u8>,
    pub expires_at: Time,
    pub debt: Debt,
}

/// What the lender owes: an answer. Dropped without one, the borrower hears that nobody did it, which is then fenced where it may still take effect.
#[derive(Debug)]
pub(crate) struct Debt {
    pub loan: LoanId,
    pub name: String,
    pub offset: u64,
    pub to: Option<Sender<Lending>>,
}

impl Debt {
    pub fn repay(mut self, result: Result<Vec<u8>, StoreError>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<Vec<u8>, StoreError>) {
        let loan = self.loan;
        if let Some(to) = self.to.take()
            && to.send(Lending::Repaid { loan, result }).is_err()
        {
            tracing::error!(store = %self.name, "a reactor takes no answers of others");
        }
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        let (store, offset) = (std::mem::take(&mut self.name), self.offset);
        self.send(Err(StoreError::Cancelled { store, offset }));
    }
}
