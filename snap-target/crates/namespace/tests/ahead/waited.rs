//! Reads that want what is being fetched ahead: they end as if nobody had fetched it.

use namespace::NamespaceError;

use super::gated::Gate;
use super::*;
use namespace::Asked;

const MIB: u64 = 1 << 20;

fn with_deadline(bench: &mut Bench, lba: u64, blocks: u32, due: Instant) -> Option<Done> {
    let io = Io::Read {
        lba,
        blocks,
        into: None,
    };
    bench.next += 1;
    let token = bench.next;
    let asked = Asked {
        deadline: Some(due),
        ..Asked::with(token)
    };
    bench.engine.submit(bench.key, io, asked)
}

/// A store of 64 MiB that nobody changes, with room for `depth` reads of `range`.
fn gated(nsid: u32, gate: &Gate, range: Range<u64>, depth: usize) -> Namespace {
    let (store, _) = filled(64 * MIB);
    let store = gate.over(store, range, depth);
    let identity = Identity { uuid: [7; 16] };
    let mut namespace = Namespace::of_store(nsid, store, identity, 4096);
    namespace.is_immutable = true;
    namespace.write_protected = true;
    namespace
}

fn hint(bench: &mut Bench, bytes: Range<u64>) {
    let block = BLOCK as u64;
    let blocks = u32::try_from((bytes.end - bytes.start) / block).unwrap();
    bench
        .engine
        .hint(bench.key, &[(bytes.start / block, blocks)]);
}

/// Where a fetch ahead fails, whoever wants one of its frames by then has it fetched on their own terms.
#[test]
fn a_fetch_ahead_that_fails_is_done_again_for_a_reader() {
    let packed = Packed::new("ahead-fails", "u16+lz4");
    let volume = packed.volume();
    let stream = &volume.streams()[0];
    let gate = Gate::default();
    let payload = stream.stored_offset..stream.stored_offset + stream.stored_bytes;
    let store = gate.over(packed.store(), payload, 8);
    let mut bench = Bench::new(Namespace::of_view(1, volume, vec![store]), &config());
    hint(&mut bench, 0..64 << 10);
    bench.until(&mut Vec::new(), |_, _| !gate.held().is_empty());
    assert!(gate.held()[0].2.is_ahead);
    let due = Instant::now() + Duration::from_secs(25);
    assert!(with_deadline(&mut bench, 0, 16, due).is_none());
    gate.fail_all();
    let is_theirs = |terms: &store::Terms| terms.deadline == Some(due) && !terms.is_ahead;
    bench.until(&mut Vec::new(), |_, _| {
        gate.held()
            .first()
            .is_some_and(|(_, _, terms)| is_theirs(terms))
    });
    gate.open();
    let mut done = Vec::new();
    bench.until(&mut done, |_, done| !done.is_empty());
    let found = done.pop().unwrap().buf.unwrap().to_vec();
    assert!(found == source()[..64 << 10]);
    let counted = bench.counters();
    assert_eq!((counted.frame_fetches, counted.prefetched_frames), (2, 0));
    bench.assert_books();
}

/// Of what a read wants, only what no frame has comes from the store.
#[test]
fn what_no_frame_has_is_read() {
    let (namespace, content) = raw_over(slow);
    let mut bench = Bench::new(namespace, &config());
    let frame = 64 << 10;
    hint(&mut bench, 0..8 * frame);
    hint(&mut bench, 10 * frame..16 * frame);
    bench.settle();
    let before = bench.counters();
    assert_eq!(before.stored_bytes, 14 * frame);
    assert!(bench.read(0, 256) == content[..1 << 20]);
    let counted = bench.counters();
    assert_eq!(counted.stored_bytes, 16 * frame);
    assert_eq!(counted.prefetch_hits, 14);
    assert_eq!(counted.delivered_bytes, MIB);
    // A read that begins and ends within frames that are not there.
    assert!(bench.read(255, 3) == content[255 * BLOCK..258 * BLOCK]);
    let two_blocks = 2 * BLOCK as u64;
    assert_eq!(bench.counters().stored_bytes, 16 * frame + two_blocks);
    bench.assert_books();
}

