//! Places for queues: Number of Queues grants what is left, and every queue that was granted finds its place.

use super::*;
use nvme_spec::register::Cc;

const BUSY: Status = Status::CONNECT_CONTROLLER_BUSY;

/// A subsystem of four I/O queues a controller; hosts are told apart by one byte of their name.
struct Many {
    registry: Registry,
}

impl Many {
    fn new(places: Option<(usize, usize)>, change: impl Fn(&mut ControllerLimits)) -> Many {
        let mut subsystem = subsystem();
        change(&mut subsystem.limits);
        let mut registry = Registry::new(Target::new([subsystem], []).unwrap());
        if let Some((admin_queues, io_queues)) = places {
            registry.set_queue_places(QueuePlaces {
                admin_queues,
                io_queues,
                functions: 0,
            });
        }
        Many { registry }
    }

    fn connect(&mut self, host: u8, qid: u16, cntlid: u16, subnqn: &str) -> Result<u16, Status> {
        let (sqe, mut data) = connect_command(qid, 31, cntlid, subnqn);
        data[520] = b'0' + host;
        let connected = self.registry.connect(&sqe, &data, &local(), Time::ZERO);
        match connected {
            Ok(admitted) => Ok(admitted.controller.0),
            Err(NotAdmitted::Refused(completion)) => Err(completion.status),
            Err(NotAdmitted::Later) => panic!("nothing ends here"),
        }
    }

    /// An enabled controller.
    fn admin(&mut self, host: u8) -> Result<u16, Status> {
        let id = self.connect(host, 0, 0xFFFF, SUBSYSTEM)?;
        self.set_cc(id, 0x0046_0001);
        Ok(id)
    }

    fn io(&mut self, host: u8, id: u16, qid: u16) -> Result<(), Status> {
        self.connect(host, qid, id, SUBSYSTEM).map(|_| ())
    }

    fn set_cc(&mut self, id: u16, cc: u32) {
        let mut sqe = fabrics(0x00, 0x14);
        sqe[48..52].copy_from_slice(&cc.to_le_bytes());
        self.run(id, &sqe);
    }

    /// An enabled controller of a PCIe function.
    fn function(&mut self, number: u8) -> Result<u16, Status> {
        let nqn = Nqn::parse(SUBSYSTEM).unwrap();
        let host = Nqn::function_host(&format!("pf{number}"));
        let pcie = Transport::Pcie;
        let id = self.registry.attach_local(&nqn, &host, pcie, Time::ZERO)?;
        self.write_cc(id.0, 0x0046_0001);
        Ok(id.0)
    }

    fn write_cc(&mut self, id: u16, cc: u32) -> Effect {
        let written = self.registry.write_cc(ControllerId(id), Cc(cc), Time::ZERO);
        written.unwrap()
    }

    fn create(&mut self, id: u16, qid: u16) -> Result<(), Status> {
        let made = self.registry.open_local(ControllerId(id), QueueId(qid), 32);
        made.map(|_| ())
    }

    /// I/O queues granted of so many asked for.
    fn ask(&mut self, id: u16, queues: u32) -> u32 {
        let asked = (queues - 1) << 16 | (queues - 1);
        let granted = self.run(id, &command(0x09, 0, 0x07, asked));
        assert_eq!(granted >> 16, granted & 0xFFFF);
        // Get Features says the same.
        assert_eq!(self.run(id, &command(0x0A, 0, 0x07, 0)), granted);
        (granted & 0xFFFF) + 1
    }

    fn try_ask(&mut self, id: u16, queues: u32) -> Status {
        let asked = (queues - 1) << 16 | (queues - 1);
        self.completion(id, &command(0x09, 0, 0x07, asked)).status
    }

    fn run(&mut self, id: u16, sqe: &[u8; 64]) -> u32 {
        let completion = self.completion(id, sqe);
        assert_eq!(completion.status, Status::SUCCESS);
        completion.dw0
    }

