//! Random programs of requests on two ends, against a model that knows nothing of packets: what each request does to memory, in order, and the first one that fails.

use std::time::Duration;

use proptest::prelude::*;
use verbs::memory::Link;
use verbs::{ConnectParameters, Gather, Opcode, Operation, SendRequest, Status, WrId};

use crate::ends::{MEMORY_BYTES, Net};

/// What one request does, in bytes of both memories.
#[derive(Clone, Debug)]
enum Step {
    Send {
        from: usize,
        len: usize,
        room: usize,
    },
    Write {
        from: usize,
        to: usize,
        len: usize,
        beyond: bool,
    },
    Read {
        from: usize,
        to: usize,
        len: usize,
        beyond: bool,
    },
}

#[derive(Clone, Debug)]
struct Program {
    steps: Vec<(Step, bool, bool)>,
    seed: u64,
    link: Link,
    depth: u8,
}

/// Requests work on the lower half of each memory; receives have the upper half, a slot each.
const HALF: usize = MEMORY_BYTES / 2;
const SLOT: usize = HALF / 64;

fn step() -> impl Strategy<Value = Step> {
    let place = 0..HALF - SLOT;
    let len = 0..SLOT;
    prop_oneof![
        6 => (place.clone(), len.clone(), prop::bool::weighted(0.02)).prop_map(|(from, len, short)| Step::Send {
            from,
            len,
            room: if short { len / 2 } else { SLOT },
        }),
        6 => (place.clone(), place.clone(), len.clone(), prop::bool::weighted(0.02)).prop_map(|(from, to, len, beyond)| Step::Write { from, to, len, beyond }),
        6 => (place.clone(), place, len, prop::bool::weighted(0.02)).prop_map(|(from, to, len, beyond)| Step::Read { from, to, len, beyond }),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let steps = prop::collection::vec((step(), any::<bool>(), prop::bool::weighted(0.8)), 1..60);
    let link = (0_u64..300, 0_u32..100_000, 0_u32..100_000).prop_map(
        |(jitter, lost_ppm, duplicated_ppm)| Link {
            delay: Duration::from_micros(20),
            jitter: Duration::from_micros(jitter),
            lost_ppm,
            duplicated_ppm,
            cut: false,
        },
    );
    (steps, any::<u64>(), link, 1_u8..16).prop_map(|(steps, seed, link, depth)| Program {
        steps,
        seed,
        link,
        depth,
    })
}

/// What must come of a program: both memories, and the failing request with what its sender and its receiver hear.
struct Model {
    here: Vec<u8>,
    there: Vec<u8>,
    failure: Option<(usize, Status, Option<Status>)>,
    /// Lengths of the messages that arrived.
    received: Vec<usize>,
}

fn model(steps: &[(Step, bool, bool)], here: Vec<u8>, there: Vec<u8>) -> Model {
    let mut model = Model {
        here,
        there,
        failure: None,
        received: Vec::new(),
    };
    for (at, (step, ..)) in steps.iter().enumerate() {
        match *step {
            Step::Send { from, len, room } if len <= room => {
                let slot = HALF + model.received.len() * SLOT;
                model.there[slot..slot + len].copy_from_slice(&model.here[from..from + len]);
                model.received.push(len);
            }
            Step::Send { .. } => {
                model.failure = Some((at, Status::RemoteInvalidRequest, Some(Status::LocalLength)))
            }
            Step::Write {
                len, beyond: true, ..
            }
            | Step::Read {
                len, beyond: true, ..
            } if len > 0 => {
                model.failure = Some((at, Status::RemoteAccess, None));
            }
            Step::Write { from, to, len, .. } => {
                model.there[to..to + len].copy_from_slice(&model.here[from..from + len]);
            }
            Step::Read { from, to, len, .. } => {
                model.here[to..to + len].copy_from_slice(&model.there[from..from + len]);
            }
        }
        if model.failure.is_some() {
            break;
        }
    }
    model
}

fn content(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..MEMORY_BYTES / 8).flat_map(|_| next()).collect()
}