/// A read that was filled in part ends by its time, whether it waits for frames or for room with the store.
#[test]
fn a_fill_ends_by_its_time() {
    let gate = Gate::default();
    let namespace = gated(1, &gate, 0..32 * MIB, 1);
    let mut bench = Bench::new(namespace, &config());
    let due = Instant::now() + Duration::from_secs(25);
    hint(&mut bench, 0..64 << 10);
    bench.until(&mut Vec::new(), |_, _| gate.held().len() == 1);
    // One waits for a frame that the store has; the other for a frame, and then for room with the store.
    assert!(with_deadline(&mut bench, 0, 16, due).is_none());
    assert!(with_deadline(&mut bench, 0, 32, due).is_none());
    let mut done = Vec::new();
    bench.engine.end_overdue(due - Duration::from_nanos(1));
    bench.engine.poll(&mut done);
    assert!(done.is_empty());
    bench.engine.end_overdue(due);
    bench.until(&mut done, |_, done| done.len() == 2);
    for done in done.drain(..) {
        let error = done.result.unwrap_err();
        assert!(matches!(error, NamespaceError::Store { .. }), "{error}");
        assert_eq!(error.status(false), nvme_spec::Status::NAMESPACE_NOT_READY);
    }
    gate.fail_all();
    bench.settle();
    // Now the store has another's read, so that there is no room for what a frame does not have.
    hint(&mut bench, 32 * MIB..32 * MIB + (64 << 10));
    bench.until(&mut done, |it, _| it.counters().prefetched_frames == 1);
    assert!(with_deadline(&mut bench, 4096, 1, due + Duration::from_secs(9)).is_none());
    assert!(with_deadline(&mut bench, 32 * 256 - 16, 32, due).is_none());
    bench.engine.poll(&mut done);
    bench.engine.end_overdue(due - Duration::from_nanos(1));
    bench.engine.poll(&mut done);
    assert!(done.is_empty());
    bench.engine.end_overdue(due);
    bench.until(&mut done, |_, done| !done.is_empty());
    assert_eq!(done.len(), 1);
    let error = done.pop().unwrap().result.unwrap_err();
    assert_eq!(error.status(false), nvme_spec::Status::NAMESPACE_NOT_READY);
    gate.open();
    bench.until(&mut done, |_, done| !done.is_empty());
    done.pop().unwrap().result.unwrap();
    bench.settle();
    bench.assert_books();
}

/// A namespace whose store takes no more of what its hosts wait for: others are read ahead all the same.
#[test]
fn a_full_store_stops_no_reading_ahead_of_others() {
    let packed = Packed::new("ahead-full", "u16+lz4");
    let gate = Gate::default();
    let volume = packed.volume();
    let stream = &volume.streams()[0];
    let payload = stream.stored_offset..stream.stored_offset + stream.stored_bytes;
    let store = gate.over(packed.store(), payload, 1);
    let full = Namespace::of_view(1, packed.volume(), vec![store]);
    let (mut other, content) = raw_over(slow);
    other.nsid = 2;
    let keys = [full.key, other.key];
    let ahead = other.ahead.clone();
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let set = NamespaceSet::new(vec![Arc::new(full), Arc::new(other)]);
    let engine = Engine::new(&ring, &set, &config()).unwrap();
    let mut bench = Bench {
        ring,
        engine,
        key: keys[0],
        ahead,
        next: 0,
    };
    for lba in [0, 128] {
        assert!(bench.begin(lba, 1).is_none());
    }
    bench.until(&mut Vec::new(), |_, _| gate.held().len() == 1);
    bench.key = keys[1];
    hint(&mut bench, 0..MIB);
    bench.until(&mut Vec::new(), |it, _| {
        it.counters().prefetched_frames == 16
    });
    assert!(bench.read(0, 256) == content[..1 << 20]);
    assert_eq!(gate.held().len(), 1);
    gate.open();
    let mut done = Vec::new();
    bench.until(&mut done, |_, done| done.len() == 2);
}

/// Fetches ahead that do not end hold all memory for such: whoever reads, of another namespace too, does not wait for it.
#[test]
fn memory_for_fetches_ahead_is_not_waited_for() {
    let gate = Gate::default();
    // Of each a few MiB are on their way at a time.
    let hung: Vec<Namespace> = (1..=10)
        .map(|nsid| gated(nsid, &gate, 0..64 * MIB, 64))
        .collect();
    let (other, content) = filled(8 * MIB);
    // Its bytes are read, not leased.
    let other = Gate::default().over(other, 0..0, 0);
    let mut sound = Namespace::of_store(99, other, Identity { uuid: [99; 16] }, 4096);
    sound.is_immutable = true;
    sound.write_protected = true;
    let keys: Vec<_> = hung.iter().map(|namespace| namespace.key).collect();
    let sound_key = sound.key;
    let ahead = hung[0].ahead.clone();
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let all = hung.into_iter().chain([sound]).map(Arc::new);
    let set = NamespaceSet::new(all.collect());
    let engine = Engine::new(&ring, &set, &config()).unwrap();
    let mut bench = Bench {
        ring,
        engine,
        key: sound_key,
        ahead,
        next: 0,
    };
    for key in &keys {
        bench.key = *key;
        for mib in 0..32 {
            hint(&mut bench, mib * MIB..(mib + 1) * MIB);
        }
    }
    let held_bytes = |gate: &Gate| -> usize { gate.held().iter().map(|held| held.1).sum() };
    bench.until(&mut Vec::new(), |_, _| held_bytes(&gate) >= 16 << 20);
    bench.key = sound_key;
    hint(&mut bench, 0..MIB);
    bench.engine.poll(&mut Vec::new());
    assert!(bench.read(0, 256) == content[..1 << 20]);
    assert_eq!(bench.counters().prefetched_frames, 0);
    gate.open();
    bench.settle();
    for key in keys {
        bench.key = key;
        bench.settle();
    }
}
