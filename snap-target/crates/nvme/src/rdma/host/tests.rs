#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

use nvme_spec::command::SglId;
use nvme_spec::rdma::RejectStatus;
use nvme_spec::{IoOpcode, Status, U32};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;

const DEPTH: u16 = 4;
const TIMEOUT: Duration = Duration::from_secs(8);

fn options() -> HostOptions {
    HostOptions {
        qid: QueueId(3),
        cntlid: 7,
        depth: DEPTH,
        in_capsule_bytes_max: 4096,
        command_timeout: TIMEOUT,
    }
}

fn accept(crqsize: u16) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[2..4].copy_from_slice(&crqsize.to_le_bytes());
    bytes
}

fn ready() -> Connection {
    let mut connection = Connection::new(options());
    connection.accepted(&accept(DEPTH)).unwrap();
    connection
}

fn command(transfer: Transfer) -> Command {
    let opcode = match transfer {
        Transfer::Out(_) => IoOpcode::WRITE,
        _ => IoOpcode::READ,
    };
    let sqe = Sqe {
        opcode: opcode.0,
        ..Sqe::ZERO
    };
    Command { sqe, transfer }
}

fn window(slot: Slot) -> Grant {
    Grant {
        address: 0x1000 * u64::from(slot.0),
        key: 0x0100 + u32::from(slot.0),
        lasts: Lasts::AsTheCommand,
    }
}

fn answer(sqe: &Sqe) -> [u8; RESPONSE_BYTES] {
    let mut bytes = [0; RESPONSE_BYTES];
    bytes[12..14].copy_from_slice(&sqe.cid.get().to_le_bytes());
    bytes
}

/// A command that was handed out, and its entry.
fn sent(connection: &mut Connection, transfer: Transfer) -> (Slot, Sqe) {
    let slot = connection.submit(&command(transfer), Time::ZERO).unwrap();
    assert_eq!(connection.next_capsule().unwrap().slot, slot);
    let sqe = connection.send(slot, Some(window(slot))).unwrap();
    (slot, sqe)
}

fn completed(connection: &mut Connection) -> Option<(Slot, Status)> {
    match connection.next_event()? {
        Event::Completed { slot, cqe } => Some((slot, cqe.status())),
        Event::Fatal(error) => panic!("{error}"),
    }
}

fn fatal(connection: &mut Connection) -> HostError {
    match connection.next_event() {
        Some(Event::Fatal(error)) => error,
        other => panic!("the connection is to end: {other:?}"),
    }
}

#[test]
fn the_request_says_what_the_queue_is() {
    let request = Connection::new(options()).request();
    // RECFMT 0, QID 3, HRQSIZE 4, HSQSIZE 4 (zero-based: five entries), CNTLID 7.
    let mut expected = [0; 32];
    expected[..10].copy_from_slice(&[0, 0, 3, 0, 4, 0, 4, 0, 7, 0]);
    assert_eq!(request.as_bytes(), expected);
}

#[test]
fn nothing_is_taken_before_the_controller_accepted() {
    let mut connection = Connection::new(options());
    assert_eq!(connection.room(), 0);
    let early = connection.submit(&command(Transfer::None), Time::ZERO);
    assert_eq!(early, Err(SubmitError::NotReady));
    connection.accepted(&accept(1)).unwrap();
    assert_eq!(connection.room(), usize::from(DEPTH));
}

#[test]
fn an_acceptance_that_is_none_ends_the_connection() {
    let mut other_format = accept(4);
    other_format[0] = 1;
    let cases: [(&[u8], HostError); 4] = [
        (&[], HostError::AcceptLength(0)),
        (&accept(4)[..31], HostError::AcceptLength(31)),
        (&other_format, HostError::AcceptFormat(1)),
        (&accept(0), HostError::NoReceives),
    ];
    for (private_data, error) in cases {
        let mut connection = Connection::new(options());
        assert_eq!(connection.accepted(private_data), Err(error));
        assert_eq!(fatal(&mut connection), error);
        let late = connection.submit(&command(Transfer::None), Time::ZERO);
        assert_eq!(late, Err(SubmitError::Closed));
    }
    // What is behind the 32 bytes is padding.
    let mut connection = Connection::new(options());
    let mut padded = accept(4).to_vec();
    padded.resize(196, 0);
    assert_eq!(connection.accepted(&padded), Ok(()));
    assert_eq!(connection.accepted(&padded), Err(HostError::AcceptedTwice));
}

