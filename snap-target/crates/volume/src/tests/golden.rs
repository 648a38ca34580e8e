//! The golden volumes of format version 1, which every later version reads (fixtures/golden-volumes/README.md).
//!
//! `make_golden_volumes` made them, once: run it for a new one, under a new name, and commit the file. What is there is not made again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use transforms::{Chain, ElementType, ViewChain};

use super::edit;
use super::sample::{Memory, builder, store, with_table};
use crate::assemble::{ExternalSource, Home, Run, StreamSpec as AssembledSpec, ViewSpec};
use crate::blocking::{Files, Reader};
use crate::format::BlobKind;
use crate::format::raw::BLOCK_BYTES;
use crate::format::superblock::{PAYLOAD_OFFSET_MIN, SLOT_OFFSETS};
use crate::identity::sha256;
use crate::verify::verify;
use crate::write::{ExtentSpec, Options, StreamSpec, Writer};
use crate::{Item, SourcePolicy, ViewIndex};

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/golden-volumes")
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `digest  name` lines of a file.
pub(super) fn digests(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder().join(file)).unwrap();
    let line = |line: &str| {
        let (digest, name) = line.split_once("  ").unwrap();
        (name.to_owned(), digest.to_owned())
    };
    text.lines().map(line).collect()
}

fn volumes() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".vol"))
        .collect();
    names.sort();
    names
}

#[test]
fn golden_volumes_are_read_for_ever() {
    let mut expected = digests("VIEWS.sha256");
    let names = volumes();
    assert!(names.len() >= 6);
    for name in &names {
        let path = folder().join(name);
        let mut reader = Reader::open_file(&path, 1 << 20).unwrap();
        for view in 0..reader.volume().views().len() as u32 {
            let volume = reader.volume().with_view(ViewIndex(view)).unwrap();
            let mut presented = vec![0; volume.presented_bytes() as usize];
            let key = format!("{name}:{}", volume.name());
            reader.set_volume(volume);
            reader.read(0, &mut presented).unwrap();
            let expected = expected.remove(&key).unwrap_or_default();
            assert_eq!(hex(&sha256(&presented)), expected, "{key}");
        }
        let (mut files, store_bytes) = Files::open(&path).unwrap();
        let policy = SourcePolicy::default();
        files.open_sources(reader.volume(), &policy).unwrap();
        let report = verify(&files, store_bytes, &mut |_| {}).unwrap();
        match name.as_str() {
            // Its second generation was never given a tail.
            "generation-2.vol" => {
                assert_eq!(report.damage_count, 1);
                assert_eq!(report.volume.notices()[0].place.item, Item::Superblock(2));
            }
            _ => assert!(report.is_clean(), "{name}: {:?}", report.damage),
        }
        assert_eq!(report.volume.has_tail_alone(), name == "object.vol");
    }
    assert!(expected.is_empty(), "{expected:?}");
}

#[test]
fn golden_volumes_are_what_they_were() {
    let recorded = digests("SHA256SUMS");
    let mut found = BTreeMap::new();
    for name in recorded.keys() {
        let bytes = fs::read(folder().join(name)).unwrap();
        found.insert(name.clone(), hex(&sha256(&bytes)));
    }
    assert_eq!(found, recorded);
    for name in volumes() {
        assert!(recorded.contains_key(&name), "{name} is not recorded");
    }
}

/// The reader that was written from docs/format.md alone presents the same bytes.
#[test]
fn an_independent_reader_presents_the_same_bytes() {
    let script = folder().join("read_volume.py");
    let paths = volumes().into_iter().map(|name| folder().join(name));
    let output = match Command::new("python3").arg(script).args(paths).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: no python3 here ({error})");
            return;
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let mut expected = digests("VIEWS.sha256");
    for line in stdout.lines() {
        let (digest, name) = line.split_once("  ").unwrap();
        // Zstandard is not in Python's library before 3.14.
        let has_zstd = [
            "zstd.vol:",
            "rank-zstd.vol:",
            "rank-packed.vol:",
            "dictionary.vol:",
        ];
        let has_zstd = has_zstd.iter().any(|it| name.starts_with(it));
        let is_skipped = digest.starts_with("skipped") && has_zstd;
        let recorded = expected.remove(name);
        assert!(is_skipped || recorded.as_deref() == Some(digest), "{line}");
    }
    assert!(expected.is_empty(), "not read: {expected:?}");
}

