//! What every store must do, as a suite that its tests call.
//!
//! Each check opens a store through the [`Subject`], works on it through its contract only, and panics naming the rule that is broken. A
//! decorator is tested by a subject that opens the decorated store.

#![expect(
    clippy::unwrap_used,
    reason = "a check that cannot go on has failed; panicking is its report"
)]

mod data;
mod duties;
mod ownership;
mod rig;

use crate::shared::SharedStore;

/// Smallest store the suite works on.
pub const BYTES_MIN: u64 = 2 << 20;

/// What the suite runs on: a way to open a fresh, writable, zero-filled store of at least [`BYTES_MIN`].
pub struct Subject<'a> {
    open: Box<dyn Fn() -> SharedStore + 'a>,
    open_read_only: Option<Box<dyn Fn() -> SharedStore + 'a>>,
    remembers: bool,
}

impl<'a> Subject<'a> {
    /// A store that reads back what was written.
    pub fn new(open: impl Fn() -> SharedStore + 'a) -> Self {
        Self {
            open: Box::new(open),
            open_read_only: None,
            remembers: true,
        }
    }

    /// Also a way to open one for reading only.
    #[must_use]
    pub fn read_only(mut self, open: impl Fn() -> SharedStore + 'a) -> Self {
        self.open_read_only = Some(Box::new(open));
        self
    }

    /// A store that takes writes and reads zeros.
    #[must_use]
    pub fn forgets(mut self) -> Self {
        self.remembers = false;
        self
    }

    fn open(&self) -> SharedStore {
        let store = (self.open)();
        assert!(
            store.bytes() >= BYTES_MIN,
            "the suite needs {BYTES_MIN} bytes"
        );
        store
    }
}

/// Runs every check.
pub fn run(subject: &Subject<'_>) {
    duties::limits_are_sane(subject);
    duties::misuse_is_rejected_with_its_buffer(subject);
    duties::ranges_end_at_the_end(subject);
    duties::changes_need_write_access(subject);
    duties::a_full_queue_is_busy_and_loses_nothing(subject);
    duties::every_operation_completes_once_cancelled_or_not(subject);
    duties::flush_completes(subject);
    data::every_alignment_and_cut_reads_back(subject);
    data::the_guaranteed_transfer_is_taken_whole(subject);
    data::zeroed_ranges_read_zeros(subject);
    data::discarded_ranges_read_old_or_zeros(subject);
    data::a_completed_write_is_seen_by_every_handle(subject);
    data::leases_show_what_reads_read(subject);
    data::operations_in_flight_together_agree_with_a_model(subject);
    ownership::a_buffer_belongs_to_the_store_until_its_completion(subject);
    ownership::what_completed_takes_no_effect_any_more(subject);
    ownership::dropping_the_handle_lets_go_of_every_buffer(subject);
    ownership::nothing_touches_a_buffer_after_its_completion(subject);
}
