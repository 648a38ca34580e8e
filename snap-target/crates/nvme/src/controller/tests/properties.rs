//! Properties (Base, "Controller Properties").

use super::*;

fn get(host: &mut Host, offset: u32, attrib: u8) -> Result<u64, Status> {
    let mut sqe = fabrics(0x04, offset);
    sqe[40] = attrib;
    match host.run(&sqe, &[], &mut []) {
        Outcome::Done { completion, .. } if completion.status == Status::SUCCESS => {
            Ok(u64::from(completion.dw1) << 32 | u64::from(completion.dw0))
        }
        Outcome::Done { completion, .. } => Err(completion.status),
        other => panic!("{other:?}"),
    }
}

fn effect(outcome: Outcome) -> Effect {
    match outcome {
        Outcome::Done {
            completion: Completion::SUCCESS,
            data_bytes: 0,
            effect,
        } => effect,
        other => panic!("{other:?}"),
    }
}

#[test]
fn properties_are_read_at_their_size_alone() {
    let mut host = Host::connected(SUBSYSTEM);
    // CAP: MQES 63 zero-based, CQR, TO 15, NVM command set, ready with media.
    assert_eq!(
        get(&mut host, 0x00, 1),
        Ok(63 | 1 << 16 | 15 << 24 | 1 << 37 | 1 << 59)
    );
    assert_eq!(get(&mut host, 0x08, 0), Ok(0x0002_0000));
    assert_eq!(get(&mut host, 0x14, 0), Ok(0));
    assert_eq!(get(&mut host, 0x1C, 0), Ok(0));
    assert_eq!(get(&mut host, 0x68, 0), Ok(15));
    for (offset, attrib) in [
        (0, 0),
        (8, 1),
        (0x14, 1),
        (0x1C, 1),
        (0x68, 1),
        (4, 0),
        (0x0C, 0),
        (0x20, 0),
        (0x24, 0),
        (u32::MAX, 0),
        (0, 2),
        (8, 7),
    ] {
        assert_eq!(
            get(&mut host, offset, attrib),
            Err(INVALID_FIELD),
            "{offset:#x}"
        );
    }
}

#[test]
fn only_cc_can_be_written() {
    let mut host = Host::connected(SUBSYSTEM);
    for offset in [0x00, 0x08, 0x1C, 0x20, 0x24, 0x28, 0x68, 0x1000] {
        assert_eq!(
            host.plain(&fabrics(0x00, offset)),
            Err(INVALID_FIELD),
            "{offset:#x}"
        );
    }
    let mut wide = fabrics(0x00, 0x14);
    wide[40] = 1;
    assert_eq!(host.plain(&wide), Err(INVALID_FIELD));
    let mut high = fabrics(0x00, 0x14);
    high[52] = 1;
    assert_eq!(host.plain(&high), Err(INVALID_FIELD));
    assert_eq!(host.csts(), 0);
}

/// CC.EN, CSTS.RDY, CC.SHN, CSTS.SHST through a controller's life.
#[test]
fn enable_shutdown_and_reset_follow_the_host() {
    let mut host = Host::connected(SUBSYSTEM);
    assert_eq!(effect(host.set_cc(0x0046_0001)), Effect::None);
    assert_eq!((host.csts(), get(&mut host, 0x14, 0)), (1, Ok(0x0046_0001)));
    assert!(host.controller().ready());
    // Normal shutdown: in progress until the frontend has flushed.
    assert_eq!(effect(host.set_cc(0x0046_4001)), Effect::Shutdown);
    assert_eq!(host.csts(), 1 | 0b01 << 2);
    assert_eq!(effect(host.set_cc(0x0046_4001)), Effect::None);
    host.controller().shutdown_complete();
    assert_eq!(host.csts(), 1 | 0b10 << 2);
    // Reset: ready until the frontend says that all has ended. And once more.
    assert_eq!(effect(host.set_cc(0x0046_0000)), Effect::Reset);
    assert_eq!(host.csts(), 1);
    assert_eq!(host.controller().reset_complete(), Effect::None);
    assert_eq!(host.csts(), 0);
    assert_eq!(effect(host.set_cc(0x0046_0001)), Effect::None);
    assert_eq!(host.csts(), 1);
    // Abrupt shutdown counts as one.
    assert_eq!(effect(host.set_cc(0x0046_8001)), Effect::Shutdown);
    // Nobody asked: nothing completes.
    let mut host = Host::io();
    host.controller().shutdown_complete();
    host.controller().shutdown_failed();
    assert_eq!(host.controller().reset_complete(), Effect::None);
    assert_eq!(host.csts(), 1);
}

