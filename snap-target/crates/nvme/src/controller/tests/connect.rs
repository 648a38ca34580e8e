//! Connect and the registry (Base, "Connect command and response").

use super::*;

fn registry(change: impl Fn(&mut Subsystem)) -> Registry {
    let mut subsystem = subsystem();
    change(&mut subsystem);
    Registry::new(Target::new([subsystem], []).unwrap())
}

fn connect(registry: &mut Registry, sqe: &Sqe, data: &[u8]) -> Result<Admitted, NotAdmitted> {
    registry.connect(sqe, data, &local(), Time::ZERO)
}

fn refused(completion: Completion) -> Result<Admitted, NotAdmitted> {
    Err(NotAdmitted::Refused(completion))
}

fn invalid(dw0: u32) -> Result<Admitted, NotAdmitted> {
    refused(Completion {
        status: Status::CONNECT_INVALID_PARAMETERS.dnr(),
        dw0,
        dw1: 0,
    })
}

const IN_DATA: u32 = 1 << 16;

#[test]
fn an_admin_queue_makes_a_controller() {
    let mut registry = registry(|_| ());
    let (sqe, data) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
    let admitted = connect(&mut registry, &sqe, &data).unwrap();
    assert_eq!(
        admitted,
        Admitted {
            controller: ControllerId(1),
            queue: QueueId::ADMIN,
            entries: 32,
            flow_control: true,
            completion: Completion::result(1),
        }
    );
    let controller = registry.controller(ControllerId(1)).unwrap();
    assert_eq!(
        (controller.host().as_str(), controller.host_id()),
        (HOST, &HOST_ID)
    );
    // Another association of the same host is another controller.
    assert_eq!(
        connect(&mut registry, &sqe, &data).unwrap().controller,
        ControllerId(2)
    );
    // Identifiers go round: the one just freed is not the next.
    assert_eq!(
        registry.closed(ControllerId(2), QueueId::ADMIN),
        Closed::Controller
    );
    assert_eq!(
        connect(&mut registry, &sqe, &data).unwrap().controller,
        ControllerId(3)
    );
}

/// CATTR bit 2.
#[test]
fn flow_control_is_off_where_the_host_asks() {
    let mut registry = registry(|_| ());
    let (mut sqe, data) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
    sqe.cdw11 = (sqe.cdw11.get() | 1 << 18).into();
    assert!(!connect(&mut registry, &sqe, &data).unwrap().flow_control);
}

#[test]
fn each_wrong_parameter_is_named_by_its_offset() {
    let mut registry = registry(|_| ());
    let mut changed = |change: fn(&mut [u8; 64], &mut Vec<u8>)| {
        let (sqe, mut data) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
        let mut entry: [u8; 64] = zerocopy::transmute!(sqe);
        change(&mut entry, &mut data);
        connect(&mut registry, &Sqe::read_from_bytes(&entry).unwrap(), &data)
    };
    assert_eq!(
        changed(|sqe, _| sqe[40] = 1),
        refused(Completion::of(Status::CONNECT_INCOMPATIBLE_FORMAT.dnr()))
    );
    let length = refused(Completion::of(Status::DATA_SGL_LENGTH_INVALID.dnr()));
    assert_eq!(changed(|_, data| data.truncate(1023)), length);
    assert_eq!(changed(|_, data| data.push(0)), length);
    assert_eq!(changed(|_, data| data.clear()), length);
    // SQSIZE: zero-based, 1 at least, 63 at most here.
    assert_eq!(changed(|sqe, _| sqe[44] = 0), invalid(44));
    assert_eq!(changed(|sqe, _| sqe[44] = 64), invalid(44));
    assert_eq!(changed(|sqe, _| sqe[44..46].fill(0xFF)), invalid(44));
    // CNTLID: the dynamic model gives it.
    assert_eq!(
        changed(|_, data| data[16..18].copy_from_slice(&[0xFE, 0xFF])),
        invalid(IN_DATA | 16)
    );
    assert_eq!(
        changed(|_, data| data[16..18].copy_from_slice(&[1, 0])),
        invalid(IN_DATA | 16)
    );
    // SUBNQN: another, none, not terminated, not text.
    assert_eq!(changed(|_, data| data[260] = b'x'), invalid(IN_DATA | 256));
    assert_eq!(
        changed(|_, data| data[256..512].fill(0)),
        invalid(IN_DATA | 256)
    );
    assert_eq!(
        changed(|_, data| data[256..512].fill(b'a')),
        invalid(IN_DATA | 256)
    );
    assert_eq!(changed(|_, data| data[270] = 0xFF), invalid(IN_DATA | 256));
    // HOSTNQN: not terminated, not text.
    assert_eq!(changed(|_, data| data[530] = 0xFF), invalid(IN_DATA | 512));
    assert_eq!(
        changed(|_, data| data[512..768].fill(b'a')),
        invalid(IN_DATA | 512)
    );
    assert_eq!(registry.controllers().count(), 0);
}

