//! What a target does for its hosts whatever carries their queues, as a suite that the tests of each transport call.
//!
//! Each check starts a target of its own on real reactors, plays its hosts by the specification's byte offsets ([`Queue`]) over what the transport brings
//! ([`Carrier`]), and panics naming what is broken.
//!
//! What only one transport has (PDUs, digests, data that are asked for and kept back) is in the tests of that transport, on the same targets and hosts.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a check that cannot go on has failed; panicking is its report"
)]

mod aborts;
mod bytes;
mod changes;
mod counted;
mod data;
mod endings;
mod grants;
mod held;
mod keeper;
mod lives;
mod queue;
pub mod reservations;
pub mod served;
mod target;

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::link::Bound;

pub use bytes::{host_id, range_sqe, sqe, u16_at, u32_at};
pub use held::Gate;
pub use keeper::TestKeeper;
pub use queue::{DISABLED, ENABLED, Queue, Response, SHUT_DOWN};
pub use target::{NQN, Target, disk, memory};

/// What a transport brings to the suite.
pub trait Carrier: fmt::Debug + Send + Sync {
    /// A listening end of the target's, where nobody listens yet.
    fn bind(&self) -> Box<dyn Bound>;

    /// A host's connection to a listening end, for a queue of that number and of so many entries; what comes before Connect is done. It waits as long as it takes,
    /// and panics where it is refused.
    fn connect(&self, to: SocketAddr, qid: u16, entries: u16) -> Box<dyn Wire>;
}

/// A carrier that targets and hosts share.
pub type On = Arc<dyn Carrier>;

/// Where a target listens.
#[derive(Clone, Debug)]
pub struct Place {
    /// What carries hosts there.
    pub on: On,
    /// Its address.
    pub address: SocketAddr,
    /// The subsystem that its hosts connect to where nothing else is said.
    pub subsystem: String,
}

/// A host's end of a connection. Each call blocks until it is done, no longer than a healthy target takes. Dropped, it is closed.
pub trait Wire: Any {
    /// Sends commands, at once where there are several. The wire writes their data descriptors. It returns when nothing more is to be done for data that are taken
    /// from the host ([`Data::From`]), or when the command was answered.
    fn send(&mut self, capsules: Vec<Capsule>);

    /// The next answer, in the order in which they come.
    fn answer(&mut self) -> Answer;

    /// Returns once the target has closed the connection, whatever it sent before.
    fn wait_closed(&mut self);
}

/// A command as it is sent.
#[derive(Clone, Debug)]
pub struct Capsule {
    /// The entry, without the descriptor of its data.
    pub sqe: [u8; 64],
    /// Its data.
    pub data: Data,
}

/// A command's data.
#[derive(Clone, Debug)]
pub enum Data {
    /// There are none.
    None,
    /// So many come to the host.
    Into(u32),
    /// They are taken from the host.
    From(Vec<u8>),
    /// They come with the command.
    InCapsule(Vec<u8>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its response.
    pub response: Response,
    /// The data that came to the host, of a command that ended well.
    pub data: Vec<u8>,
}

/// One check of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The rule.
    pub name: &'static str,
    /// Panics if a target breaks it.
    pub run: fn(&On),
}

