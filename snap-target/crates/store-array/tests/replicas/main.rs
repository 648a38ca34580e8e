//! Replicas: reads fail over without an error, and what is no replica is kept out.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod hung;
#[path = "../scripted/mod.rs"]
mod scripted;

use std::time::{Duration, Instant};

use nix::errno::Errno;
use reactor::buf::IoBuf;
use store::conformance;
use store::decorate::{Fault, Faulty, On, What, When};
use store::{BlockingStore, Op, OpenOptions, SharedStore, StoreError, StoreSpec, Terms, Token};
use store_array::replicas::{self, Member};

use scripted::{Bench, Scripted};

const BYTES: usize = 2 << 20;
const PATIENCE: Duration = Duration::from_millis(100);

fn content() -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    (0..BYTES as u64).map(byte).collect()
}

fn filled(content: &[u8]) -> SharedStore {
    let spec = StoreSpec::Mem {
        bytes: content.len() as u64,
    };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let mut blocking = BlockingStore::new(&store).unwrap();
    for (part, bytes) in content.chunks(1 << 20).enumerate() {
        blocking.write((part as u64) << 20, bytes).unwrap();
    }
    drop(blocking);
    store
}

fn member(store: SharedStore) -> Member {
    Member {
        name: store.name().to_owned(),
        store: Ok(store),
    }
}

fn replicas(stores: Vec<SharedStore>) -> SharedStore {
    replicas::open(stores.into_iter().map(member).collect(), PATIENCE).unwrap()
}

/// Every read of these bytes fails, but for those of the beginning and the end.
fn failing(inner: SharedStore, what: What) -> Faulty {
    let fault = Fault {
        on: On::Read,
        range: 64 << 10..1 << 20,
        when: When::Always,
        what,
    };
    Faulty::over(vec![fault], inner).unwrap()
}

#[test]
fn they_are_a_store_as_any_other() {
    let content = content();
    conformance::run_read_only(
        || replicas(vec![filled(&content), filled(&content), filled(&content)]),
        &content,
    );
}

/// A replica of which each sector of the first megabyte behind the first 64 KiB is wrong.
fn wrong(content: &[u8]) -> SharedStore {
    let faults = (64 << 10..1 << 20).step_by(512).map(|at| Fault {
        on: On::Read,
        range: at..at + 512,
        when: When::Always,
        what: What::Corrupt {
            offset: at + 8,
            bits: 1,
        },
    });
    let faulty = Faulty::over(faults.collect(), filled(content)).unwrap();
    faulty.store()
}

/// Wherever the right one stands behind a wrong one; through what stands around replicas, too.
#[test]
fn wrong_copies_are_passed_over() {
    let content = content();
    for count in [2, 3, 16] {
        for right in [1, count / 2, count - 1] {
            let open = || {
                let copies = (0..count).map(|at| match at == right {
                    true => filled(&content),
                    false => wrong(&content),
                });
                replicas(copies.collect())
            };
            let others = u32::try_from(count - 1).unwrap();
            conformance::run_wrong_copies(open, &content, others);
            if count == 3 {
                let behind = || Faulty::over(Vec::new(), open()).unwrap().store();
                conformance::run_wrong_copies(behind, &content, others);
            }
        }
    }
}

#[test]
fn a_read_that_fails_is_answered_by_another() {
    let content = content();
    for what in [
        What::Error(Errno::EIO),
        What::Unreachable {
            retry_after_ms: None,
        },
    ] {
        let faulty = failing(filled(&content), what);
        let store = replicas(vec![faulty.store(), filled(&content)]);
        let mut blocking = BlockingStore::new(&store).unwrap();
        let mut read = vec![0; 4096];
        for offset in (64 << 10..1 << 20).step_by(4096) {
            blocking.read(offset as u64, &mut read).unwrap();
            assert!(read == content[offset..offset + 4096], "{offset}");
        }
        // It was asked once, and rests since.
        assert_eq!(faulty.strikes(0), 1);
        let [problem] = &store.problems()[..] else {
            panic!("{:?}", store.problems())
        };
        assert!(
            problem.text.contains("is asked after the others"),
            "{problem:?}"
        );
    }
}

