//! What an engine does, as telemetry has it: for each namespace, and for each stored chain.

use std::sync::Arc;

use namespace::{EngineConfig, FrameWorkers, Namespace, NamespaceSet};
use telemetry::{DecodeSnapshot, NamespaceSnapshot, Telemetry, TelemetryConfig, TransformSnapshot};

use crate::crew::Crew;
use crate::support::{ELEMENTS, Packed};
use crate::{FRAME_BYTES, by_workers};

/// Frames of a volume.
const FRAMES: u64 = (ELEMENTS as u64 * 4).div_ceil(FRAME_BYTES);

fn row(telemetry: &Telemetry, chain: &str) -> NamespaceSnapshot {
    let rows = telemetry.snapshot().namespaces;
    let has_chain = |row: &NamespaceSnapshot| row.decoders.iter().any(|one| one.chain == chain);
    rows.into_iter().find(has_chain).unwrap()
}

/// Reads all of the namespace `nsid`, 16 blocks at a time.
fn read_all(crew: &mut Crew, nsid: u32, blocks: u64) {
    for lba in (0..blocks).step_by(16) {
        let count = u32::try_from((blocks - lba).min(16)).unwrap();
        crew.submit_to(nsid, 0, lba, count, lba);
        crew.wait(1).pop().unwrap().result.unwrap();
    }
}

fn counts_for_each(name: &str, config: &EngineConfig, by_workers: bool) {
    let telemetry = Telemetry::new(&TelemetryConfig::default());
    let config = EngineConfig {
        telemetry: telemetry.reactor(0),
        ..config.clone()
    };
    let chains = ["u16+lz4", "u16+zstd:1"];
    let packed = chains.map(|chain| Packed::new(&format!("{name}-{}", &chain[4..]), chain));
    let set = || {
        let namespaces = packed.iter().zip(1..).map(|(packed, nsid)| {
            Arc::new(Namespace::of_view(
                nsid,
                packed.volume(),
                vec![packed.store()],
            ))
        });
        NamespaceSet::new(namespaces.collect())
    };
    let blocks = set().all()[0].blocks;
    let mut crew = Crew::over(1, &set(), &config);
    read_all(&mut crew, 1, blocks);

    let lz4 = row(&telemetry, chains[0]);
    let decoders = &lz4.decoders[..];
    let [
        DecodeSnapshot {
            chain,
            frames,
            packed_bytes,
            busy_ns,
        },
    ] = decoders
    else {
        panic!("one chain: {decoders:?}")
    };
    assert_eq!((&chain[..], *frames), (chains[0], FRAMES));
    assert_eq!(*packed_bytes, u64::from(ELEMENTS) * 2);
    assert!(*busy_ns > 0);
    let of = |it: &TransformSnapshot| (it.transform.clone(), it.bytes);
    let transforms: Vec<_> = lz4.transforms.iter().map(of).collect();
    // The frames are stored as they are, since lz4 makes nothing of them.
    assert_eq!(transforms, [("u16".to_owned(), *packed_bytes * 2)]);
    assert!(lz4.transforms[0].busy_ns > 0);
    let counters = lz4.counters;
    assert_eq!(counters.delivered_bytes, blocks * 4096);
    assert_eq!(counters.frames_decoded, FRAMES);
    let decoded_by_workers = if by_workers { FRAMES } else { 0 };
    assert_eq!(counters.frames_decoded_by_workers, decoded_by_workers);
    assert!(counters.stored_bytes >= counters.frame_fetches * 4096);
    assert_eq!(lz4.store_operations, 0, "nothing is under way");

    let zstd = row(&telemetry, chains[1]);
    assert_eq!(zstd.counters, namespace::NamespaceCounters::default());
    assert_eq!(zstd.decoders[0].frames, 0);

    // The volumes are opened anew: other keys, the same rows.
    drop(crew);
    let mut crew = Crew::over(1, &set(), &config);
    read_all(&mut crew, 1, blocks);
    read_all(&mut crew, 2, blocks);
    assert_eq!(telemetry.snapshot().namespaces.len(), 2);
    assert_eq!(
        row(&telemetry, chains[0]).counters.frames_decoded,
        2 * FRAMES
    );
    assert_eq!(row(&telemetry, chains[1]).decoders[0].frames, FRAMES);
}

#[test]
fn each_namespace_and_chain_has_its_own_counts() {
    counts_for_each("counted", &EngineConfig::default(), false);
}

#[test]
fn what_workers_decode_is_counted_where_it_belongs() {
    let workers = FrameWorkers::start(2, 1).unwrap();
    counts_for_each("counted-by-workers", &by_workers(&workers), true);
}