/// Hands the list of all checks to a macro, behind what it is given.
#[doc(hidden)]
#[macro_export]
macro_rules! with_frontend_checks {
    ($($then:tt)::+;) => {
        $($then)::+! {
            data::every_size_is_written_and_read;
            data::what_lies_beyond_the_end_is_refused_and_nothing_of_it_is_done;
            data::the_other_commands_move_and_compare_bytes;
            data::as_many_commands_as_a_queue_has_entries_are_answered;
            data::an_association_without_a_word_ends_after_its_keep_alive_time;
            changes::a_namespace_comes_and_goes_under_its_hosts;
            changes::a_namespace_goes_when_what_was_begun_has_ended;
            changes::a_namespace_goes_and_comes_under_reads;
            aborts::a_write_that_the_store_keeps_is_not_aborted;
            aborts::what_is_not_there_is_not_aborted;
            aborts::aborts_are_limited;
            aborts::an_abort_outlives_the_queue;
            aborts::a_first_half_that_waits_is_aborted;
            endings::keep_alive_of_a_draining_controller;
            endings::no_io_queue_connects_to_a_controller_that_is_ending;
            endings::ready_stays_until_the_queues_have_ended;
            endings::a_read_that_hangs_keeps_no_host_away;
            endings::a_shutdown_whose_flush_fails_is_fatal_and_not_complete;
            endings::a_shutdown_whose_flush_succeeds_is_complete;
            endings::a_disk_that_hangs_holds_up_the_shutdown_of_those_who_wrote_to_it;
            grants::hosts_of_one_queue_each_spread_over_the_reactors;
            grants::hosts_share_the_queues_that_the_reactors_take;
            lives::a_host_is_told_of_its_counters_when_they_are_saved;
            lives::a_keeper_that_fails_holds_no_answer_back_and_is_asked_again;
            lives::a_keeper_that_is_silent_holds_an_answer_back_for_a_moment;
            lives::lives_are_told_to_the_operator_and_end_with_their_subsystem;
            counted::commands_bytes_and_errors_are_exact_and_survive_a_reconnect;
            counted::namespaces_that_are_not_there_share_a_row;
            counted::a_command_is_in_flight_until_it_is_answered_or_its_connection_ends;
            counted::a_latency_holds_the_time_that_the_store_took;
            counted::the_flight_recorder_has_the_life_of_a_controller;
            counted::the_flight_recorder_names_the_host_that_was_refused;
            counted::a_command_is_slow_from_the_threshold_on;
            counted::smart_counts_commands_besides_read_and_write_by_what_they_move;
            reservations::commands::every_command_keeps_to_every_type;
            reservations::commands::a_copy_asks_the_namespaces_of_its_sources;
            reservations::commands::a_host_without_an_identifier_takes_no_part;
            reservations::fused::a_reservation_command_between_two_halves_parts_them;
            reservations::fused::a_reservation_command_is_no_half;
            reservations::notifications::a_preempted_host_hears_of_it_and_a_remaining_one_of_the_release;
            reservations::notifications::masked_notifications_are_not_made;
            reservations::persistence::a_reservation_survives_the_target_where_its_host_asked_for_it;
            reservations::persistence::a_change_is_answered_when_it_is_kept;
            reservations::persistence::a_change_that_cannot_be_kept_is_refused;
            reservations::persistence::persistence_is_offered_only_where_it_can_be_had;
            reservations::persistence::a_command_of_a_queue_that_closed_is_not_applied_behind_its_hosts_back;
            reservations::persistence::a_keeper_that_does_not_answer_hangs_nobody;
            reservations::preempt_and_abort::preempt_and_abort_without_anything_to_preempt;
            reservations::preempt_and_abort::preempt_and_abort_against_oneself;
            reservations::preempt_and_abort::preempt_and_abort_waits_for_what_the_store_has;
            reservations::preempt_and_abort::preempt_and_abort_holds_writes_back_until_every_reactor_knows_of_it;
            reservations::preempt_and_abort::preempt_and_abort_during_a_controller_reset;
            reservations::preempt_and_abort::preempt_and_abort_by_a_host_that_resets;
            reservations::preempt_and_abort::preempt_and_abort_while_the_other_hosts_queue_closes;
            reservations::preempt_and_abort::preempt_and_abort_of_two_hosts_against_each_other;
            reservations::preempt_and_abort::preempt_and_abort_ends_a_flush_of_all_namespaces;
            reservations::protection::a_namespace_that_is_protected_is_flushed_before_the_answer;
            reservations::protection::nothing_changes_once_a_host_is_told_of_the_protection;
            reservations::protection::a_write_that_does_not_end_fails_the_command;
            reservations::protection::a_flush_that_is_not_answered_fails_the_command;
            reservations::protection::the_lasting_states_are_lifted_by_what_they_say;
            reservations::protection::protection_that_cannot_be_kept_is_refused;
            reservations::protection::no_host_lifts_what_was_never_writable;
            reservations::protection::hints_are_taken_of_a_protected_namespace;
            reservations::rights::every_type_is_in_force_on_every_reactor_when_it_is_answered;
            reservations::rights::a_host_is_the_same_over_every_controller;
            reservations::rights::commands_are_checked_as_they_are_over_any_transfer;
        }
    };
}

macro_rules! table {
    ($($first:ident $(:: $more:ident)*;)*) => {
        /// Every check.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($first $(:: $more)*),
            run: $first $(:: $more)*,
        },)*];
    };
}

with_frontend_checks! { table; }

/// A test for each check, over what the expression brings: `frontend_checks!(Arc::new(Tcp));`.
#[macro_export]
macro_rules! frontend_checks {
    ($on:expr) => {
        fn run(name: &str) {
            let is_it = |check: &&$crate::conformance::Check| {
                check.name.replace(' ', "") == name.replace(' ', "")
            };
            let check = $crate::conformance::CHECKS.iter().find(is_it);
            (check.unwrap().run)(&$on);
        }

        $crate::with_frontend_checks! { $crate::frontend_check_tests; }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! frontend_check_tests {
    ($($module:ident $(:: $more:ident)+;)*) => {
        $($crate::frontend_check_tests! { @last [$module $(:: $more)+] $($more)+ })*
    };
    (@last $path:tt $skipped:ident $($rest:ident)+) => {
        $crate::frontend_check_tests! { @last $path $($rest)+ }
    };
    (@last [$($path:tt)+] $name:ident) => {
        #[test]
        fn $name() {
            run(stringify!($($path)+));
        }
    };
}