    fn completion(&mut self, id: u16, sqe: &[u8; 64]) -> Completion {
        let sqe = Sqe::read_from_bytes(sqe).unwrap();
        let command = AdminCommand {
            sqe: &sqe,
            slot: Slot(0),
            transfer: Transfer::None,
            data: &[],
        };
        let outcome = self
            .registry
            .execute(ControllerId(id), &command, &mut [], Time::ZERO);
        match outcome.unwrap() {
            Outcome::Done { completion, .. } => completion,
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, id: u16) {
        let id = ControllerId(id);
        if let Closed::Ending(queues) = self.registry.end(id) {
            for queue in queues {
                self.registry.closed(id, queue);
            }
        }
        assert!(self.registry.controller(id).is_none());
    }
}

#[test]
fn hosts_are_granted_what_is_left_and_then_they_wait() {
    let mut many = Many::new(Some((10, 6)), |_| ());
    let first = many.admin(1).unwrap();
    assert_eq!(many.ask(first, 64), 4, "what a controller may have");
    let second = many.admin(2).unwrap();
    assert_eq!(many.ask(second, 4), 2, "two places are left");
    assert_eq!(many.admin(3), Err(BUSY));
    // What was granted is there, in any order; more is not.
    for qid in [2, 1] {
        assert_eq!(many.io(2, second, qid), Ok(()));
    }
    for qid in [4, 3, 2, 1] {
        assert_eq!(many.io(1, first, qid), Ok(()));
    }
    assert_eq!(
        many.io(2, second, 3),
        Err(Status::CONNECT_INVALID_PARAMETERS.dnr())
    );
    many.end(first);
    let third = many.admin(3).unwrap();
    assert_eq!(many.ask(third, 3), 3);
    let fourth = many.admin(4).unwrap();
    assert_eq!(many.ask(fourth, 4), 1);
    assert_eq!(many.admin(5), Err(BUSY));
}

/// A host that has asked for nothing has one place, and no more than are left once the others have theirs.
#[test]
fn queues_that_nobody_asked_for_take_what_is_left() {
    let mut many = Many::new(Some((10, 5)), |_| ());
    let (silent, other) = (many.admin(1).unwrap(), many.admin(2).unwrap());
    assert_eq!(many.io(1, silent, 2), Ok(()));
    assert_eq!(many.ask(other, 4), 3);
    assert_eq!(many.io(1, silent, 3), Err(BUSY));
    assert_eq!(many.io(1, silent, 1), Ok(()));
    for qid in 1..=3 {
        assert_eq!(many.io(2, other, qid), Ok(()));
    }
}

/// A reset gives back what was granted; the host asks again and gets what is left then.
#[test]
fn a_reset_gives_back_what_was_granted() {
    let mut many = Many::new(Some((10, 6)), |_| ());
    let first = many.admin(1).unwrap();
    assert_eq!(many.ask(first, 4), 4);
    let second = many.admin(2).unwrap();
    assert_eq!(many.ask(second, 4), 2);
    many.set_cc(first, 0x0046_0000);
    let resetting = many.registry.controller_mut(ControllerId(first));
    assert_eq!(resetting.unwrap().reset_complete(), Effect::None);
    assert_eq!(many.ask(second, 4), 4);
    many.set_cc(first, 0x0046_0001);
    assert_eq!(many.ask(first, 4), 2);
}

/// Many hosts of one queue each have as many places as few hosts of many.
#[test]
fn every_place_is_given_out_however_small_the_hosts_are() {
    let mut many = Many::new(Some((10, 6)), |_| ());
    let ids: Vec<u16> = (1..=6).map(|host| many.admin(host).unwrap()).collect();
    for (host, id) in (1..).zip(&ids) {
        assert_eq!(many.ask(*id, 1), 1);
        assert_eq!(many.io(host, *id, 1), Ok(()));
    }
    assert_eq!(many.admin(7), Err(BUSY));
    many.end(ids[3]);
    assert!(many.admin(7).is_ok());
}

/// The limits of one host hold for what it is granted, and another host is not concerned.
#[test]
fn a_hosts_controllers_share_its_queues() {
    for change in [
        (|limits| limits.io_queues_per_host_max = 5) as fn(&mut ControllerLimits),
        // Two admin queues with them.
        |limits| limits.connections_per_host_max = 7,
    ] {
        let mut many = Many::new(None, change);
        let (first, second) = (many.admin(1).unwrap(), many.admin(1).unwrap());
        assert_eq!(many.ask(first, 4), 4);
        assert_eq!(many.ask(second, 4), 1);
        assert_eq!(many.admin(1), Err(BUSY));
        let other = many.admin(2).unwrap();
        assert_eq!(many.ask(other, 4), 4);
    }
}

/// Admin queues have places of their own, discovery's among them.
#[test]
fn admin_queues_are_bounded() {
    let mut many = Many::new(Some((2, 100)), |_| ());
    let discovery = many.connect(1, 0, 0xFFFF, DISCOVERY).unwrap();
    many.admin(1).unwrap();
    assert_eq!(many.admin(2), Err(BUSY));
    assert_eq!(many.connect(2, 0, 0xFFFF, DISCOVERY), Err(BUSY));
    many.end(discovery);
    assert!(many.admin(2).is_ok());
}

/// PCIe functions and hosts of fabrics have one room: none is granted what another has, and none that was granted lacks its place.
#[test]
fn functions_share_the_places() {
    let none_such = Status::INVALID_QUEUE_ID.dnr();
    let mut many = Many::new(Some((10, 6)), |_| ());
    let host = many.admin(1).unwrap();
    assert_eq!(many.ask(host, 4), 4);
    let function = many.function(0).unwrap();
    assert_eq!(many.ask(function, 4), 2, "two places are left");
    assert_eq!((many.admin(2), many.function(1)), (Err(BUSY), Err(BUSY)));
    for qid in [1, 2] {
        assert_eq!(many.create(function, qid), Ok(()));
    }
    assert_eq!(many.create(function, 3), Err(none_such));
    for qid in 1..=4 {
        assert_eq!(many.io(1, host, qid), Ok(()));
    }
    many.end(host);
    // One that has asked for nothing has one place, and what is left.
    let silent = many.function(1).unwrap();
    let other = many.admin(2).unwrap();
    assert_eq!(many.ask(other, 4), 3);
    assert_eq!(many.create(silent, 2), Err(none_such));
    assert_eq!(many.create(silent, 1), Ok(()));
    for qid in 1..=3 {
        assert_eq!(many.io(2, other, qid), Ok(()));
    }
    many.end(function);
    assert!(many.function(0).is_ok());
    many.registry.check_roll();
}

/// Hosts that come over a network take no place of this machine's own functions, however many they are and whatever they ask for.
#[test]
fn places_are_kept_for_functions() {
    let mut many = Many::new(Some((2, 6)), |_| ());
    let places = QueuePlaces {
        admin_queues: 2,
        io_queues: 6,
        functions: 2,
    };
    many.registry.set_queue_places(places);
    let host = many.admin(1).unwrap();
    assert_eq!(many.ask(host, 4), 4);
    assert_eq!(many.admin(2), Err(BUSY), "one of each function is kept");
    // Nor does the first function take the other's.
    let first = many.function(0).unwrap();
    assert_eq!(many.ask(first, 4), 1);
    let second = many.function(1).unwrap();
    assert_eq!(many.ask(second, 4), 1);
    assert_eq!(many.function(2), Err(BUSY), "more than there may be");
    many.end(host);
    // What nobody else has, they have; and one of what is let go of is kept.
    assert_eq!(many.ask(first, 4), 4);
    assert_eq!(many.ask(second, 4), 2);
    many.end(second);
    let host = many.admin(1).unwrap();
    assert_eq!(many.ask(host, 4), 1);
    assert!(many.function(1).is_ok());
    assert_eq!(many.admin(2), Err(BUSY), "there is no I/O queue for it");
    // Admin queues of functions are none of those that come over fabrics.
    many.end(first);
    assert!(many.admin(2).is_ok());
    many.registry.check_roll();
}

/// A function that is reset gives back what it was granted at once, also where its queues were deleted before.
#[test]
fn a_functions_reset_gives_back_what_was_granted() {
    let mut many = Many::new(Some((10, 4)), |_| ());
    let function = many.function(0).unwrap();
    assert_eq!(many.ask(function, 4), 4);
    for qid in 1..=4 {
        assert_eq!(many.create(function, qid), Ok(()));
    }
    for qid in 1..=4 {
        many.registry.closed(ControllerId(function), QueueId(qid));
    }
    assert_eq!(many.admin(1), Err(BUSY));
    assert_eq!(many.write_cc(function, 0x0046_0000), Effect::Reset);
    many.registry.check_roll();
    let host = many.admin(1).unwrap();
    assert_eq!(many.ask(host, 4), 3);
}

/// Whatever hosts do, in whatever order: the roll has what a look at all of them would find.
#[test]
fn the_roll_is_true_of_everybody() {
    let mut many = Many::new(Some((12, 30)), |_| ());
    // Controllers and their hosts.
    let mut there: Vec<(u16, u8)> = Vec::new();
    let mut random = 7_u64;
    for _ in 0..5_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (what, which) = (random >> 33, usize::try_from(random >> 40).unwrap());
        let host = u8::try_from(which % 9).unwrap();
        let one = there.get(which % there.len().max(1)).copied();
        match (what % 8, one) {
            (0 | 1, _) | (_, None) => there.extend(many.admin(host).ok().map(|id| (id, host))),
            (2, _) if which % 2 == 0 => {
                there.extend(many.function(host).ok().map(|id| (id, host)));
            }
            (2, _) => {
                let id = many.connect(host, 0, 0xFFFF, DISCOVERY).ok();
                there.extend(id.map(|id| (id, host)));
            }
            (3, Some((id, host))) => {
                let qid = u16::try_from(which % 5 + 1).unwrap();
                let _answered = many.io(host, id, qid);
                let _created = many.create(id, qid);
            }
            (4, Some((id, _))) => {
                let id = ControllerId(id);
                let queue = QueueId(u16::try_from(which % 5 + 1).unwrap());
                many.registry.closed(id, queue);
            }
            (5, Some((id, _))) => {
                let controller = many.registry.controller(ControllerId(id)).unwrap();
                let (is_fabric, cc) = (
                    controller.transport().is_fabric(),
                    [0x0046_0000, 0x0046_0001][which % 2],
                );
                match is_fabric {
                    true => many.set_cc(id, cc),
                    false => drop(many.write_cc(id, cc)),
                }
            }
            (6, Some((id, _))) => {
                let kato_ms = [0, 1_000, 120_000][which % 3];
                let controller = many.registry.controller(ControllerId(id));
                let controller = controller.unwrap();
                match controller.transport().is_fabric() {
                    _ if !controller.ready() => {}
                    true => drop(many.run(id, &command(0x09, 0, 0x0F, kato_ms))),
                    // Refused where it has queues.
                    false => drop(many.try_ask(id, 4)),
                }
            }
            (_, Some((id, _))) => {
                many.end(id);
                there.retain(|(other, _)| *other != id);
            }
        }
        many.registry.check_roll();
    }
}

/// A cluster whose switch is gone: each of its controllers expires once.
#[test]
fn all_hosts_expire_at_once() {
    let mut many = Many::new(None, |limits| {
        limits.controllers_per_host_max = 1024;
        limits.io_queues_per_host_max = 1024;
        limits.connections_per_host_max = 2048;
    });
    let ids: Vec<u16> = (0..1000).map(|_| many.admin(1).unwrap()).collect();
    let deadline = many.registry.deadline().unwrap();
    let mut expired = Vec::new();
    while let Some(id) = many.registry.next_expired(deadline) {
        expired.push(id.0);
        many.end(id.0);
    }
    assert_eq!(expired, ids);
    assert_eq!(many.registry.deadline(), None);
    many.registry.check_roll();
}