/// Little-endian elements by a rule that anyone can compute: `(n * n + 7 n) mod 2^bits`, less `below`.
fn elements(element: ElementType, bits: u32, below: u64, count: u64) -> Vec<u8> {
    let value = |n: u64| ((n * n + 7 * n) & (u64::MAX >> (64 - bits))).wrapping_sub(below);
    (0..count)
        .flat_map(|n| value(n).to_le_bytes()[..element.bytes()].to_vec())
        .collect()
}

/// Chain, element type, bits, what is subtracted, count.
pub(super) type Golden = (&'static str, ElementType, u32, u64, u64);

/// A volume, and what each of its views presents: computed from the rule, not read.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) volume: Vec<u8>,
    pub(super) views: Vec<(String, Vec<u8>)>,
}

impl Made {
    /// Writes it where golden volumes lie, and prints what is recorded of it.
    pub(super) fn write(&self, name: &str) {
        fs::write(folder().join(name), &self.volume).unwrap();
        println!("{}  {name}", hex(&sha256(&self.volume)));
        for (view, presented) in &self.views {
            println!("{}  {name}:{view}", hex(&sha256(presented)));
        }
    }
}

/// What is recorded of the views of a golden volume is what the rules of its elements say.
///
/// With `golden_volumes_are_read_for_ever` this pins that the file decodes to them. That today's writer makes the same file again is not asked: matches of
/// a compressor and codes of floatsplit are the writer's choice (docs/format.md), and a better choice must not need another golden volume.
pub(super) fn assert_recorded(name: &str, made: &Made) {
    let recorded = digests("VIEWS.sha256");
    let of_volume = format!("{name}:");
    let recorded = recorded
        .iter()
        .filter(|(key, _)| key.starts_with(&of_volume));
    let by_rule: BTreeMap<String, String> = (made.views.iter())
        .map(|(view, presented)| (format!("{name}:{view}"), hex(&sha256(presented))))
        .collect();
    assert_eq!(
        recorded
            .map(|(key, digest)| (key.clone(), digest.clone()))
            .collect::<BTreeMap<_, _>>(),
        by_rule
    );
}

/// A golden volume of 512-byte blocks that is being made: a view for each stream, and `mixed`, which has runs of all of them.
pub(super) struct Making<'a> {
    writer: Writer<&'a mut Memory>,
    views: Vec<(String, Vec<u8>)>,
    mixed: Vec<ExtentSpec>,
    mixed_bytes: Vec<u8>,
}

impl<'a> Making<'a> {
    pub(super) fn new(memory: &'a mut Memory, uuid: [u8; 16]) -> Self {
        let options = Options {
            lba_bytes: 512,
            threads: 1,
            volume_uuid: Some(uuid),
            writer: "golden volumes, version 1".into(),
        };
        Self {
            writer: Writer::new(memory, options).unwrap(),
            views: Vec::new(),
            mixed: Vec::new(),
            mixed_bytes: Vec::new(),
        }
    }

    /// A stream of these elements, a view of it, and runs of it (first element, elements) for `mixed`.
    pub(super) fn stream(
        &mut self,
        name: String,
        spec: &StreamSpec,
        element: ElementType,
        data: Vec<u8>,
        runs: &[(u64, u64)],
    ) {
        let written = self.writer.add_stream(spec, &mut &data[..], &mut |_| {});
        let stream = written.unwrap().stream;
        let run = |first_element, elements| ExtentSpec::Linear {
            stream,
            first_element,
            elements,
            view: ViewChain::identity(),
        };
        let size = element.bytes() as u64;
        let whole = run(0, data.len() as u64 / size);
        self.writer.add_view(&name, [whole]).unwrap();
        for &(first, elements) in runs {
            self.mixed.push(run(first, elements));
            let range = first * size..(first + elements) * size;
            self.mixed_bytes
                .extend_from_slice(&data[range.start as usize..range.end as usize]);
        }
        self.views.push((name, data));
    }

    /// Text and zeros behind what `mixed` has.
    fn between(&mut self, text: &str, zeros: u64) {
        self.mixed
            .push(ExtentSpec::Inline(text.as_bytes().to_vec()));
        self.mixed_bytes.extend_from_slice(text.as_bytes());
        self.mixed.push(ExtentSpec::Zero { bytes: zeros });
        let bytes = self.mixed_bytes.len() + zeros as usize;
        self.mixed_bytes.resize(bytes, 0);
    }

