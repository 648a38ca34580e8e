//! What every store must do, as a suite that its tests call.
//!
//! Each check opens a store through the [`Subject`], works on it through its contract only, and panics naming the rule that is broken. A
//! decorator is tested by a subject that opens the decorated store.

#![expect(
    clippy::unwrap_used,
    reason = "a check that cannot go on has failed; panicking is its report"
)]

mod data;
mod doubt;
mod duties;
mod given;
mod ownership;
mod promises;
mod rig;
mod terms;

use std::time::Duration;

use self::rig::Rig;
use crate::shared::SharedStore;

/// Smallest store the suite works on.
pub const BYTES_MIN: u64 = 2 << 20;

/// Longer than any healthy store takes for one batch of these checks.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the suite runs on: a way to open a fresh, writable, zero-filled store of at least [`BYTES_MIN`].
pub struct Subject<'a> {
    open: Box<dyn Fn() -> SharedStore + 'a>,
    open_read_only: Option<Box<dyn Fn() -> SharedStore + 'a>>,
    stalled: Option<Box<dyn Fn() -> SharedStore + 'a>>,
    crash: Option<Box<dyn Fn(SharedStore) -> SharedStore + 'a>>,
    remembers: bool,
    patience: Duration,
}

impl<'a> Subject<'a> {
    /// A store that reads back what was written.
    pub fn new(open: impl Fn() -> SharedStore + 'a) -> Self {
        Self {
            open: Box::new(open),
            open_read_only: None,
            stalled: None,
            crash: None,
            remembers: true,
            patience: PATIENCE,
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

    /// Also a way to open one whose operations do not end by themselves, for the cancel bound.
    #[must_use]
    pub fn stalled(mut self, open: impl Fn() -> SharedStore + 'a) -> Self {
        self.stalled = Some(Box::new(open));
        self
    }

    /// Also a way to have power lost: takes a store whose handles are gone, and gives what is found afterwards.
    #[must_use]
    pub fn crashes(mut self, crash: impl Fn(SharedStore) -> SharedStore + 'a) -> Self {
        self.crash = Some(Box::new(crash));
        self
    }

    /// Waits so long for what must come; for subjects from which nothing will.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// A fresh store, and a ring with a handle.
    fn rig(&self) -> Rig {
        self.rig_on(&self.open())
    }

    fn rig_on(&self, shared: &SharedStore) -> Rig {
        Rig::new(shared, self.patience)
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

/// One check of the suite.
#[derive(Clone, Copy)]
pub struct Check {
    /// The rule.
    pub name: &'static str,
    /// Panics if the subject breaks it.
    pub run: fn(&Subject<'_>),
}

macro_rules! checks {
    ($($module:ident::$name:ident,)*) => {
        /// Every check of a store that the suite may write to.
        pub const CHECKS: &[Check] = &[$(Check { name: stringify!($name), run: $module::$name },)*];
    };
}

checks! {
    duties::limits_are_sane,
    duties::misuse_is_rejected_with_its_buffer,
    duties::ranges_end_at_the_end,
    duties::changes_need_write_access,
    duties::a_full_queue_is_busy_and_loses_nothing,
    duties::every_operation_completes_once_cancelled_or_not,
    duties::flush_completes,
    terms::what_had_no_time_was_done_or_was_not,
    terms::a_read_ahead_delivers_what_any_read_does,
    terms::a_read_ahead_may_be_hurried,
    doubt::doubt_changes_no_byte,
    data::every_alignment_and_cut_reads_back,
    data::the_guaranteed_transfer_is_taken_whole,
    data::zeroed_ranges_read_zeros,
    data::discarded_ranges_read_old_or_zeros,
    data::a_completed_write_is_seen_by_every_handle,
    data::leases_show_what_reads_read,
    data::operations_in_flight_together_agree_with_a_model,
    ownership::a_buffer_belongs_to_the_store_until_its_completion,
    ownership::what_completed_takes_no_effect_any_more,
    ownership::a_closed_handle_ends_what_it_has_and_takes_no_more,
    ownership::dropping_the_handle_lets_go_of_every_buffer,
    ownership::nothing_touches_a_buffer_after_its_completion,
    promises::guest_memory_is_taken_as_declared,
    promises::what_is_carried_out_on_the_spot_has_happened,
    promises::a_completion_wakes_a_ring_that_sleeps,
    promises::a_cancel_takes_effect_within_the_declared_bound,
    promises::an_idle_store_is_quiet_or_asks_to_be_polled,
    promises::a_crash_loses_nothing_that_was_durable,
}

/// Runs every check.
pub fn run(subject: &Subject<'_>) {
    for check in CHECKS {
        (check.run)(subject);
    }
}

/// Checks a store that is opened for reading only and holds `content`: what can be checked of one that the suite cannot fill.
pub fn run_read_only(open: impl Fn() -> SharedStore, content: &[u8]) {
    given::changes_are_refused(&open());
    given::its_content_is_read_in_every_way(&open(), content);
    given::it_ends_as_others_do(&open());
    doubt::its_content_stays_what_it_is(&open(), content);
}

/// Checks a store of several copies of `content`, `wrong` of which are wrong at any place (not the same one everywhere, if the subject so wishes): whoever
/// has a checksum, and doubts what is wrong, has the right bytes within so many reads as [`Store::doubt`](crate::Store::doubt) says.
pub fn run_wrong_copies(open: impl Fn() -> SharedStore, content: &[u8], wrong: u32) {
    doubt::who_doubts_gets_the_right_bytes(&open(), content, wrong);
    doubt::doubts_of_many_places_do_not_hide_each_other(&open(), content);
}
