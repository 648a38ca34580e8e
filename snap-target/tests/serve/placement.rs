//! Where a chain runs, and what crosses which hop for it: the table of docs/placement.md, measured between two daemons and compared with arithmetic.
//!
//! `XIO_WRITE_DOCUMENT=1 cargo nextest run -p snap-target --test serve placement::` writes the table anew.

use std::fmt::Write;
use std::path::Path;

use initiator::Options;
use transforms::{Chain, ElementType, ViewChain};
use volume::write::{
    ExtentSpec, FileOutput, Options as WriteOptions, StreamSpec, ViewSpec, Writer,
};

use crate::hops::{
    COMMAND_BYTES, DATA_HEADER_BYTES, DIGEST_BYTES, Node, READ_BYTES, SOURCE_BYTES, reads, since,
    wire,
};
use crate::target::Folder;

/// A random sample: one block.
const SAMPLE_BYTES: usize = 4096;
/// What a fetch rounds out at each end at most.
const ROUNDED_BYTES_MAX: u64 = 2 * 4096;

/// What the host reads.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    /// All of it, once.
    Sequential,
    /// One block of each 128 KiB, in no order: each sample meets a frame that is not in the cache.
    Samples,
}

struct Case {
    what: &'static str,
    fixture: &'static str,
    element: ElementType,
    stored_as: &'static str,
    presented_as: &'static str,
    access: Access,
    /// Stored bits of a presented byte, times eight; none where a codec decides.
    stored_per_delivered: Option<(u64, u64)>,
}

const fn exact(
    what: &'static str,
    fixture: &'static str,
    stored_as: &'static str,
    access: Access,
    stored_per_delivered: Option<(u64, u64)>,
) -> Case {
    Case {
        what,
        fixture,
        element: ElementType::U32,
        stored_as,
        presented_as: "none",
        access,
        stored_per_delivered,
    }
}

const fn weights(
    what: &'static str,
    stored_as: &'static str,
    presented_as: &'static str,
    stored_per_delivered: Option<(u64, u64)>,
) -> Case {
    Case {
        what,
        fixture: "weights-f32.bin",
        element: ElementType::F32,
        stored_as,
        presented_as,
        access: Access::Sequential,
        stored_per_delivered,
    }
}

use Access::{Samples, Sequential};
const R50K: &str = "r50k-u32.bin";
const O200K: &str = "o200k-u32.bin";
const CASES: [Case; 9] = [
    exact(
        "u32 ids as they are",
        R50K,
        "none",
        Sequential,
        Some((1, 1)),
    ),
    exact("r50k ids", R50K, "u16", Sequential, Some((1, 2))),
    exact("o200k ids", O200K, "bitpack:18", Sequential, Some((18, 32))),
    exact("r50k ids", R50K, "u16+lz4", Sequential, None),
    exact("r50k ids", R50K, "u16+zstd:3", Sequential, None),
    exact("r50k ids, 4 KiB samples", R50K, "u16", Samples, None),
    exact("r50k ids, 4 KiB samples", R50K, "u16+zstd:3", Samples, None),
    weights("f32 weights, exact", "shuffle+zstd:3", "none", None),
    weights("f32 weights as bf16", "none", "bf16", Some((2, 1))),
];

/// Bytes of each hop.
struct Hops {
    /// Fetched of the medium, tables among them.
    stored: u64,
    /// Between the storage node and the machine beside the host, both ways.
    between: u64,
    /// Between that machine and the host, both ways.
    to_host: u64,
    delivered: u64,
}

/// Packs a case's source; the bytes of its stream.
fn pack(case: &Case, path: &Path, source: &[u8]) -> u64 {
    let options = WriteOptions {
        lba_bytes: 4096,
        threads: 1,
        volume_uuid: None,
        writer: "test".into(),
    };
    let mut writer = Writer::new(FileOutput::create(path, true).unwrap(), options).unwrap();
    let chain = Chain::parse(case.stored_as, case.element).unwrap();
    let mut input = source;
    let stream = writer
        .add_stream(&StreamSpec::new(chain), &mut input, &mut |_| {})
        .unwrap();
    let is_lossy = case.presented_as != "none";
    let view = ViewSpec {
        name: "presented".into(),
        manifest: is_lossy.then(|| b"{}".to_vec()),
        lossy: is_lossy,
    };
    let whole = ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 0,
        elements: stream.elements,
        view: ViewChain::parse(case.presented_as, case.element).unwrap(),
    };
    writer.add_view(view, [whole]).unwrap();
    writer.finish().unwrap();
    stream.stored_bytes
}