    /// The views, `mixed` last.
    pub(super) fn finish(mut self) -> Vec<(String, Vec<u8>)> {
        self.writer.add_view("mixed", self.mixed).unwrap();
        self.views.push(("mixed".into(), self.mixed_bytes));
        self.writer.finish().unwrap();
        self.views
    }
}

/// A stream for each chain, by which its view is named.
pub(super) fn of_chains(uuid: [u8; 16], chains: &[Golden]) -> Made {
    let mut memory = Memory::default();
    let mut making = Making::new(&mut memory, uuid);
    for (n, (text, element, bits, below, count)) in (0..).zip(chains) {
        let data = elements(*element, *bits, *below, *count);
        let chain = Chain::parse(text, *element).unwrap();
        let spec = StreamSpec {
            frame_bytes: 4096,
            ..StreamSpec::new(with_table(chain, &data))
        };
        let name = format!("{text} of {element}");
        making.stream(name.clone(), &spec, *element, data, &[(3 * n, 100 + n)]);
        making.between(&name, 5 + n);
    }
    let views = making.finish();
    Made {
        volume: memory.bytes,
        views,
    }
}

fn views_of_one_stream() -> Made {
    let options = Options {
        lba_bytes: 4096,
        threads: 1,
        volume_uuid: Some(*b"golden, views  \x01"),
        writer: "golden volumes, version 1".into(),
    };
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options).unwrap();
    let spec = StreamSpec::new(Chain::parse("bitpack:15", ElementType::U32).unwrap());
    let data = elements(ElementType::U32, 15, 0, 10_000);
    let written = writer
        .add_stream(&spec, &mut &data[..], &mut |_| {})
        .unwrap();
    let mut views = Vec::new();
    for name in ["u16", "i16", "u32", "i64"] {
        let run = ExtentSpec::Linear {
            stream: written.stream,
            first_element: 123,
            elements: 5001,
            view: match name {
                "u32" => ViewChain::identity(),
                _ => ViewChain::parse(name, ElementType::U32).unwrap(),
            },
        };
        writer.add_view(name, [run]).unwrap();
        let element: ElementType = name.parse().unwrap();
        // The rule again, in the presented type: 15 bits fit them all.
        let presented = elements(element, 15, 0, 123 + 5001);
        views.push((name.into(), presented[123 * element.bytes()..].to_vec()));
    }
    writer.finish().unwrap();
    Made {
        volume: memory.bytes,
        views,
    }
}

/// Streams on another file, one with checksums and one without; a manifest; a blob that nothing refers to.
fn mapped(other: &[u8]) -> Made {
    let mut builder = builder(512);
    let source = builder
        .add_source(&ExternalSource {
            locator: "mapped-source.bin".into(),
            bytes: other.len() as u64,
            modified_ns: None,
            digest: Some(sha256(other)),
        })
        .unwrap();
    let (mut runs, mut presented) = (Vec::new(), Vec::new());
    for (element, start, checksums) in [(ElementType::U32, 5001, true), (ElementType::U8, 0, false)]
    {
        let elements = (other.len() - start) / element.bytes();
        let offset = start / BLOCK_BYTES * BLOCK_BYTES;
        let data = &other[start..start + elements * element.bytes()];
        let spec = AssembledSpec {
            chain: Chain::parse("none", element).unwrap(),
            frame_elements: 0,
            home: Home::Mapped {
                source,
                offset: offset as u64,
                skip: other[offset..start].to_vec(),
            },
            checksums,
            gap_bytes: 0,
        };
        presented.extend_from_slice(&data[element.bytes()..]);
        let mut stream = builder.begin_stream(spec).unwrap();
        stream.append(data, elements as u64, None).unwrap();
        runs.push(Run::Linear {
            stream: stream.finish(Some(sha256(data))).unwrap(),
            first_element: 1,
            elements: elements as u64 - 1,
            view: ViewChain::identity(),
        });
    }
    builder
        .add_blob(BlobKind::Other(5), b"a dictionary that nothing needs")
        .unwrap();
    let spec = ViewSpec {
        name: "both".into(),
        view_uuid: Some(*b"view of two file"),
        manifest: Some(b"{\"lossy\":\"in name only\"}".to_vec()),
        lossy: true,
        revision_uuid: Some(*b"revision of both"),
    };
    builder.add_view(spec, runs).unwrap();
    Made {
        volume: builder.finish().unwrap().into_bytes(),
        views: vec![("both".into(), presented)],
    }
}

