//! Replicas that say nothing: files that keep what they were lent, and those that are known to be down.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use store::decorate::What;
use store::{StoreError, Token};

use crate::scripted::{Bench, Scripted};
use crate::{PATIENCE, content, failing, filled, replicas};

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