fn check(program: &Program) {
    let net = Net::new(program.seed);
    let parameters = ConnectParameters {
        responder_resources: program.depth,
        initiator_depth: program.depth,
        ..ConnectParameters::default()
    };
    let [here, there] = net.pair_with(&parameters, 256);
    let (mine, yours) = (content(program.seed), content(!program.seed));
    here.memory.copy_in(0, &mine).unwrap();
    there.memory.copy_in(0, &yours).unwrap();
    net.fabric.set_links(program.link);
    let mut receives = 0;
    for (step, ..) in &program.steps {
        if let Step::Send { room, .. } = step {
            let entry = there.entry(HALF + receives * SLOT, u32::try_from(*room).unwrap());
            there.receive(receives as u64, &[entry]);
            receives += 1;
        }
    }
    for (at, (step, signaled, fence)) in program.steps.iter().enumerate() {
        let entry = |at: usize, len: usize| [here.entry(at, u32::try_from(len).unwrap())];
        let beyond = |to: usize, len: usize, beyond: bool| {
            there.remote(if beyond { MEMORY_BYTES - len / 2 } else { to })
        };
        let (entries, remote) = match *step {
            Step::Send { from, len, .. } => (entry(from, len), there.remote(0)),
            Step::Write {
                from,
                to,
                len,
                beyond: is,
            } => (entry(from, len), beyond(to, len, is)),
            Step::Read {
                from,
                to,
                len,
                beyond: is,
            } => (entry(to, len), beyond(from, len, is)),
        };
        let gather = Gather::Entries(&entries);
        let operation = match step {
            Step::Send { .. } => Operation::Send {
                gather,
                invalidate: None,
                solicited: false,
            },
            Step::Write { .. } => Operation::Write { gather, remote },
            Step::Read { .. } => Operation::Read {
                entries: &entries,
                remote,
            },
        };
        // Without a fence what follows a read may be sent before the read is done: no model says with which bytes.
        let request = SendRequest {
            id: WrId(at as u64),
            operation,
            signaled: *signaled,
            fence: true,
        };
        here.qp.post_send(&[request]).unwrap();
        if !fence {
            // Time passes between some posts.
            net.fabric.advance(Duration::from_micros(50));
        }
    }
    net.settle();
    let wanted = model(&program.steps, mine, yours);
    compare(program, &wanted, &here.polled(), &there.polled());
    assert!(
        here.bytes(0, MEMORY_BYTES) == wanted.here,
        "memory of the sending end"
    );
    assert!(
        there.bytes(0, MEMORY_BYTES) == wanted.there,
        "memory of the receiving end"
    );
}

fn compare(
    program: &Program,
    wanted: &Model,
    here: &[verbs::Completion],
    there: &[verbs::Completion],
) {
    let failed_at = wanted.failure.map_or(usize::MAX, |(at, ..)| at);
    let failure = here
        .iter()
        .find_map(|completion| Some((completion.id.0, completion.result.err()?.status)));
    let stopped_at = failure.map_or(usize::MAX, |(id, _)| usize::try_from(id).unwrap());
    match (failure, wanted.failure) {
        (None, None) => {}
        (Some((_, status)), Some((_, right, _))) if stopped_at == failed_at && status == right => {}
        // The refusal was lost, perhaps with acknowledgements before it: who refused is silent, and the sender cannot know how far it came.
        (Some((_, Status::RetryExceeded)), Some(_))
            if stopped_at <= failed_at && program.link.lost_ppm > 0 => {}
        _ => panic!("{failure:?}, not {:?}", wanted.failure),
    }
    let mut told = here.iter();
    for (at, (step, signaled, _)) in program.steps.iter().enumerate() {
        if at < stopped_at && !signaled {
            continue;
        }
        let completion = told.next().expect("a completion");
        assert_eq!(completion.id, WrId(at as u64));
        match completion.result {
            Ok(done) => {
                assert!(at < stopped_at, "request {at} must fail");
                let (opcode, bytes) = match *step {
                    Step::Send { .. } => (Opcode::Send, 0),
                    Step::Write { .. } => (Opcode::Write, 0),
                    Step::Read { len, .. } => (Opcode::Read, len),
                };
                assert_eq!((done.opcode, done.bytes as usize), (opcode, bytes));
            }
            Err(_) if at == stopped_at => {}
            Err(failed) => {
                assert!(at > stopped_at, "request {at} must succeed, but {failed:?}");
                assert_eq!(failed.status, Status::Flushed);
            }
        }
    }
    assert_eq!(told.next(), None);
    let mut told = there.iter();
    for (id, len) in (0_u64..).zip(&wanted.received) {
        let completion = told.next().expect("a receive");
        assert_eq!(completion.id, WrId(id));
        assert_eq!(completion.result.expect("received").bytes as usize, *len);
    }
    if let Some((_, _, there_status)) = wanted.failure {
        for (nth, completion) in told.enumerate() {
            let status = there_status.filter(|_| nth == 0).unwrap_or(Status::Flushed);
            assert_eq!(completion.result.expect_err("a failure").status, status);
        }
    } else {
        assert_eq!(told.next(), None);
    }
}

proptest! {
    #[test]
    fn do_what_a_model_without_packets_does(program in program()) {
        check(&program);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let net = Net::new(seed);
        let link = Link {
            jitter: Duration::from_micros(200),
            lost_ppm: 100_000,
            duplicated_ppm: 100_000,
            ..Link::default()
        };
        let [here, there] = net.pair();
        net.fabric.set_links(link);
        for id in 0..40 {
            here.write(id, &[here.entry(0, 100)], there.remote(0));
        }
        net.settle();
        (net.fabric.now(), net.fabric.counts(), here.outcomes())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).1, run(8).1);
}
