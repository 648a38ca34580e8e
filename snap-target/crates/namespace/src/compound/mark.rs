//! Write Uncorrectable (NVM, "Write Uncorrectable command"): answered when the marks are on stable storage.

use super::{Got, Next, Steps};
use crate::Namespace;

pub(super) struct Mark {
    lba: u64,
    blocks: u32,
    is_marked: bool,
}

impl Mark {
    pub(super) fn new(lba: u64, blocks: u32) -> Self {
        Self {
            lba,
            blocks,
            is_marked: false,
        }
    }
}

impl Steps for Mark {
    fn next(&mut self, _namespace: &Namespace, _got: Got) -> Next {
        if std::mem::replace(&mut self.is_marked, true) {
            return Next::Done(Ok(None));
        }
        Next::Mark {
            lba: self.lba,
            blocks: u64::from(self.blocks),
        }
    }
}