#[test]
fn every_refusal_has_its_words() {
    let mut words = std::collections::BTreeSet::new();
    for status in 1..=10 {
        let mut connection = Connection::new(options());
        let error = connection.rejected(&[0, 0, status, 0]);
        assert_eq!(error, HostError::Rejected(RejectStatus(status.into())));
        assert!(words.insert(error.to_string()), "{error}");
        assert_eq!(fatal(&mut connection), error);
    }
    for private_data in [&[] as &[u8], &[0, 0, 1], &[1, 0, 1, 0], &[0; 148]] {
        let error = Connection::new(options()).rejected(private_data);
        assert_eq!(error, HostError::RejectedWithoutWord);
    }
}

#[test]
fn each_kind_of_data_has_its_descriptor() {
    let mut connection = ready();
    let (_, none) = sent(&mut connection, Transfer::None);
    assert_eq!(none.dptr.as_bytes(), {
        let mut bytes = [0; 16];
        bytes[15] = 0x40;
        bytes
    });
    let (_, small) = sent(&mut connection, Transfer::Out(4096));
    assert_eq!(small.dptr.id(), SglId::IN_CAPSULE_OFFSET);
    assert_eq!(
        (small.dptr.address.get(), small.dptr.length.get()),
        (0, 4096)
    );
    let (slot, large) = sent(&mut connection, Transfer::Out(4097));
    let block: KeyedDataBlock = zerocopy::transmute!(large.dptr);
    assert_eq!(block.address.get(), window(slot).address);
    assert_eq!((block.bytes(), block.key()), (4097, window(slot).key));
    assert!(block.invalidates());
    assert_eq!(large.flags, 0x40);
    let slot = connection
        .submit(&command(Transfer::In(512)), Time::ZERO)
        .unwrap();
    assert!(connection.send(slot, None).is_none(), "it needs memory");
    let lasting = Grant {
        lasts: Lasts::AsTheConnection,
        ..window(slot)
    };
    let read = connection.send(slot, Some(lasting)).unwrap();
    let block: KeyedDataBlock = zerocopy::transmute!(read.dptr);
    assert_eq!((block.bytes(), block.invalidates()), (512, false));
}

#[test]
fn capsules_of_the_admin_queue_have_no_data() {
    let mut connection = Connection::new(HostOptions {
        qid: QueueId::ADMIN,
        ..options()
    });
    connection.accepted(&accept(DEPTH)).unwrap();
    connection
        .submit(&command(Transfer::Out(1024)), Time::ZERO)
        .unwrap();
    let next = connection.next_capsule().unwrap();
    assert_eq!(next.data, CapsuleData::Read(1024));
}

#[test]
fn what_is_longer_than_a_keyed_block_is_refused() {
    let mut connection = ready();
    let longest = command(Transfer::In(KEYED_BYTES_MAX));
    assert!(connection.submit(&longest, Time::ZERO).is_ok());
    let longer = command(Transfer::In(KEYED_BYTES_MAX + 1));
    assert_eq!(
        connection.submit(&longer, Time::ZERO),
        Err(SubmitError::TooLong(KEYED_BYTES_MAX + 1))
    );
}

/// A command ends when it is answered, sent and its key dead, in every order.
#[test]
fn a_command_ends_when_nothing_reaches_its_memory() {
    for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0]] {
        let mut connection = ready();
        let (slot, sqe) = sent(&mut connection, Transfer::In(4096));
        for step in order {
            assert_eq!(completed(&mut connection), None, "{order:?} before {step}");
            match step {
                0 => connection.sent(slot),
                1 => connection.response(&answer(&sqe), None),
                _ => {
                    let asked = connection.next_invalidation();
                    assert_eq!(asked, Some((slot, window(slot).key)));
                    connection.invalidated(slot);
                }
            }
        }
        assert_eq!(completed(&mut connection), Some((slot, Status::SUCCESS)));
        assert_eq!(connection.next_invalidation(), None);
        assert_eq!(connection.outstanding(), 0);
    }
}

