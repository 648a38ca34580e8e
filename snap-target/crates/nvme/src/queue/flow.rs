//! SQHD, and how many entries a queue has.

use nvme_spec::Cqe;

/// SQHD: on fabrics an entry is free again when its command completes, so the head follows completions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowControl {
    pub enabled: bool,
    /// Of the queue.
    pub entries: u16,
    head: u16,
}

impl FlowControl {
    /// A queue of so many entries; `enabled` is false where its host asked for none.
    pub fn new(entries: u16, enabled: bool) -> FlowControl {
        FlowControl {
            enabled,
            entries,
            head: 0,
        }
    }

    /// SQHD after one more completion.
    pub fn advance(&mut self) -> u16 {
        let next = self.next();
        if self.enabled {
            self.head = next;
        }
        next
    }

    /// The same before it is certain that it goes out.
    pub fn next(&self) -> u16 {
        match self.head + 1 {
            _ if !self.enabled => Cqe::SQHD_FLOW_CONTROL_DISABLED,
            next if next >= self.entries => 0,
            next => next,
        }
    }
}
