//! What every queue must do, as a suite that the tests of its transport call.
//!
//! Each check connects a queue to a controller that the check plays itself, works on it through the contract only ([`crate::queue`]), and panics
//! naming what is broken. Nothing of it waits for a time to pass: clocks are passed in, and both ends wait for each other.

#![expect(
    clippy::unwrap_used,
    reason = "a check that cannot go on has failed; panicking is its report"
)]

mod bench;
mod bring_up;
mod data;
mod ending;
mod giving_up;
mod moving;

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use nvme::queue::Slot;
use nvme_spec::{Sqe, Status};

use crate::queue::{QueueOptions, Transport};

/// Longer than anything of a healthy queue takes.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The most data of a command, and commands outstanding, that the suite has.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The most commands outstanding that the suite has.
pub const DEPTH_MAX: u16 = 128;
/// In-capsule data of the suite's queues, and of the controllers that it plays.
pub const IN_CAPSULE_BYTES_MAX: u32 = 8 << 10;

/// What a check does with its end of a connection, on a thread of its own.
pub type Script = Box<dyn FnOnce(&mut dyn Controller) + Send>;

/// What a transport brings to the suite.
pub trait Rig {
    /// The transport.
    fn transport(&self) -> &dyn Transport;

    /// What the queues are to be; the suite sets depth, in-capsule data and timeouts.
    fn options(&self) -> QueueOptions;

    /// Whether the data of a read are seen in its buffer as they arrive. Where not, they are there when the command ends.
    fn fills_in_place(&self) -> bool {
        true
    }

    /// A port whose first connection a script plays.
    fn port(&self, script: Script) -> Port;

    /// An address of this machine where nobody listens.
    fn nobody(&self) -> SocketAddr;

    /// A port that says nothing for as long as what comes with it lives.
    fn silent(&self) -> (SocketAddr, Box<dyn std::any::Any>);
}

/// Where a script waits.
#[derive(Debug)]
pub struct Port {
    /// Its address.
    pub address: SocketAddr,
    /// The script.
    pub thread: JoinHandle<()>,
}

impl Port {
    /// Waits for the script's end, and fails as it did.
    fn done(self) {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A command as it arrived at the controller.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The controller's name for it.
    pub tag: Slot,
    /// Its entry.
    pub sqe: Sqe,
    /// Bytes of its data, whichever way they go.
    pub bytes: u32,
    /// They came with it.
    pub is_in_capsule: bool,
}

/// The controller's end of a connection, as a script plays it. Each call blocks until it is done, no longer than [`PATIENCE`]. When the script
/// returns, the connection is closed.
pub trait Controller {
    /// The next command; none once the host has closed the connection.
    fn command(&mut self) -> Option<Arrived>;

    /// The data of a command that writes. They are asked for where they did not come with it. None where the host closed the connection.
    fn data(&mut self, tag: Slot) -> Option<Vec<u8>>;

    /// Asks for the data of a command that writes, and does not take them.
    fn ask(&mut self, tag: Slot);

    /// Ends a command; `result` is DW0 and DW1, and `data` are those of one that reads. A Connect that is answered with success is connected.
    fn answer(&mut self, tag: Slot, status: Status, result: u64, data: &[u8]);

    /// Begins to answer a command that reads: only the first `bytes` of its data leave. Where nothing is filled in place ([`Rig::fills_in_place`]) they have arrived when this returns.
    fn begin_answer(&mut self, tag: Slot, data: &[u8], bytes: usize);

    /// The rest of what was begun.
    fn finish_answer(&mut self);
}

/// One check of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The rule.
    pub name: &'static str,
    /// Panics if a queue breaks it.
    pub run: fn(&dyn Rig),
}

macro_rules! checks {
    ($($module:ident::$name:ident,)*) => {
        /// Every check.
        pub const CHECKS: &[Check] = &[$(Check { name: stringify!($name), run: $module::$name },)*];
    };
}

checks! {
    bring_up::a_queue_takes_commands_once_it_is_ready,
    bring_up::an_address_where_nobody_listens_is_an_error_that_names_it,
    bring_up::a_port_that_says_nothing_has_its_time_and_no_more,
    data::every_size_and_cut_is_written,
    data::every_size_and_cut_is_read,
    data::what_the_controller_answers_is_told_as_it_is,
    data::a_full_queue_takes_no_more_and_loses_nothing,
    data::what_is_outstanding_together_does_not_mix,
    moving::an_idle_queue_moves_to_another_thread_and_back,
    moving::a_queue_with_something_outstanding_stays,
    moving::what_crossed_the_network_is_counted_wherever_the_queue_is,
    moving::what_the_peer_did_meanwhile_is_found_after_a_move,
    giving_up::a_read_that_did_not_leave_never_does,
    giving_up::a_read_ends_before_its_answer_and_late_data_go_nowhere,
    giving_up::a_read_whose_data_arrive_lets_its_buffer_go,
    giving_up::slots_of_commands_that_were_given_up_are_not_room,
    giving_up::what_does_not_read_goes_on_without_a_timeout,
    ending::closing_ends_everything_once,
    ending::closing_amid_the_data_of_a_read_waits_for_its_buffer,
    ending::a_closed_queue_takes_nothing,
    ending::a_peer_that_goes_ends_everything_once,
    ending::a_command_without_an_answer_ends_the_connection_in_time,
    ending::dropping_a_queue_lets_go_of_every_buffer,
}

/// Runs every check.
pub fn run(rig: &dyn Rig) {
    for check in CHECKS {
        (check.run)(rig);
    }
}

/// A test for each check, over the rig that the expression makes: `queue_checks!(TcpRig::new());`.
#[macro_export]
macro_rules! queue_checks {
    ($rig:expr) => {
        $crate::queue_checks! { @each $rig;
            a_queue_takes_commands_once_it_is_ready
            an_address_where_nobody_listens_is_an_error_that_names_it
            a_port_that_says_nothing_has_its_time_and_no_more
            every_size_and_cut_is_written
            every_size_and_cut_is_read
            what_the_controller_answers_is_told_as_it_is
            a_full_queue_takes_no_more_and_loses_nothing
            what_is_outstanding_together_does_not_mix
            an_idle_queue_moves_to_another_thread_and_back
            a_queue_with_something_outstanding_stays
            what_crossed_the_network_is_counted_wherever_the_queue_is
            what_the_peer_did_meanwhile_is_found_after_a_move
            a_read_that_did_not_leave_never_does
            a_read_ends_before_its_answer_and_late_data_go_nowhere
            a_read_whose_data_arrive_lets_its_buffer_go
            slots_of_commands_that_were_given_up_are_not_room
            what_does_not_read_goes_on_without_a_timeout
            closing_ends_everything_once
            closing_amid_the_data_of_a_read_waits_for_its_buffer
            a_closed_queue_takes_nothing
            a_peer_that_goes_ends_everything_once
            a_command_without_an_answer_ends_the_connection_in_time
            dropping_a_queue_lets_go_of_every_buffer
        }
    };
    (@each $rig:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            let mut checks = $crate::conformance::CHECKS.iter();
            let check = checks.find(|check| check.name == stringify!($name)).unwrap();
            (check.run)(&$rig);
        })*

        /// None is left out.
        #[test]
        fn the_suite_is_all_of_these() {
            let here = [$(stringify!($name)),*];
            let there: Vec<&str> = $crate::conformance::CHECKS.iter().map(|check| check.name).collect();
            assert_eq!(here.as_slice(), there);
        }
    };
}