/// One that says nothing: the read is recalled, and another answers it, well within a second.
#[test]
fn a_read_that_is_not_answered_is_given_to_another() {
    let content = content();
    let silent = Scripted::new(filled(&content), usize::MAX, usize::MAX);
    let store = replicas(vec![silent.store(), filled(&content)]);
    silent.hold();
    let mut blocking = BlockingStore::new(&store).unwrap();
    let mut read = vec![0; 4096];
    let begun = Instant::now();
    blocking.read(1 << 20, &mut read).unwrap();
    let took = begun.elapsed();
    assert!(read == content[1 << 20..(1 << 20) + 4096]);
    assert!(
        took >= PATIENCE && took < Duration::from_secs(1),
        "{took:?}"
    );
    // From then on it is asked last.
    for offset in (64 << 10..1 << 20).step_by(4096) {
        blocking.read(offset as u64, &mut read).unwrap();
        assert!(read == content[offset..offset + 4096]);
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn where_all_fail_the_last_one_says_why() {
    let content = content();
    let stores = [
        What::Error(Errno::EIO),
        What::Unreachable {
            retry_after_ms: None,
        },
    ];
    let faulty: Vec<Faulty> = stores.map(|what| failing(filled(&content), what)).into();
    let store = replicas(faulty.iter().map(Faulty::store).collect());
    let mut blocking = BlockingStore::new(&store).unwrap();
    let error = blocking.read(64 << 10, &mut [0; 4096]).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert_eq!(
        [faulty[0].strikes(0), faulty[1].strikes(0)],
        [1, 1],
        "each once"
    );
    // What is not struck is read from either.
    let mut read = vec![0; 4096];
    blocking.read(0, &mut read).unwrap();
    assert!(read == content[..4096]);
}

#[test]
fn what_is_no_replica_is_refused() {
    let content = content();
    let differing = |at: usize| {
        let mut other = content.clone();
        other[at] ^= 1;
        filled(&other)
    };
    for (other, part) in [
        (differing(0), "they differ from byte 0 on"),
        (differing(32_767), "they differ from byte 32767 on"),
        (differing(BYTES - 4096), "they differ from byte 2093056 on"),
        (differing(BYTES - 1), "they differ from byte 2097151 on"),
        (
            filled(&content[4096..]),
            "it has 2093056 bytes in place of 2097152",
        ),
    ] {
        let members = vec![member(filled(&content)), member(other)];
        let error = replicas::open(members, PATIENCE).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// One that cannot be opened is left out, and said to be a problem; without any there is nothing.
#[test]
fn those_that_are_there_are_enough() {
    let content = content();
    let missing = || Member {
        name: "nvme+tcp://elsewhere".to_owned(),
        store: Err("connection refused".to_owned()),
    };
    let store = replicas::open(vec![missing(), member(filled(&content))], PATIENCE).unwrap();
    let problems = store.problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].text.contains("elsewhere") && problems[0].text.contains("refused"));
    let mut read = vec![0; 4096];
    BlockingStore::new(&store)
        .unwrap()
        .read(4096, &mut read)
        .unwrap();
    assert!(read == content[4096..8192]);
    let error = replicas::open(vec![missing(), missing()], PATIENCE).unwrap_err();
    assert!(
        error.to_string().starts_with("no replica is there"),
        "{error}"
    );
}

/// Replicas that serve when they are told to, and take so many reads at a time.
fn scripted_replicas(room: usize) -> (Vec<Scripted>, Bench) {
    patient_replicas(room, PATIENCE)
}

fn patient_replicas(room: usize, patience: Duration) -> (Vec<Scripted>, Bench) {
    let content = content();
    let all = [(); 2].map(|()| Scripted::new(filled(&content), room, room));
    let stores = all.iter().map(Scripted::store);
    let shared = replicas::open(stores.map(member).collect(), patience).unwrap();
    let bench = Bench::new(&shared);
    all.iter().for_each(Scripted::hold);
    (all.into(), bench)
}

#[test]
fn what_is_waited_for_finds_a_replica_before_what_is_ahead() {
    let (all, mut bench) = scripted_replicas(1);
    for (block, is_ahead) in [(0, true), (1, true), (2, true), (3, true), (4, false)] {
        bench.read(block << 12, is_ahead);
    }
    bench.store.hurry(Token(3 << 12));
    for served in 1..=5 {
        all[0].serve(1);
        bench.poll();
        if served == 5 {
            all[1].serve(1);
            bench.poll();
        }
    }
    assert_eq!(bench.done.len(), 5);
    assert_eq!(all[0].served(), [0, 3 << 12, 4 << 12, 2 << 12]);
    assert_eq!(all[1].served(), [1 << 12]);
}

#[test]
fn a_hurried_read_is_hurried_where_it_is() {
    let (all, mut bench) = scripted_replicas(3);
    for (block, is_ahead) in [(0, true), (1, true), (2, true), (3, true), (4, false)] {
        bench.read(block << 12, is_ahead);
    }
    bench.store.hurry(Token(2 << 12));
    all.iter().for_each(|member| member.serve(3));
    bench.poll();
    assert_eq!(bench.done.len(), 5);
    assert_eq!(all[0].served(), [2 << 12, 4 << 12, 0]);
    assert_eq!(all[1].served(), [1 << 12, 3 << 12]);
}

/// Half of the places is for what is waited for; a hurried read gives its place to another one ahead.
#[test]
fn what_is_ahead_leaves_room() {
    let (all, mut bench) = scripted_replicas(usize::MAX);
    assert_eq!(bench.fill(), [64, 64]);
    bench.store.hurry(Token(5 << 9));
    bench.store.hurry(Token(5 << 9));
    all.iter().for_each(|member| member.serve(64));
    bench.poll();
    assert_eq!(bench.done.len(), 128);
    bench.done.clear();
    assert_eq!(bench.fill(), [64, 64], "all are free again");
}

/// Reads blocks one after the other; which of two replicas served each.
fn servers(all: &[Scripted], bench: &mut Bench, blocks: &[u64]) -> Vec<usize> {
    let served = |member: &Scripted| member.served().len();
    let one = |block: &u64| {
        let before = served(&all[0]);
        bench.read(block << 12, false);
        all.iter().for_each(|member| member.serve(1));
        bench.poll();
        bench.done.clear();
        usize::from(served(&all[0]) == before)
    };
    blocks.iter().map(one).collect()
}

#[test]
fn after_wrong_bytes_it_is_anothers_turn() {
    let (all, mut bench) = scripted_replicas(4);
    assert_eq!(servers(&all, &mut bench, &[0, 1, 2]), [0, 0, 0]);
    assert_eq!(bench.store.doubt(1 << 12, 4096), 1, "one other copy");
    // Twice together: the turn is given on once.
    assert_eq!(bench.store.doubt(1 << 12, 4096), 1);
    assert_eq!(servers(&all, &mut bench, &[0, 1, 2, 1]), [0, 1, 0, 1]);
    // That one is wrong, too.
    assert_eq!(bench.store.doubt(1 << 12, 4096), 1);
    assert_eq!(servers(&all, &mut bench, &[1, 1]), [0, 0]);
}

/// What was read in parts from both: all of it from one, then all of it from the other.
#[test]
fn what_came_from_several_replicas_is_asked_of_each_as_a_whole() {
    let (all, mut bench) = scripted_replicas(1);
    bench.read(0, false);
    bench.read(4096, false);
    all.iter().for_each(|member| member.serve(1));
    bench.poll();
    assert_eq!((all[0].served(), all[1].served()), (vec![0], vec![4096]));
    bench.done.clear();
    bench.store.doubt(0, 8192);
    assert_eq!(servers(&all, &mut bench, &[0, 1]), [0, 0]);
    bench.store.doubt(0, 8192);
    assert_eq!(servers(&all, &mut bench, &[0, 1]), [1, 1]);
}

/// Reads that wait in a full line, each replica answering one after the other, are answered where they are, and no replica rests.
#[test]
fn a_full_line_that_moves_is_not_silence() {
    let patience = Duration::from_secs(1);
    let (all, mut bench) = patient_replicas(8, patience);
    let problems = bench.shared.clone();
    for block in 0..16 {
        bench.read(block << 12, false);
    }
    let step = patience / 4;
    for served in 1..=8 {
        bench.turn_for(step);
        all.iter().for_each(|member| member.serve(1));
        bench.poll();
        assert_eq!(bench.done.len(), 2 * served);
    }
    assert!(bench.done.iter().all(|done| done.result == Ok(4096)));
    assert_eq!(
        all[0].served(),
        [0, 2, 4, 6, 8, 10, 12, 14].map(|it| it << 12)
    );
    assert_eq!(problems.problems(), [""; 0]);
}

/// One read that its replica leaves aside while it answers others: another one has it in the end, and no replica rests.
#[test]
fn a_read_that_is_left_aside_is_given_to_another() {
    let patience = Duration::from_millis(500);
    let (all, mut bench) = patient_replicas(8, patience);
    let problems = bench.shared.clone();
    // To the first replica, ahead and so behind all others.
    bench.read(0, true);
    let begun = Instant::now();
    let mut block = 0;
    while all[1].served().iter().all(|offset| *offset != 0) {
        assert!(begun.elapsed() < 20 * patience, "it stays where it is");
        for _ in 0..2 {
            block += 1;
            bench.read(block << 12, false);
        }
        bench.turn_for(patience / 4);
        assert_eq!(problems.problems(), [""; 0]);
        // The first one serves what is waited for; the other one all that it has.
        all[0].serve(usize::from(block > 0));
        all[1].serve(8);
        bench.poll();
    }
    assert!(begun.elapsed() >= 8 * patience);
    assert_eq!(problems.problems(), [""; 0]);
}

/// What a read ends with, and how long it took; each turn tells replicas what to serve.
fn ended(bench: &mut Bench, serve: impl Fn(Duration)) -> (Result<u32, StoreError>, Duration) {
    let begun = Instant::now();
    while bench.done.is_empty() {
        bench.work_for(Duration::from_millis(10));
        serve(begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(20), "it never ends");
    }
    // What was allowed and not used is over.
    bench.poll();
    (bench.done.remove(0).result, begun.elapsed())
}

/// One that pauses is asked again where the other one says nothing either, and where that one fails.
#[test]
fn one_that_said_nothing_is_asked_again() {
    let content = content();
    let pausing = || Scripted::new(filled(&content), 8, 8);
    let silent = pausing();
    let failing = failing(filled(&content), What::Error(Errno::EIO));
    for other in [silent.store(), failing.store()] {
        let first = pausing();
        let mut bench = Bench::new(&replicas(vec![first.store(), other]));
        first.hold();
        silent.hold();
        bench.read(64 << 10, false);
        let (result, took) = ended(&mut bench, |elapsed| {
            first.serve(usize::from(elapsed >= 5 * PATIENCE));
        });
        assert_eq!(result, Ok(4096));
        assert_eq!(first.served(), [64 << 10]);
        assert!(took < 20 * PATIENCE, "{took:?}");
    }
    assert_eq!(silent.served(), [0; 0]);
}

/// Where one is known to have the bytes wrong, the other one is waited for; and if that says nothing in time, it is not the medium's fault.
#[test]
fn wrong_bytes_are_no_answer_while_another_says_nothing() {
    let (all, mut bench) = scripted_replicas(8);
    bench.read(4096, false);
    all[0].serve(1);
    bench.poll();
    assert_eq!(bench.done.remove(0).result, Ok(4096));
    bench.store.doubt(4096, 4096);
    // It would answer if it were asked.
    bench.read(4096, false);
    let (result, _) = ended(&mut bench, |elapsed| {
        all[0].serve(1);
        all[1].serve(usize::from(elapsed >= 5 * PATIENCE));
    });
    assert_eq!(result, Ok(4096));
    let terms = Terms::by(Some(Instant::now() + 5 * PATIENCE));
    let (op, buf) = (Op::Read { offset: 4096 }, IoBuf::heap(4096).unwrap());
    let taken = bench.store.submit(op, Some(buf), Token(1), terms);
    assert!(taken.is_ok());
    let (result, _) = ended(&mut bench, |_| all[0].serve(1));
    assert!(
        matches!(result, Err(StoreError::Unreachable { .. })),
        "{result:?}"
    );
    assert_eq!((all[0].served(), all[1].served()), (vec![4096], vec![4096]));
}
