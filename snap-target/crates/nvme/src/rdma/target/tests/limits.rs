//! What finds no room waits; what does not end in time ends the connection.

use super::super::{Event, Operation, Request, TargetLimits, Want};
use super::{Answer, Driver, REQUEST, flush, limits, read, write};
use crate::Time;
use crate::queue::Completion;
use std::time::Duration;

fn after(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

#[test]
fn a_full_send_queue_parks_what_is_to_be_posted() {
    let few = TargetLimits {
        send_requests: 4,
        ..limits()
    };
    let mut driver = Driver::live(&few, &REQUEST);
    let slot = driver.command(&read(1, 4096));
    driver.connection.respond(slot, Completion::SUCCESS, 4096);
    let pieces: Vec<_> = (0..4).map(|_| driver.post(512)).collect();
    assert_eq!(driver.connection.next_work(), None);
    let told: Vec<_> = pieces.iter().map(|piece| piece.signaled).collect();
    assert!(told.contains(&true), "or it would wait for ever: {told:?}");
    let last_told = pieces.iter().rfind(|piece| piece.signaled).unwrap();
    assert_eq!(driver.complete(last_told), []);
    let next = driver.connection.next_work().unwrap();
    assert!(matches!(
        next.operation,
        Operation::Write { offset: 2048, .. }
    ));
}

/// Whatever the sizes are, a queue of requests that nothing waits for moves on by the completions that are told.
#[test]
fn some_completion_is_told_before_any_limit_is_met() {
    for send_requests in [4, 5, 7, 32] {
        for host_receives in [1, 2, 3, 64] {
            let limits = TargetLimits {
                send_requests,
                ..limits()
            };
            let request = Request {
                host_receives,
                ..REQUEST
            };
            let mut driver = Driver::new(&limits, &request);
            let connect = driver.command(&super::connect(0, 1, 7));
            driver.connection.established(8, true);
            driver.connection.authenticated();
            driver.connection.respond(connect, Completion::SUCCESS, 0);
            let mut last_told = None;
            for cid in 0..200 {
                if driver.connection.next_work().is_none() {
                    let told = last_told.take().expect("one that is told");
                    driver.complete(&told);
                }
                let work = driver.post(0);
                if work.signaled {
                    last_told = Some(work);
                }
                let slot = driver.command(&flush(cid));
                driver.connection.respond(slot, Completion::SUCCESS, 0);
            }
        }
    }
}

#[test]
fn responses_never_outnumber_the_receives_of_the_host() {
    let request = Request {
        host_receives: 2,
        ..REQUEST
    };
    let mut driver = Driver::live(&limits(), &request);
    for cid in 1..=4 {
        let slot = driver.command(&flush(cid));
        driver.connection.respond(slot, Completion::SUCCESS, 0);
    }
    let first = driver.post(0);
    assert_eq!(Answer::of(first.operation).cid, 1);
    assert_eq!(driver.answer().cid, 2);
    assert_eq!(driver.connection.next_work(), None, "two are out");
    driver.complete(&first);
    assert_eq!(driver.answer().cid, 3);
    assert_eq!(driver.connection.next_work(), None);
}

#[test]
fn a_host_may_be_ahead_of_our_completions_but_not_of_our_responses() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    // A full queue of reads whose responses are posted: the host may have them all.
    let mut last = None;
    for cid in 0..8 {
        let slot = driver.command(&read(cid, 512));
        driver.connection.respond(slot, Completion::SUCCESS, 512);
        driver.post(512);
        last = Some(driver.post(0));
        if cid == 3 {
            driver.complete(&last.unwrap());
        }
    }
    // Eight more that are not answered.
    for cid in 8..16 {
        if driver.connection.want() == Want::Slot {
            driver.complete(&last.take().unwrap());
        }
        driver.command(&read(cid, 512));
    }
    driver.message(&read(16, 512));
    let overrun = driver.connection.next_event();
    assert!(matches!(overrun, Some(Event::Fatal(_))), "{overrun:?}");
    assert_eq!(driver.connection.want(), Want::Closed);
}