/// What is presented, by arithmetic of its own: bf16 is the upper half of an f32, rounded to nearest, ties to even (no NaN among the weights).
fn presented(case: &Case, source: &[u8]) -> Vec<u8> {
    if case.presented_as == "none" {
        return source.to_vec();
    }
    let floats = source
        .as_chunks()
        .0
        .iter()
        .map(|it| u32::from_le_bytes(*it));
    let rounded = floats.map(|bits| (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    rounded
        .flat_map(|bits| u16::try_from(bits).unwrap().to_le_bytes())
        .collect()
}

/// The offsets and lengths that a host reads.
fn wanted(access: Access, bytes: usize) -> Vec<(usize, usize)> {
    match access {
        Sequential => (0..bytes)
            .step_by(READ_BYTES)
            .map(|at| (at, READ_BYTES))
            .collect(),
        Samples => [5, 0, 9, 3, 11, 1, 7, 10, 2, 8, 4, 6]
            .map(|part| (part * READ_BYTES + 5 * SAMPLE_BYTES, SAMPLE_BYTES))
            .to_vec(),
    }
}

/// Reads a case through both daemons: `nsid` of the near one is decoded here or there.
fn measure(case: &Case, far: &Node, near: &Node, nsid: u32, expected: &[u8]) -> Hops {
    near.wait_connected(nsid);
    let (opened, begun) = (far.host(nsid), near.namespace(nsid));
    let mut host = near.target.host(&Options::default());
    let wanted = wanted(case.access, expected.len());
    for &(at, len) in &wanted {
        let mut read = vec![0; len];
        host.read(nsid, at as u64, &mut read).unwrap();
        assert!(read == expected[at..at + len], "{}, byte {at}", case.what);
    }
    let there = far.host(nsid);
    let crossed = since(there.wire, opened.wire);
    let here = near.namespace_once(nsid, |row| {
        since(row.store_wire, begun.store_wire).sent_bytes >= crossed.received_bytes
    });
    // What one says of its store, the other says of its host; and both are what the headers make of the payload.
    let store_wire = since(here.store_wire, begun.store_wire);
    assert_eq!(store_wire, wire(crossed.received_bytes, crossed.sent_bytes));
    let payload = here.stored_bytes + here.table_bytes;
    let fetches = reads(&there) - reads(&opened);
    let besides = DATA_HEADER_BYTES + DIGEST_BYTES;
    let between = wire(payload + fetches * besides, fetches * COMMAND_BYTES);
    assert_eq!(crossed, between, "{}", case.what);
    let delivered: usize = wanted.iter().map(|(_, len)| len).sum();
    let (delivered, commands) = (delivered as u64, wanted.len() as u64);
    assert_eq!(here.delivered_bytes, delivered);
    let to_host = wire(
        delivered + commands * DATA_HEADER_BYTES,
        commands * COMMAND_BYTES,
    );
    assert_eq!(here.host_wire, Some(to_host));
    let medium = far.namespace(nsid);
    Hops {
        // While it was opened from here, more was fetched there than what is read now.
        stored: match nsid {
            1 => payload,
            _ => medium.stored_bytes + medium.table_bytes,
        },
        between: crossed.sent_bytes + crossed.received_bytes,
        to_host: to_host.sent_bytes + to_host.received_bytes,
        delivered,
    }
}

/// Measures a case at both placements, beside the host and at the storage node.
fn both(case: &Case, number: usize) -> [Hops; 2] {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/data");
    let source = std::fs::read(fixtures.join(case.fixture)).unwrap();
    let source = &source[..SOURCE_BYTES];
    let folder = Folder::new(&format!("placement-{number}"));
    let path = folder.path("packed.xvol");
    let stream_bytes = pack(case, &path, source);
    let (volume, raw) = (path.to_str().unwrap(), format!("file:{}", path.display()));
    let far = Node::start(&folder, "far", &["--workers", "0"], &[&raw, volume]);
    let beside = format!("volume:{}", far.url(1));
    let stores = [&beside[..], &far.url(2)];
    let near = Node::start(&folder, "near", &["--workers", "0"], &stores);
    let expected = presented(case, source);
    let hops = [1, 2].map(|nsid| measure(case, &far, &near, nsid, &expected));
    let at_far = far.namespace(2);
    let stored = [near.namespace(1).stored_bytes, at_far.stored_bytes];
    // Wherever it is decoded, the same is fetched for it.
    assert_eq!(stored[0], stored[1], "{}", case.what);
    match case.stored_per_delivered {
        Some((bits, of)) => assert_eq!(stored[0] * of, hops[0].delivered * bits, "{}", case.what),
        None if case.access == Sequential => {
            let rounded = at_far.frame_fetches * ROUNDED_BYTES_MAX;
            let range = stream_bytes..=stream_bytes + rounded;
            assert!(range.contains(&stored[0]), "{stored:?} in {range:?}");
        }
        None => assert!(stored[0] < SOURCE_BYTES as u64),
    }
    hops
}

/// Bytes for each delivered byte, as the table has them.
fn row(out: &mut String, case: &Case, place: &str, hops: &Hops) {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let per_delivered = |bytes: u64| bytes as f64 / hops.delivered as f64;
    let Case {
        what,
        stored_as,
        presented_as,
        ..
    } = case;
    let chain = match *presented_as {
        "none" => format!("`{stored_as}`"),
        view => format!("`{stored_as}`, as `{view}`"),
    };
    let [stored, between, to_host] = [hops.stored, hops.between, hops.to_host].map(per_delivered);
    writeln!(
        out,
        "| {what} | {chain} | {place} | {stored:.2} | {between:.2} | {to_host:.2} |"
    )
    .unwrap();
}

const HEAD: &str = "\
| data | chain | decoded | stored | storage node to host's side | to the host |
|---|---|---|---|---|---|
";

/// The document's table, and what stands around it.
fn table_in(document: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = document.split_once(HEAD)?;
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    let (table, after) = rest.split_at(end);
    Some((before, table, after))
}

#[test]
fn the_documents_table_is_what_is_measured() {
    let mut table = String::new();
    for (number, case) in CASES.iter().enumerate() {
        let [beside, there] = both(case, number);
        row(&mut table, case, "at the storage node", &there);
        row(&mut table, case, "beside the host", &beside);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/placement.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, shown, after) = table_in(&document).expect("the table's head is there");
    if std::env::var_os("XIO_WRITE_DOCUMENT").is_some() {
        std::fs::write(&path, [before, HEAD, &table, after].concat()).unwrap();
        return;
    }
    assert_eq!(shown, table);
}