#[test]
fn a_key_that_the_controller_took_back_is_not_taken_back_again() {
    let mut connection = ready();
    let (slot, sqe) = sent(&mut connection, Transfer::In(4096));
    connection.response(&answer(&sqe), Some(window(slot).key));
    assert_eq!(connection.next_invalidation(), None);
    assert_eq!(completed(&mut connection), None, "its Send is not done");
    connection.sent(slot);
    assert_eq!(completed(&mut connection), Some((slot, Status::SUCCESS)));
}

#[test]
fn what_is_no_answer_ends_the_connection() {
    type Hostile = fn(&mut Connection, Slot, &Sqe);
    let cases: [(Hostile, &str); 7] = [
        (
            |it, _, sqe| it.response(&answer(sqe)[..15], None),
            "15 bytes",
        ),
        (
            |it, _, sqe| it.response(&[&answer(sqe)[..], &[0]].concat(), None),
            "17 bytes",
        ),
        (|it, _, _| it.response(&[], None), "0 bytes"),
        (
            |it, _, sqe| {
                let mut other = *sqe;
                other.cid = U16::new(sqe.cid.get() ^ 1);
                it.response(&answer(&other), None);
            },
            "not outstanding",
        ),
        (
            |it, slot, sqe| {
                it.response(&answer(sqe), Some(window(slot).key));
                it.response(&answer(sqe), None);
            },
            "not outstanding",
        ),
        (
            |it, slot, sqe| it.response(&answer(sqe), Some(window(slot).key ^ 1)),
            "is not that command's",
        ),
        (
            // The identifier of the slot's next use.
            |it, _, sqe| {
                let mut next = *sqe;
                next.cid = U16::new(sqe.cid.get().wrapping_add(1 << 10));
                it.response(&answer(&next), None);
            },
            "not outstanding",
        ),
    ];
    for (hostile, words) in cases {
        let mut connection = ready();
        let (slot, sqe) = sent(&mut connection, Transfer::In(4096));
        hostile(&mut connection, slot, &sqe);
        let error = fatal(&mut connection).to_string();
        assert!(error.contains(words), "{error}");
        // Nothing is interpreted any more.
        connection.sent(slot);
        connection.response(&answer(&sqe), Some(window(slot).key));
        assert_eq!(connection.next_event(), None);
        assert_eq!(connection.room(), 0);
    }
}

#[test]
fn a_key_that_no_command_has_is_foreign() {
    let mut connection = ready();
    let (slot, sqe) = sent(&mut connection, Transfer::Out(512));
    connection.response(&answer(&sqe), Some(window(slot).key));
    let foreign = HostError::ForeignKey {
        cid: Cid(sqe.cid.get()),
        key: window(slot).key,
    };
    assert_eq!(fatal(&mut connection), foreign);
}

#[test]
fn no_more_commands_are_on_their_way_than_the_controller_has_receives() {
    let mut connection = Connection::new(options());
    connection.accepted(&accept(2)).unwrap();
    let slots: Vec<Slot> = (0..DEPTH)
        .map(|_| {
            connection
                .submit(&command(Transfer::None), Time::ZERO)
                .unwrap()
        })
        .collect();
    let first = connection.send(slots[0], None).unwrap();
    connection.send(slots[1], None).unwrap();
    assert_eq!(connection.next_capsule(), None);
    assert!(connection.send(slots[2], None).is_none());
    connection.sent(slots[0]);
    assert_eq!(
        connection.next_capsule(),
        None,
        "a Send that is done is no receive"
    );
    connection.response(&answer(&first), None);
    assert_eq!(connection.next_capsule().unwrap().slot, slots[2]);
}

#[test]
fn a_command_that_did_not_leave_is_taken_back() {
    let mut connection = ready();
    let (first, _) = sent(&mut connection, Transfer::In(512));
    let second = connection
        .submit(&command(Transfer::In(512)), Time::ZERO)
        .unwrap();
    assert!(!connection.withdraw(first), "it left");
    assert!(connection.withdraw(second));
    assert!(!connection.withdraw(second), "once");
    assert_eq!(connection.next_capsule(), None);
    assert_eq!(
        completed(&mut connection),
        Some((second, Status::HOST_ABORTED))
    );
}