#[test]
fn hosts_that_are_not_allowed_are_named_invalid() {
    let (sqe, data) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
    let mut allowing = registry(|s| s.hosts = HostPolicy::Only(vec![Nqn::parse(HOST).unwrap()]));
    assert!(connect(&mut allowing, &sqe, &data).is_ok());
    let mut other = registry(|s| {
        s.hosts = HostPolicy::Only(vec![Nqn::parse("nqn.2026-01.io.example:other").unwrap()])
    });
    let expected = Completion {
        status: Status::CONNECT_INVALID_HOST.dnr(),
        dw0: IN_DATA | 512,
        dw1: 0,
    };
    assert_eq!(connect(&mut other, &sqe, &data), refused(expected));
    // Hosts of functions do not connect, and nobody takes their place; of discovery neither.
    for subsystem in [SUBSYSTEM, nvme_spec::DISCOVERY_NQN] {
        let (sqe, mut posing) = connect_command(0, 31, 0xFFFF, subsystem);
        posing[512..768].copy_from_slice(&Nqn::function_host("pf0vf1").to_field());
        assert_eq!(
            connect(&mut registry(|_| ()), &sqe, &posing),
            refused(expected)
        );
    }
    // A host without a name is some host: let in where any is, and never where hosts are listed.
    let (sqe, mut unnamed) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
    unnamed[512..768].fill(0);
    assert!(connect(&mut registry(|_| ()), &sqe, &unnamed).is_ok());
    assert_eq!(connect(&mut other, &sqe, &unnamed), refused(expected));
    // Discovery is open to it, and shows it nothing.
    let (sqe, data) = connect_command(0, 31, 0xFFFF, DISCOVERY);
    assert!(connect(&mut other, &sqe, &data).is_ok());
}

#[test]
fn limits_on_controllers_are_busy_not_final() {
    let (sqe, data) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
    let busy = refused(Completion::of(Status::CONNECT_CONTROLLER_BUSY));
    let mut registry = registry(|s| {
        s.limits.controllers_max = 3;
        s.limits.controllers_per_host_max = 2;
    });
    assert!(connect(&mut registry, &sqe, &data).is_ok());
    let second = connect(&mut registry, &sqe, &data).unwrap();
    assert_eq!(connect(&mut registry, &sqe, &data), busy);
    let mut other = data.clone();
    other[520] ^= 1;
    assert!(connect(&mut registry, &sqe, &other).is_ok());
    other[520] ^= 3;
    assert_eq!(connect(&mut registry, &sqe, &other), busy);
    registry.closed(second.controller, QueueId::ADMIN);
    assert!(connect(&mut registry, &sqe, &data).is_ok());
}

/// One host that stays connected to the discovery service over and over does not keep the others from it.
#[test]
fn a_host_has_its_share_of_discovery() {
    let (sqe, data) = connect_command(0, 31, 0xFFFF, DISCOVERY);
    let mut registry = registry(|_| ());
    for _ in 0..16 {
        assert!(connect(&mut registry, &sqe, &data).is_ok());
    }
    let busy = refused(Completion::of(Status::CONNECT_CONTROLLER_BUSY));
    assert_eq!(connect(&mut registry, &sqe, &data), busy);
    let mut other = data.clone();
    other[520] ^= 1;
    assert!(connect(&mut registry, &sqe, &other).is_ok());
}

