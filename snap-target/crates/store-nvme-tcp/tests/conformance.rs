//! The suite of queues, on TCP.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

mod support;

use nvme::tcp::target::TargetLimits;
use store_nvme::conformance::{CHECKS, run};

use support::rig::TcpRig;

macro_rules! each {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let check = CHECKS.iter().find(|check| check.name == stringify!($name)).unwrap();
            (check.run)(&TcpRig::new(false, false));
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

#[test]
fn with_header_digests() {
    run(&TcpRig::new(true, false));
}

#[test]
fn with_data_digests() {
    run(&TcpRig::new(false, true));
}

#[test]
fn with_both_digests() {
    run(&TcpRig::new(true, true));
}

/// A controller that cuts data into small PDUs, and wants them aligned.
#[test]
fn in_small_pieces() {
    let mut rig = TcpRig::new(true, true);
    rig.limits = TargetLimits {
        h2c_data_bytes_max: 4096,
        r2t_bytes_max: 12 << 10,
        c2h_data_bytes_max: 4096,
        alignment_z: 31,
        ..rig.limits
    };
    run(&rig);
}
