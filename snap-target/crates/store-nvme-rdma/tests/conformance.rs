//! The suite of queues, on RDMA.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

mod support;

use store_nvme::conformance::{CHECKS, run};

use support::peer::Conduct;
use support::rig::RdmaRig;

macro_rules! each {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let check = CHECKS.iter().find(|check| check.name == stringify!($name)).unwrap();
            (check.run)(&RdmaRig::new());
        })*

        /// None is left out.
        #[test]
        fn the_suite_is_all_of_these() {
            let here = [$(stringify!($name)),*];
            let there: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
            assert_eq!(here.as_slice(), there);
        }
    };
}

each! {
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

/// As over a device that has no memory windows.
#[test]
fn without_windows() {
    let mut rig = RdmaRig::new();
    rig.transport = rig.transport.without_windows();
    run(&rig);
}

/// Every key is taken back here. Commands without a key then end before those whose key is on its way back, whatever order they were answered in: that
/// check is left out.
#[test]
fn against_a_controller_that_invalidates_nothing() {
    let mut rig = RdmaRig::new();
    rig.conduct = Conduct {
        invalidates: false,
        ..rig.conduct
    };
    let of_order = "a_full_queue_takes_no_more_and_loses_nothing";
    for check in CHECKS.iter().filter(|check| check.name != of_order) {
        (check.run)(&rig);
    }
}

#[test]
fn over_ipv6() {
    run(&RdmaRig::at(["fd00::1", "fd00::2"]));
}
