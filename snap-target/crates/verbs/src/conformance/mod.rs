//! What every implementation of verbs must do, as a suite that its tests call.
//!
//! Each check connects queue pairs through the [`Subject`], works through the contract only, and panics naming the rule that is broken. What an implementation
//! does otherwise its subject declares, with a reason that is told: no check is left out.

#![expect(
    clippy::unwrap_used,
    reason = "a check that cannot go on has failed; panicking is its report"
)]

mod completions;
mod connections;
mod failures;
mod lifetimes;
mod messages;
mod remote;
mod rig;
mod windows;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::device::Verbs;

/// Longer than any healthy implementation takes for what one check waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to do while nothing is there.
type Idle<'a> = dyn Fn(&[BorrowedFd<'_>]) + 'a;

/// What the suite runs on: two ends that reach each other; they may be one.
pub struct Subject<'a> {
    verbs: [Verbs; 2],
    addresses: [IpAddr; 2],
    idle: Box<Idle<'a>>,
    differs: &'a [Difference],
    patience: Duration,
    loses: bool,
}

impl<'a> Subject<'a> {
    /// The connecting and the accepting end with the address of each, and what to do while nothing is there: wait for one of the descriptors, or let time go on.
    pub fn new(
        verbs: [Verbs; 2],
        addresses: [IpAddr; 2],
        idle: impl Fn(&[BorrowedFd<'_>]) + 'a,
    ) -> Self {
        Self {
            verbs,
            addresses,
            idle: Box::new(idle),
            differs: &[],
            patience: PATIENCE,
            loses: false,
        }
    }

    /// Messages get lost between the ends. A refusal may be among them, and whoever refused is silent from then on (InfiniBand spec 9.9.3): the sender may hear that its tries are
    /// used up instead.
    #[must_use]
    pub fn loses(mut self) -> Self {
        self.loses = true;
        self
    }

    /// What this implementation does otherwise.
    ///
    /// # Panics
    /// There is no such check.
    #[must_use]
    pub fn differs(mut self, differs: &'a [Difference]) -> Self {
        for Difference { check, .. } in differs {
            let known = CHECKS.iter().any(|known| known.name == *check);
            assert!(known, "there is no check {check}");
        }
        self.differs = differs;
        self
    }

    /// Waits so long for what must come; for subjects from which some of it never will.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// A check that an implementation does not pass.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Its name.
    pub check: &'static str,
    /// What is otherwise, and why that is right, or must be borne.
    pub why: &'static str,
    /// Whether it always fails, or only where things happen at certain moments.
    pub always: bool,
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
        /// Every check.
        pub const CHECKS: &[Check] = &[$(Check { name: stringify!($name), run: $module::$name },)*];
    };
}

checks! {
    connections::private_data_and_depths_arrive,
    connections::a_reject_tells_its_reason_and_data,
    connections::a_dropped_request_is_rejected,
    connections::where_nobody_listens_says_so,
    connections::a_request_can_be_taken_by_another_channel,
    connections::a_disconnect_is_told_at_both_ends,
    connections::a_dropped_end_is_told_to_the_other,
    connections::an_address_is_taken_once,
    connections::an_address_of_nobody_is_refused,
    connections::limits_are_kept,
    connections::gids_are_the_addresses,
    messages::messages_of_every_size_arrive,
    messages::messages_are_scattered_and_gathered,
    messages::inline_bytes_are_taken_at_the_post,
    messages::messages_arrive_in_order,
    messages::what_is_not_signaled_is_silent,
    messages::a_receive_may_come_late,
    remote::writes_and_reads_carry_every_byte,
    remote::a_write_is_there_before_the_message_behind_it,
    remote::more_reads_than_the_depth_wait,
    remote::a_fence_waits_for_reads,
    remote::nothing_needs_no_key,
    failures::a_message_that_is_too_long_ends_both,
    failures::a_receive_into_protected_memory_ends_both,
    failures::receives_that_fail_say_why,
    failures::no_receive_is_told_when_tries_are_used_up,
    failures::a_wrong_key_ends_both,
    failures::a_range_beyond_the_end_ends_both,
    failures::a_missing_right_ends_both,
    failures::deregistered_memory_is_denied,
    failures::outstanding_requests_are_flushed_in_order,
    failures::posts_behind_an_error_are_flushed,
    failures::receives_behind_an_error_are_flushed,
    windows::a_window_gives_its_range,
    windows::a_window_gives_no_more_than_its_range,
    windows::a_window_gives_its_rights_and_no_more,
    windows::a_window_is_taken_back_by_its_owner,
    windows::a_window_is_taken_back_by_a_message,
    windows::a_window_is_bound_again_under_another_key,
    windows::a_window_is_for_one_queue_pair,
    windows::bound_memory_stays_registered,
    completions::an_armed_queue_tells_once,
    completions::solicited_only_sleeps_through_others,
    completions::a_full_queue_refuses_and_loses_nothing,
    completions::what_does_not_fit_is_refused,
    completions::two_queue_pairs_share_a_queue,
    lifetimes::dropped_memory_serves_its_queue_pairs,
    lifetimes::any_order_of_dropping_is_sound,
    lifetimes::connections_come_and_go,
}

/// Runs every check.
///
/// # Panics
/// The subject breaks a rule, or was said to differ: [`run_each`] is for those.
pub fn run(subject: &Subject<'_>) {
    assert!(subject.differs.is_empty(), "differences are to be told");
    for check in CHECKS {
        (check.run)(subject);
    }
}

/// Runs every check, those behind a failed one too, with a line for each: `ok NAME`, `FAILED NAME`, or `differs NAME: WHY` for one that the subject is said to fail,
/// and does. Returns how many passed, failed, and differ. The panic that a failed check ends with is printed before, as panics are.
pub fn run_each(subject: &Subject<'_>, mut tell: impl FnMut(&str)) -> (u32, u32, u32) {
    let (mut passed, mut failed, mut differing) = (0, 0, 0);
    for Check { name, run } in CHECKS {
        let passes = catch_unwind(AssertUnwindSafe(|| run(subject))).is_ok();
        let difference = subject.differs.iter().find(|known| known.check == *name);
        let (count, line) = match (passes, difference) {
            (true, None | Some(Difference { always: false, .. })) => {
                (&mut passed, format!("ok      {name}"))
            }
            (false, None) => (&mut failed, format!("FAILED  {name}")),
            (false, Some(Difference { why, .. })) => {
                (&mut differing, format!("differs {name}: {why}"))
            }
            (true, Some(_)) => (
                &mut failed,
                format!("FAILED  {name}: it passes, and was said to fail"),
            ),
        };
        *count += 1;
        tell(&line);
    }
    (passed, failed, differing)
}