#[test]
fn io_queues_join_their_controller() {
    let mut host = Host::io();
    let id = host.id;
    let mut join = |qid, sqsize, cntlid, change: fn(&mut Vec<u8>)| {
        let (sqe, mut data) = connect_command(qid, sqsize, cntlid, SUBSYSTEM);
        change(&mut data);
        host.registry.connect(&sqe, &data, &local(), Time::ZERO)
    };
    let admitted = join(1, 63, id.0, |_| ()).unwrap();
    assert_eq!(
        (admitted.controller, admitted.queue, admitted.entries),
        (id, queue(1), 64)
    );
    assert_eq!(admitted.completion, Completion::result(u32::from(id.0)));
    // The same queue twice.
    assert_eq!(
        join(1, 63, id.0, |_| ()),
        refused(Completion::of(Status::COMMAND_SEQUENCE_ERROR.dnr()))
    );
    // Beyond what Number of Queues granted.
    assert!(join(4, 63, id.0, |_| ()).is_ok());
    assert_eq!(join(5, 63, id.0, |_| ()), invalid(42));
    assert_eq!(join(0xFFFF, 63, id.0, |_| ()), invalid(42));
    // Too long, too short.
    assert_eq!(join(2, 64, id.0, |_| ()), invalid(44));
    assert_eq!(join(2, 0, id.0, |_| ()), invalid(44));
    // Another controller, subsystem, host, host identifier.
    assert_eq!(join(2, 63, id.0 + 1, |_| ()), invalid(IN_DATA | 16));
    assert_eq!(join(2, 63, 0xFFFF, |_| ()), invalid(IN_DATA | 16));
    assert_eq!(
        join(2, 63, id.0, |data| data[270] ^= 1),
        invalid(IN_DATA | 256)
    );
    assert_eq!(
        join(2, 63, id.0, |data| data[530] ^= 1),
        invalid(IN_DATA | 512)
    );
    assert_eq!(join(2, 63, id.0, |data| data[3] ^= 1), invalid(IN_DATA));
    assert_eq!(host.registry.io_queues(id), [queue(1), queue(4)]);

    // A queue that closed may come again; with the admin queue all go.
    assert_eq!(host.registry.closed(id, queue(1)), Closed::Queue);
    assert_eq!(host.registry.closed(id, queue(1)), Closed::Unknown);
    assert_eq!(host.registry.closed(id, queue(77)), Closed::Unknown);
    let ending = Closed::Ending(vec![queue(4)]);
    assert_eq!(host.registry.closed(id, QueueId::ADMIN), ending);
    assert_eq!(host.registry.closed(id, queue(1)), Closed::Unknown);
    assert_eq!(host.registry.closed(id, queue(4)), Closed::Controller);
    assert_eq!(host.registry.closed(id, QueueId::ADMIN), Closed::Unknown);
}

/// A queue's last write may be with a store long after its connection: until it is not, nothing of the association begins again.
#[test]
fn while_a_controller_ends_no_queue_connects_and_its_host_waits() {
    let mut host = Host::io();
    let (id, registry) = (host.id, &mut host.registry);
    let (io, io_data) = connect_command(1, 63, id.0, SUBSYSTEM);
    let (second_io, _) = connect_command(2, 63, id.0, SUBSYSTEM);
    let (admin, admin_data) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
    assert!(connect(registry, &io, &io_data).is_ok());
    assert_eq!(registry.end(id), Closed::Ending(vec![queue(1)]));

    assert_eq!(
        connect(registry, &second_io, &io_data),
        invalid(IN_DATA | 16)
    );
    assert_eq!(
        connect(registry, &admin, &admin_data),
        Err(NotAdmitted::Later)
    );
    // Discovery touches no namespace: what a store still holds does not keep it waiting.
    let (discovery, discovery_data) = connect_command(0, 31, 0xFFFF, DISCOVERY);
    assert!(connect(registry, &discovery, &discovery_data).is_ok());
    // Nor is another subsystem's end the business of this one's.
    let elsewhere = "nqn.2026-01.io.example:elsewhere";
    let mut second = subsystem();
    second.nqn = Nqn::parse(elsewhere).unwrap();
    registry.add_subsystem(second).unwrap();
    let (there, there_data) = connect_command(0, 31, 0xFFFF, elsewhere);
    assert!(connect(registry, &there, &there_data).is_ok());
    // Another host's association is none of its business.
    let mut other = admin_data.clone();
    other[520] ^= 1;
    assert!(connect(registry, &admin, &other).is_ok());

    // Ended again, by its admin queue: the same answer, until the I/O queue has closed.
    assert_eq!(
        registry.closed(id, QueueId::ADMIN),
        Closed::Ending(vec![queue(1)])
    );
    assert_eq!(registry.closed(id, queue(1)), Closed::Controller);
    assert!(connect(registry, &admin, &admin_data).is_ok());
}

