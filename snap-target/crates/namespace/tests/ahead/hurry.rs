//! A read that joins a fetch ahead tells the store that somebody waits for it.

use std::ops::Range;

use namespace::Namespace;

use crate::gated::Gate;
use crate::support::{Packed, source};
use crate::{BLOCK, Bench, config, raw_over, slow};

/// A hint has pieces fetched ahead, which the store holds; a read of one of them has that one hurried, and no other.
fn a_read_hurries_what_it_joins(gate: &Gate, namespace: Namespace, content: &[u8]) {
    let mut bench = Bench::new(namespace, &config());
    // Blocks far from each other: nobody takes them for a stream, and no fetch has two.
    bench
        .engine
        .hint(bench.key, &[(0, 16), (64, 16), (128, 16)]);
    let mut done = Vec::new();
    bench.until(&mut done, |_, _| gate.held().len() == 3);
    let held: Vec<u64> = gate.held().iter().map(|held| held.0).collect();
    assert_eq!(gate.hurried(), [0; 0]);
    assert!(bench.begin(64, 16).is_none());
    bench.until(&mut done, |_, _| !gate.hurried().is_empty());
    assert_eq!(gate.hurried(), held[1..2], "of {held:?}");
    gate.open();
    bench.until(&mut done, |_, done| !done.is_empty());
    let read = done.pop().unwrap().buf.unwrap().to_vec();
    assert!(read == content[64 * BLOCK..80 * BLOCK]);
    bench.settle();
    let counted = bench.counters();
    assert_eq!((counted.prefetch_late, counted.prefetch_hits), (1, 0));
}

#[test]
fn a_read_of_a_raw_store_hurries_what_it_joins() {
    let gate = Gate::default();
    let (namespace, content) = raw_over(|store| gate.over(slow(store), 0..u64::MAX, 8));
    a_read_hurries_what_it_joins(&gate, namespace, &content);
}

#[test]
fn a_read_of_a_framed_view_hurries_what_it_joins() {
    let packed = Packed::new("hurry-lz4", "u16+lz4");
    let volume = packed.volume();
    let stream = &volume.streams()[0];
    let payload: Range<u64> = stream.stored_offset..stream.stored_offset + stream.stored_bytes;
    let gate = Gate::default();
    let store = gate.over(slow(packed.store()), payload, 8);
    let namespace = Namespace::of_view(1, packed.volume(), vec![store]);
    a_read_hurries_what_it_joins(&gate, namespace, &source());
}