#[test]
fn messages_wait_while_every_slot_has_data_under_way() {
    let request = Request {
        entries: 2,
        ..REQUEST
    };
    let mut driver = Driver::live(&limits(), &request);
    let responses: Vec<_> = (0..4)
        .map(|cid| {
            let slot = driver.command(&read(cid, 512));
            driver.connection.respond(slot, Completion::SUCCESS, 512);
            driver.post(512);
            driver.post(0)
        })
        .collect();
    assert_eq!(driver.connection.want(), Want::Slot);
    assert_eq!(driver.complete(&responses[0]).len(), 1);
    assert_eq!(driver.connection.want(), Want::Capsule);
}

#[test]
fn connect_has_its_time() {
    let mut driver = Driver::new(&limits(), &REQUEST);
    assert_eq!(driver.connection.deadline(), Some(after(10)));
    driver.connection.tick(after(9));
    assert_eq!(driver.connection.next_event(), None);
    driver.connection.tick(after(10));
    assert_eq!(driver.connection.next_event(), Some(Event::TimedOut));
    assert_eq!(driver.connection.want(), Want::Closed);
    assert_eq!(driver.connection.deadline(), None);
}

#[test]
fn a_read_that_does_not_end_is_given_up() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    driver.now = after(100);
    driver.connection.tick(driver.now);
    let slot = driver.command(&write(1, 512));
    driver.connection.request_data(slot, driver.now).unwrap();
    assert_eq!(driver.connection.deadline(), Some(after(120)));
    let work = driver.post(512);
    driver.now = after(110);
    let other = driver.command(&write(2, 512));
    driver.connection.request_data(other, driver.now).unwrap();
    driver.post(512);
    driver.complete(&work);
    // The first one has ended; the second has its own time.
    driver.connection.tick(after(120));
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.deadline(), Some(after(130)));
    driver.connection.tick(after(130));
    assert_eq!(driver.connection.next_event(), Some(Event::TimedOut));
}

#[test]
fn data_that_do_not_leave_are_given_up() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    driver.now = after(10);
    let slot = driver.command(&read(1, 512));
    driver.connection.respond(slot, Completion::SUCCESS, 512);
    let data = driver.post(512);
    assert!(!data.signaled, "its response tells of it");
    let response = driver.post(0);
    // Connect's response set it; the data have their own time.
    assert_eq!(driver.connection.deadline(), Some(after(20)));
    driver.connection.tick(after(29));
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.deadline(), Some(after(30)));
    driver.connection.tick(after(30));
    assert_eq!(driver.connection.next_event(), Some(Event::TimedOut));
    // What is posted ends later, and has no one to tell.
    assert_eq!(driver.complete(&response), []);
    assert_eq!(driver.connection.occupied().collect::<Vec<_>>(), [slot]);
}

#[test]
fn a_host_that_takes_no_response_is_given_up_and_an_idle_one_is_not() {
    let mut driver = Driver::new(&limits(), &REQUEST);
    let connect = driver.command(&super::connect(0, 1, 7));
    driver.connection.established(8, true);
    driver.connection.authenticated();
    driver.connection.respond(connect, Completion::SUCCESS, 0);
    let response = driver.post(0);
    assert!(response.signaled);
    driver.complete(&response);
    driver.connection.tick(after(1000));
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.deadline(), None, "nothing is posted");
    driver.now = after(1000);
    let slot = driver.command(&flush(1));
    driver.connection.respond(slot, Completion::SUCCESS, 0);
    driver.post(0);
    assert_eq!(driver.connection.deadline(), Some(after(1020)));
    driver.connection.tick(after(1020));
    assert_eq!(driver.connection.next_event(), Some(Event::TimedOut));
}

#[test]
fn answers_go_past_a_read_that_finds_no_memory() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let waits = driver.command(&write(1, 512));
    driver.connection.request_data(waits, driver.now).unwrap();
    let answered = driver.command(&flush(2));
    driver.connection.respond(answered, Completion::SUCCESS, 0);
    assert_eq!(driver.connection.next_work().unwrap().slot, waits);
    let past = driver.connection.next_answer().unwrap();
    driver.connection.posted(&past, 0, driver.now);
    assert_eq!(Answer::of(past.operation).cid, 2);
    assert_eq!(driver.connection.next_answer(), None);
    let read = driver.post(512);
    assert_eq!(driver.complete(&read), [Event::DataReady { slot: waits }]);
}