/// Silence is noticed once: a driver that asks until there is nobody left comes to an end, and does not wake up for the dead.
#[test]
fn a_controller_that_ends_does_not_expire() {
    let mut host = Host::io();
    let (io, data) = connect_command(1, 63, host.id.0, SUBSYSTEM);
    assert!(connect(&mut host.registry, &io, &data).is_ok());
    let late = host.now + Duration::from_secs(60);
    assert_eq!(host.registry.next_expired(late), Some(host.id));
    assert_eq!(host.registry.end(host.id), Closed::Ending(vec![queue(1)]));
    assert_eq!(host.registry.next_expired(late), None);
    assert_eq!(host.registry.deadline(), None);
}

/// I/O queues need an enabled controller with 64- and 16-byte entries, and one that has I/O queues at all.
#[test]
fn io_queues_wait_for_enable() {
    for (subnqn, cc) in [
        (SUBSYSTEM, 0x0046_0000),
        (SUBSYSTEM, 0x0000_0001),
        (SUBSYSTEM, 0x0045_0001),
        (DISCOVERY, 0x0046_0001),
    ] {
        let mut host = Host::connected(subnqn);
        host.set_cc(cc);
        let (sqe, data) = connect_command(1, 63, host.id.0, subnqn);
        assert_eq!(
            host.registry.connect(&sqe, &data, &local(), Time::ZERO),
            invalid(42)
        );
    }
}

/// Base, "Number of Queues": settled once a queue is connected; until then the last word counts.
#[test]
fn the_number_of_queues_is_granted_before_they_connect() {
    let mut host = Host::io();
    assert_eq!(host.plain(&command(0x09, 0, 0x07, 0x0001_0000)), Ok(0));
    let id = host.id;
    let (second, data) = connect_command(2, 63, id.0, SUBSYSTEM);
    assert_eq!(
        host.registry.connect(&second, &data, &local(), Time::ZERO),
        invalid(42)
    );
    assert_eq!(
        host.plain(&command(0x09, 0, 0x07, 0x00FF_00FF)),
        Ok(0x0003_0003)
    );
    assert!(
        host.registry
            .connect(&second, &data, &local(), Time::ZERO)
            .is_ok()
    );
    assert_eq!(
        host.plain(&command(0x09, 0, 0x07, 0)),
        Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
    );
    host.registry.closed(id, queue(2));
    assert_eq!(host.plain(&command(0x09, 0, 0x07, 0)), Ok(0));
    assert_eq!(
        host.plain(&command(0x09, 0, 0x07, 0xFFFF)),
        Err(INVALID_FIELD)
    );
    assert_eq!(
        host.plain(&command(0x09, 0, 0x07, 0xFFFF_0000)),
        Err(INVALID_FIELD)
    );
}

/// Base, "Keep Alive": the timer runs on the clock passed in; any admin command restarts it.
#[test]
fn a_silent_host_expires() {
    let mut host = Host::io();
    let start = host.now;
    let kato = Duration::from_secs(5);
    assert_eq!(host.registry.deadline(), Some(start + kato));
    host.now = start + Duration::from_secs(4);
    assert_eq!(host.plain(&command(0x18, 0, 0, 0)), Ok(0));
    assert_eq!(host.registry.next_expired(start + kato), None);
    let deadline = start + Duration::from_secs(9);
    assert_eq!(
        host.registry
            .next_expired(Time::from_nanos(deadline.as_nanos() - 1)),
        None
    );
    assert_eq!(host.registry.next_expired(deadline), Some(host.id));
    // KATO 0: no timer. KATO is rounded up to KAS.
    assert_eq!(host.plain(&command(0x09, 0, 0x0F, 0)), Ok(0));
    assert_eq!(host.registry.deadline(), None);
    assert_eq!(host.plain(&command(0x09, 0, 0x0F, 1001)), Ok(0));
    assert_eq!(
        host.registry.deadline(),
        Some(host.now + Duration::from_secs(2))
    );
    assert_eq!(host.plain(&command(0x0A, 0, 0x0F, 0)), Ok(2000));
    assert_eq!(host.plain(&command(0x09, 0, 0x0F, u32::MAX)), Ok(0));
    assert!(host.registry.deadline().is_some());
}

