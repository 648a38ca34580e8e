//! Replicas: reads fail over without an error, and what is no replica is kept out.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

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

/// A file whose server hangs keeps what it was lent: the reads that it had are answered by the other in less than a second, with nothing for the host to wait for; what
/// comes late goes nowhere.
#[test]
fn what_a_hung_file_had_is_answered_by_another() {
    let content = content();
    let hung = Scripted::new(filled(&content), usize::MAX, usize::MAX).of_a_file();
    let store = replicas(vec![hung.store(), filled(&content)]);
    assert_eq!(store.limits().cancel_bound_ms, Some(0));
    let mut bench = Bench::new(&store);
    hung.hang();
    let begun = Instant::now();
    for block in 0..4 {
        bench.read(block << 12, false);
    }
    while bench.done.len() < 4 {
        bench.poll();
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
    let had = hung.taken().len();
    assert!(had > 0, "some were with the hung one");
    let read: Vec<_> = bench.done.drain(..).collect();
    // It answers after all, into memory that is nobody's: other bytes than those that stand there, so that a write would show.
    let mut bufs = Vec::new();
    for done in read {
        let at = usize::try_from(done.token.0).unwrap();
        let mut buf = done.buf.unwrap();
        assert!(buf.to_vec() == content[at..at + 4096]);
        buf.fill(0, 4096, 0xEE);
        bufs.push(buf);
    }
    assert_eq!(store.problems().len(), 1);
    hung.serve(had);
    while !store.problems().is_empty() {
        bench.poll();
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert!(bufs.iter().all(|buf| buf.to_vec() == [0xEE; 4096]));
    assert!(bench.done.is_empty(), "nothing ends twice");
    // It is one as the other again.
    let before = hung.served().len();
    bench.read(0, false);
    hung.serve(1);
    while bench.done.is_empty() {
        bench.poll();
    }
    assert_eq!(hung.served().len(), before + 1);
}

/// A replica that is down is tried with reads of nobody's: a host's read never waits for it again, however long it is down, and when it answers it is one as the other.
#[test]
fn no_read_waits_for_a_replica_that_is_known_to_be_down() {
    let content = content();
    let down = Scripted::new(filled(&content), usize::MAX, usize::MAX);
    let store = replicas(vec![down.store(), filled(&content)]);
    let mut bench = Bench::new(&store);
    down.hold();
    let first = 300 << 12;
    bench.read(first, false);
    let begun = Instant::now();
    while bench.done.is_empty() {
        bench.poll();
    }
    assert!(begun.elapsed() >= PATIENCE, "the first one waits");
    bench.done.clear();
    // The read that it was asked to give back, and probes after 1 s and 2 s more.
    let mut block = 1;
    while down.taken().len() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        bench.read(block << 12, false);
        bench.read((block + 1) << 12, false);
        while bench.done.len() < 2 {
            bench.poll();
        }
        bench.done.clear();
        block = block % 100 + 1;
    }
    assert_eq!(down.taken(), [first, 0, 0], "probes, and no read");
    assert_eq!(store.problems().len(), 1);
    assert_eq!(down.served(), [0; 0]);
    // The next probe is answered.
    down.serve(usize::MAX);
    while !store.problems().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        bench.read(4096, false);
        while bench.done.is_empty() {
            bench.poll();
            down.serve(1);
        }
        bench.done.clear();
    }
    assert_eq!(down.served(), [0], "the probe, and no read before it");
}