/// Frames with room between them.
fn gaps() -> Made {
    let mut builder = builder(512);
    let data = elements(ElementType::U32, 10, 0, 5000);
    let (mut runs, mut presented) = (Vec::new(), Vec::new());
    for gap_bytes in [37, 4095] {
        let chain = Chain::parse("u16+lz4", ElementType::U32).unwrap();
        let spec = AssembledSpec {
            gap_bytes,
            ..AssembledSpec::own(chain, 512)
        };
        runs.push(Run::Linear {
            stream: store(&mut builder, spec, 512, &data),
            first_element: 0,
            elements: 5000,
            view: ViewChain::identity(),
        });
        presented.extend_from_slice(&data);
    }
    let spec = ViewSpec {
        name: "gaps".into(),
        ..ViewSpec::default()
    };
    builder.add_view(spec, runs).unwrap();
    Made {
        volume: builder.finish().unwrap().into_bytes(),
        views: vec![("gaps".into(), presented)],
    }
}

#[test]
#[ignore = "makes files that are made once"]
fn make_golden_volumes() {
    use ElementType::{Bf16, F32, F64, I16, I32, I64, U8, U16, U32, U64};
    let identity = of_chains(
        *b"golden, identity",
        &[
            ("none", U8, 8, 0, 9001),
            ("none", U32, 32, 0, 2000),
            ("none", F32, 32, 0, 1000),
            ("none", Bf16, 16, 0, 1000),
        ],
    );
    let packed = of_chains(
        *b"golden, packed \x01",
        &[
            ("u16", U32, 16, 0, 5000),
            ("u8", U16, 8, 0, 5000),
            ("i16", I32, 15, 9000, 3000),
            ("i32", I64, 31, 1 << 30, 1001),
            ("bitpack:1", U8, 1, 0, 4001),
            ("bitpack:17", U32, 17, 0, 7001),
            ("bitpack:18", I32, 18, 0, 1003),
            ("bitpack:32", U64, 32, 0, 1005),
        ],
    );
    let framed = of_chains(
        *b"golden, framed \x01",
        &[
            ("u16+lz4", U32, 9, 0, 9001),
            ("shuffle+lz4", F32, 20, 0, 3001),
            ("bitpack:11+lz4hc:9", U16, 11, 0, 5003),
            ("shuffle", I16, 16, 0, 5000),
            ("lz4", U8, 8, 0, 5001),
            ("lz4", F64, 64, 0, 700),
        ],
    );
    let zstd = of_chains(
        *b"golden, zstd   \x01",
        &[
            ("u16+zstd:3", U32, 10, 0, 9001),
            ("shuffle+zstd:1", U64, 24, 0, 2001),
        ],
    );
    let mut object = packed.clone();
    object.volume[..PAYLOAD_OFFSET_MIN as usize].fill(0);
    let mut generation_2 = packed.clone();
    let slot_1 = SLOT_OFFSETS[1];
    generation_2
        .volume
        .copy_within(..BLOCK_BYTES, slot_1 as usize);
    edit::superblock_at(&mut generation_2.volume, slot_1 as usize, |raw| {
        raw.slot = 1.into();
        raw.own_offset = slot_1.into();
        raw.generation = 2.into();
    });
    let other = elements(U8, 8, 0, 20_001);
    let made = [
        ("identity.vol", identity),
        ("packed.vol", packed),
        ("framed.vol", framed),
        ("zstd.vol", zstd),
        ("views.vol", views_of_one_stream()),
        ("object.vol", object),
        ("generation-2.vol", generation_2),
        ("mapped.vol", mapped(&other)),
        ("gaps.vol", gaps()),
    ];
    let mut sums = format!("{}  mapped-source.bin\n", hex(&sha256(&other)));
    fs::write(folder().join("mapped-source.bin"), &other).unwrap();
    let mut views = String::new();
    for (name, made) in made {
        fs::write(folder().join(name), &made.volume).unwrap();
        sums += &format!("{}  {name}\n", hex(&sha256(&made.volume)));
        for (view, presented) in made.views {
            views += &format!("{}  {name}:{view}\n", hex(&sha256(&presented)));
        }
    }
    fs::write(folder().join("SHA256SUMS"), sums).unwrap();
    fs::write(folder().join("VIEWS.sha256"), views).unwrap();
}