#[test]
fn a_command_has_its_time_unless_it_was_given_up() {
    let mut connection = ready();
    let (slot, _) = sent(&mut connection, Transfer::In(512));
    assert_eq!(connection.deadline(), Some(Time::ZERO + TIMEOUT));
    connection.tick(Time::ZERO + (TIMEOUT - Duration::from_nanos(1)));
    assert_eq!(connection.next_event(), None);
    assert!(connection.abandon(slot));
    connection.tick(Time::ZERO + TIMEOUT);
    assert_eq!(connection.next_event(), None);
    let (_, sqe) = sent(&mut connection, Transfer::In(512));
    connection.tick(Time::ZERO + TIMEOUT);
    let error = HostError::CommandTimeout {
        cid: Cid(sqe.cid.get()),
        after: TIMEOUT,
    };
    assert_eq!(fatal(&mut connection), error);
}

/// A command on its way, as a model sees it.
#[derive(Clone, Debug)]
struct Modelled {
    slot: Slot,
    sqe: Sqe,
    is_sent: bool,
    is_answered: bool,
    has_key: bool,
    result: u32,
}

impl Modelled {
    fn is_done(&self) -> bool {
        self.is_sent && self.is_answered && !self.has_key
    }
}

proptest! {
    /// Whatever order sends, answers and invalidations come in: each command ends once, with its own answer, not before all three, and in the end every slot is free.
    #[test]
    fn every_command_ends_once_with_its_own_answer(crqsize in 1_u16..6, choices in prop::collection::vec(any::<(u8, u8)>(), 1..400)) {
        let mut connection = Connection::new(options());
        connection.accepted(&accept(crqsize)).unwrap();
        let mut flying: Vec<Modelled> = Vec::new();
        let mut results = 0_u32;
        for (what, which) in choices.into_iter().chain((0..64).map(|at| (1 + at % 3, at))) {
            let at = usize::from(which) % flying.len().max(1);
            match what % 4 {
                0 => {
                    let transfer = [Transfer::None, Transfer::In(512), Transfer::Out(8192), Transfer::Out(512)];
                    let transfer = transfer[usize::from(which % 4)];
                    let before = connection.outstanding();
                    let taken = connection.submit(&command(transfer), Time::ZERO);
                    prop_assert_eq!(taken.err(), (before == usize::from(DEPTH)).then_some(SubmitError::Full));
                }
                1 => if let Some(it) = flying.get_mut(at).filter(|it| !it.is_sent) {
                    it.is_sent = true;
                    connection.sent(it.slot);
                },
                2 => if let Some(it) = flying.get_mut(at).filter(|it| !it.is_answered) {
                    it.is_answered = true;
                    results += 1;
                    it.result = results;
                    let mut cqe = answer(&it.sqe);
                    cqe[..4].copy_from_slice(U32::new(results).as_bytes());
                    let takes_key = it.has_key && which.is_multiple_of(2);
                    it.has_key &= !takes_key;
                    connection.response(&cqe, takes_key.then(|| window(it.slot).key));
                },
                _ => if let Some((slot, key)) = connection.next_invalidation() {
                    let it = flying.iter_mut().find(|it| it.slot == slot).unwrap();
                    prop_assert!(it.is_answered && it.has_key);
                    prop_assert_eq!(key, window(slot).key);
                    it.has_key = false;
                    connection.invalidated(slot);
                },
            }
            while let Some(event) = connection.next_event() {
                let Event::Completed { slot, cqe } = event else { panic!("{event:?}") };
                let at = flying.iter().position(|it| it.slot == slot).unwrap();
                let it = flying.swap_remove(at);
                prop_assert!(it.is_done());
                prop_assert_eq!(cqe.dw0.get(), it.result);
            }
            prop_assert!(!flying.iter().any(Modelled::is_done));
            while let Some(next) = connection.next_capsule() {
                let sqe = connection.send(next.slot, Some(window(next.slot))).unwrap();
                let has_key = matches!(next.data, CapsuleData::Read(_) | CapsuleData::Written(_));
                flying.push(Modelled { slot: next.slot, sqe, is_sent: false, is_answered: false, has_key, result: 0 });
            }
            let unanswered = flying.iter().filter(|it| !it.is_answered).count();
            prop_assert!(unanswered <= usize::from(crqsize));
        }
    }
}