/// Files that take longer than the patience, and answer: the answer counts, whoever was asked meanwhile, and nobody is asked twice.
#[test]
fn a_slow_file_is_waited_for() {
    let content = content();
    let slow =
        [(); 2].map(|()| Scripted::new(filled(&content), usize::MAX, usize::MAX).of_a_file());
    let store = replicas(slow.iter().map(Scripted::store).collect());
    let mut bench = Bench::new(&store);
    slow.iter().for_each(Scripted::hold);
    bench.read(5 << 12, false);
    bench.poll();
    bench.turn_for(6 * PATIENCE);
    for file in &slow {
        assert_eq!(file.taken(), [5 << 12], "each was asked once");
    }
    // The first one, which was said to be silent.
    slow[0].serve(1);
    let begun = Instant::now();
    while bench.done.is_empty() {
        bench.poll();
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let done = bench.done.pop().unwrap();
    assert_eq!(done.result, Ok(4096));
    assert!(done.buf.unwrap().to_vec() == content[5 << 12..6 << 12]);
    // What the other one says in the end is nobody's.
    slow[1].serve(1);
    bench.work_for(PATIENCE);
    assert!(bench.done.is_empty());
}

/// A read has its time and no more, whoever has it: also where one file hangs and the other one failed, or is not there.
#[test]
fn a_read_of_hung_files_ends_in_its_time() {
    let content = content();
    let hung = || Scripted::new(filled(&content), usize::MAX, usize::MAX).of_a_file();
    let broken = || failing(filled(&content), What::Error(Errno::EIO));
    let (one, two, three) = (hung(), hung(), hung());
    let cases = [
        (
            "both hang",
            replicas(vec![one.store(), two.store()]),
            vec![one, two],
        ),
        (
            "the other fails",
            replicas(vec![three.store(), broken().store()]),
            vec![three],
        ),
    ];
    for (what, store, hung) in cases {
        let mut bench = Bench::new(&store);
        hung.iter().for_each(Scripted::hang);
        let begun = Instant::now();
        bench.read_within(80 << 10, 8 * PATIENCE);
        while bench.done.is_empty() {
            bench.work_for(PATIENCE / 4);
            assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        }
        assert!(begun.elapsed() >= 8 * PATIENCE, "{what}");
        let done = bench.done.pop().unwrap();
        let why = done.result.unwrap_err();
        assert!(
            matches!(why, StoreError::Unreachable { .. }),
            "{what}: {why:?}"
        );
        assert!(done.buf.is_some_and(|buf| buf.len() == 4096), "{what}");
    }
}

/// After wrong bytes it is the turn of one that hangs: it has one read, and from then on the third is asked.
#[test]
fn a_hung_replica_has_no_turn() {
    let content = content();
    let all = [(); 3].map(|()| Scripted::new(filled(&content), usize::MAX, usize::MAX).of_a_file());
    let store = replicas(all.iter().map(Scripted::store).collect());
    let mut bench = Bench::new(&store);
    bench.read(4096, false);
    bench.poll();
    bench.done.clear();
    bench.store.doubt(4096, 4096);
    all[1].hang();
    for _ in 0..5 {
        bench.read(4096, false);
        while bench.done.is_empty() {
            bench.poll();
        }
        bench.done.clear();
    }
    assert_eq!(all[1].taken(), [4096], "one read, and no more");
}

/// Reads ahead take no more than half of what a file may be lent.
#[test]
fn reads_ahead_leave_loans_to_others() {
    let content = vec![7; 32 << 20];
    let file = Scripted::new(filled(&content), usize::MAX, usize::MAX).of_a_file();
    let store = replicas(vec![file.store(), file.store()]);
    let mut bench = Bench::new(&store);
    file.hold();
    for piece in 0..16 {
        bench.try_read(piece << 20, 1 << 20, true).unwrap();
    }
    bench.poll();
    assert_eq!(file.taken().len(), 2 * 4);
    bench.try_read(20 << 20, 1 << 20, false).unwrap();
    bench.poll();
    assert_eq!(file.taken().last(), Some(&(20 << 20)));
}

/// What a host gives up is its own again at once, though the file keeps what it has; a handle that is closed owes nobody a read.
#[test]
fn what_is_given_up_does_not_wait_for_a_hung_file() {
    let content = content();
    let hung = Scripted::new(filled(&content), usize::MAX, usize::MAX).of_a_file();
    let store = replicas(vec![hung.store(), hung.store()]);
    let mut bench = Bench::new(&store);
    hung.hang();
    bench.read(0, false);
    bench.read(4096, false);
    bench.poll();
    bench.store.cancel(Token(0));
    bench.poll();
    let ended = |bench: &mut Bench| {
        let mut ended = bench.done.drain(..).map(|done| (done.token, done.result));
        let one = ended.next().unwrap();
        assert_eq!(ended.next(), None);
        one
    };
    let (token, result) = ended(&mut bench);
    assert_eq!(token, Token(0));
    assert!(
        matches!(result, Err(StoreError::Cancelled { offset: 0, .. })),
        "{result:?}"
    );
    bench.store.close();
    bench.poll();
    let (token, result) = ended(&mut bench);
    assert_eq!(token, Token(4096));
    assert!(
        matches!(result, Err(StoreError::Cancelled { offset: 4096, .. })),
        "{result:?}"
    );
    assert!(!bench.store.is_closed(), "the file has its loans");
    hung.let_go();
    let begun = Instant::now();
    while !bench.store.is_closed() {
        bench.poll();
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert!(bench.done.is_empty());
}

/// One that promises to give back what is cancelled, and hangs, keeps what it has, cancelled or not. It gets nothing more, for as long as that is so, and it is told; all else is answered at
/// once by the other.
#[test]
fn a_replica_that_hangs_gets_nothing_more() {
    let content = content();
    let hung = Scripted::new(filled(&content), usize::MAX, usize::MAX);
    let store = replicas(vec![hung.store(), filled(&content)]);
    let mut bench = Bench::new(&store);
    hung.hang();
    bench.read(0, false);
    bench.poll();
    let begun = Instant::now();
    bench.turn_for(2 * PATIENCE);
    let [problem] = &store.problems()[..] else {
        panic!("{:?}", store.problems())
    };
    let says = "is asked after the others: replicas";
    assert!(
        problem.text.contains(says) && problem.text.contains("without an answer for 100ms"),
        "{problem:?}"
    );
    // Also when a replica that failed is asked again: longer than its first rest.
    let mut block = 1;
    while begun.elapsed() < Duration::from_millis(1500) {
        // Two at a time: the other one is as busy as the one that hangs.
        let asked = Instant::now();
        bench.read(block << 12, false);
        bench.read((block + 1) << 12, false);
        while bench.done.len() < 2 {
            bench.poll();
            assert!(asked.elapsed() < Duration::from_secs(1), "block {block}");
        }
        for done in bench.done.drain(..) {
            let at = usize::try_from(done.token.0).unwrap();
            assert!(done.buf.unwrap().to_vec() == content[at..at + 4096]);
        }
        block = block % 100 + 1;
    }
    assert_eq!(hung.served(), [0; 0]);
    assert_eq!(store.problems().len(), 1);
    // It comes back: what it had is answered, and it is one as the other.
    hung.serve(1);
    while bench.done.is_empty() {
        bench.poll();
    }
    assert_eq!(bench.done[0].result, Ok(4096));
    assert_eq!(store.problems(), [""; 0]);
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