/// A flush that failed is no shutdown: fatal, still "in progress", and only a reset helps.
#[test]
fn a_shutdown_that_failed_is_fatal_and_never_complete() {
    let mut host = Host::io();
    assert_eq!(effect(host.set_cc(0x0046_4001)), Effect::Shutdown);
    host.controller().shutdown_failed();
    let failed = 1 | 1 << 1 | 0b01 << 2;
    assert_eq!(host.csts(), failed);
    host.controller().shutdown_complete();
    assert_eq!(host.csts(), failed);
    assert_eq!(effect(host.set_cc(0x0046_0000)), Effect::Reset);
    assert_eq!(host.controller().reset_complete(), Effect::None);
    assert_eq!(host.csts(), 0);
}

/// Base, "Controller Level Reset": CSTS.RDY is the host's sign that nothing of its queues is applied any more.
#[test]
fn a_controller_is_ready_until_its_queues_have_ended() {
    let mut host = Host::io();
    let id = host.id;
    let (io, data) = connect_command(1, 63, id.0, SUBSYSTEM);
    let (second_io, _) = connect_command(2, 63, id.0, SUBSYSTEM);
    let now = host.now;
    assert!(host.registry.connect(&io, &data, &local(), now).is_ok());
    assert_eq!(effect(host.set_cc(0x0046_0000)), Effect::Reset);
    assert_eq!(host.controller().reset_complete(), Effect::None);
    assert_eq!(host.csts(), 1, "a queue is left");
    assert!(!host.controller().ready());
    assert_eq!(
        host.plain(&command(0x18, 0, 0, 0)),
        Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
    );

    // A host that does not wait, enables it again, and asks for another queue: not before the first has ended.
    assert_eq!(effect(host.set_cc(0x0046_0001)), Effect::None);
    let early = host.registry.connect(&second_io, &data, &local(), now);
    let not_ready = Completion {
        status: Status::CONNECT_INVALID_PARAMETERS.dnr(),
        dw0: 42,
        dw1: 0,
    };
    assert_eq!(early, Err(NotAdmitted::Refused(not_ready)));
    assert_eq!(host.registry.closed(id, queue(1)), Closed::Queue);
    assert_eq!(host.controller().reset_complete(), Effect::None);
    assert_eq!(host.csts(), 1, "enabled, as the host has asked meanwhile");
    assert!(
        host.registry
            .connect(&second_io, &data, &local(), now)
            .is_ok()
    );
}

/// A shutdown that the host asks for in the same write, or while the queues end, begins when they have.
#[test]
fn a_shutdown_during_a_reset_begins_after_it() {
    for (first, second) in [(0x0046_4000, 0x0046_4000), (0x0046_0000, 0x0046_4000)] {
        let mut host = Host::io();
        assert_eq!(effect(host.set_cc(first)), Effect::Reset);
        assert_eq!(effect(host.set_cc(second)), Effect::None);
        assert_eq!(host.csts(), 1);
        assert_eq!(host.controller().reset_complete(), Effect::Shutdown);
        assert_eq!(host.csts(), 0b01 << 2);
        host.controller().shutdown_complete();
        assert_eq!(host.csts(), 0b10 << 2);
    }
}

/// What CAP does not offer is a fatal status, not something else in silence.
#[test]
fn configurations_that_cap_does_not_offer_are_fatal() {
    for cc in [0x0046_0011, 0x0046_0061, 0x0046_0081, 0x0046_0801] {
        let mut host = Host::connected(SUBSYSTEM);
        host.set_cc(cc);
        assert_eq!(host.csts(), 0b10, "CC {cc:#x}");
        assert_eq!(
            host.plain(&command(0x18, 0, 0, 0)),
            Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
        );
        assert_eq!(effect(host.set_cc(0)), Effect::None);
        assert_eq!(host.csts(), 0);
    }
}

/// A reset brings features back to their defaults and ends what waits; the association stays.
#[test]
fn a_reset_forgets_what_the_host_set() {
    let mut host = Host::io();
    assert_eq!(host.plain(&command(0x09, 0, 0x0B, 0x100)), Ok(0));
    assert_eq!(
        host.run(&command(0x0C, 0, 0, 0), &[], &mut []),
        Outcome::Pending
    );
    let waiting = Slot(host.next_slot - 1);
    host.set_cc(0x0046_0000);
    let aborted = Completion::of(Status::ABORT_REQUESTED);
    assert_eq!(
        host.controller().next_async_event(),
        Some((waiting, aborted))
    );
    assert_eq!(host.controller().next_async_event(), None);
    assert_eq!(host.controller().reset_complete(), Effect::None);
    host.set_cc(0x0046_0001);
    assert_eq!(host.plain(&command(0x0A, 0, 0x0B, 0)), Ok(0));
}