/// Linux's admin queues have 32 entries, whatever a subsystem's I/O queues may have: one with short queues keeps no host out, and none of the others'.
#[test]
fn an_admin_queue_has_room_for_32_entries() {
    for (of_subsystem, of_admin) in [(8, 32), (32, 32), (64, 64)] {
        for (subsystem, entries) in [(SUBSYSTEM, of_admin), (DISCOVERY, 32)] {
            let mut registry =
                registry(|subsystem| subsystem.limits.queue_entries_max = of_subsystem);
            let (sqe, data) = connect_command(0, entries - 1, 0xFFFF, subsystem);
            let admitted = connect(&mut registry, &sqe, &data).unwrap();
            assert_eq!(admitted.entries, entries);
            let (sqe, data) = connect_command(0, entries, 0xFFFF, subsystem);
            assert_eq!(connect(&mut registry, &sqe, &data), invalid(44));
        }
        let limits = ControllerLimits {
            queue_entries_max: of_subsystem,
            ..ControllerLimits::default()
        };
        assert_eq!(limits.connection().queue_entries_max, of_admin);
    }
}

/// A discovery controller without keep alive ends after two idle minutes.
#[test]
fn an_idle_discovery_controller_expires() {
    let mut host = Host::enabled(DISCOVERY);
    assert_eq!(host.plain(&command(0x09, 0, 0x0F, 0)), Ok(0));
    assert_eq!(
        host.registry
            .next_expired(host.now + Duration::from_secs(119)),
        None
    );
    assert_eq!(
        host.registry
            .next_expired(host.now + Duration::from_secs(120)),
        Some(host.id)
    );
}

/// A controller belongs to the transport over which it came to be.
#[test]
fn an_io_queue_comes_over_its_controllers_transport() {
    let mut host = Host::io();
    let (io, data) = connect_command(1, 63, host.id.0, SUBSYSTEM);
    let over_rdma = ConnectContext {
        transport: Transport::Rdma,
        ..local()
    };
    let refused = host.registry.connect(&io, &data, &over_rdma, Time::ZERO);
    assert_eq!(refused, invalid(IN_DATA | 16));
    assert!(connect(&mut host.registry, &io, &data).is_ok());
}

/// A PCIe function: no Connect, no fabrics commands, no keep alive; CC and CSTS as registers; PRPs; and a CNTLID of the same row.
#[test]
fn a_local_controller_is_driven_by_its_registers() {
    use nvme_spec::register::Cc;
    let mut host = Host::io();
    let nqn = Nqn::parse(SUBSYSTEM).unwrap();
    let now = host.now;
    let function = Nqn::function_host("pf0");
    let attach =
        |registry: &mut Registry, nqn| registry.attach_local(nqn, &function, Transport::Pcie, now);
    let id = attach(&mut host.registry, &nqn).unwrap();
    assert_eq!(id, ControllerId(host.id.0 + 1));
    let unknown = Nqn::parse("nqn.2026-01.io.example:other").unwrap();
    assert_eq!(
        attach(&mut host.registry, &unknown),
        Err(Status::CONNECT_INVALID_PARAMETERS)
    );

    host.id = id;
    assert_eq!(host.controller().keep_alive_deadline(), None);
    assert_eq!(host.controller().csts().0, 0);
    assert_eq!(
        {
            let now = host.now;
            host.controller().write_cc(Cc(0x0046_0001), now)
        },
        Effect::None
    );
    assert_eq!(host.controller().csts().0, 1);
    assert_eq!(
        host.plain(&fabrics(0x04, 0x1C)),
        Err(Status::INVALID_OPCODE.dnr())
    );

    // Identify Controller through PRPs: no capsules, no fabrics fields.
    let sqe = Sqe::read_from_bytes(&command(0x06, 0, 1, 0)).unwrap();
    let identify = AdminCommand {
        sqe: &sqe,
        slot: Slot(0),
        transfer: Transfer::InMemory,
        data: &[],
    };
    let mut page = vec![0xEE; 4096];
    let outcome = host.controller().execute(&identify, &mut page, now);
    let Outcome::Done { data_bytes, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((data_bytes, u16_at(&page, 78)), (4096, id.0));
    assert_eq!(u32_at(&page, 536), 1 | 1 << 18, "SGLS");
    assert_eq!(
        (u32_at(&page, 1792), u32_at(&page, 1796)),
        (0, 0),
        "IOCCSZ, IORCSZ"
    );

    assert_eq!(
        {
            let now = host.now;
            host.controller().write_cc(Cc(0x0046_0000), now)
        },
        Effect::Reset
    );
    assert_eq!(host.controller().reset_complete(), Effect::None);
    assert_eq!(host.controller().csts().0, 0);
    assert_eq!(host.registry.end(id), Closed::Controller);
}
