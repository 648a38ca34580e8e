//! What is chosen for real files and for noise: it gives the bytes back, and nothing that keeps them is worth more under the rule.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset::choose::{self, Access, Choices, Group, Prefer, Said, Wish};
use dataset::{Catalogue, DatasetError, FileId, Hints, Pattern, Run, Runs, Scan, View};
use transforms::{
    Chain, Decoder, ElementType, IdCounts, OutSegments, PackedWindow, Scratch, ViewChain,
};

const FRAME: u64 = 64 << 10;
const ONE_FRAME: Wish = Wish {
    prefer: Prefer::Balanced,
    access: Access::Sequential,
    frame_bytes: Some(FRAME),
};

struct Chosen {
    scan: Scan,
    runs: Runs,
    choices: Choices,
}

impl Chosen {
    fn of(inputs: &[PathBuf], types: &[(&str, ElementType)], wish: &Wish) -> Chosen {
        Chosen::with(inputs, types, wish, 2)
    }

    fn with(
        inputs: &[PathBuf],
        types: &[(&str, ElementType)],
        wish: &Wish,
        threads: usize,
    ) -> Chosen {
        let scan = Scan::new(inputs).unwrap();
        let types = types.iter();
        let hints = Hints {
            types: types
                .map(|(pattern, element)| (pattern.parse::<Pattern>().unwrap(), *element))
                .collect(),
            keep: Vec::new(),
        };
        let catalogue = Catalogue::new(&scan, &hints).unwrap();
        let runs = Runs::new(&scan, &catalogue, &[] as &[View]);
        let surveyed = dataset::survey::survey(&scan, &runs, &|_| true, 2, &|_| {}).unwrap();
        let of = choose::Dataset {
            scan: &scan,
            catalogue: &catalogue,
            runs: &runs,
            surveyed: &surveyed,
        };
        let nothing = |_: FileId, _: &Run| Ok::<_, DatasetError>(Said::Nothing);
        let choices = choose::choose(of, wish, nothing, threads, &|_, _| {}).unwrap();
        Chosen {
            scan,
            runs,
            choices,
        }
    }

    /// Every run of every file, with its group.
    fn each(&self, mut see: impl FnMut(&Group, &[u8])) {
        for (id, file) in self.scan.files() {
            let bytes = fs::read(&file.path).unwrap();
            for run in self.runs.of(id) {
                let group = self.choices.group(id, run).unwrap();
                let part =
                    usize::try_from(run.offset).unwrap()..usize::try_from(run.end()).unwrap();
                see(group, &bytes[part]);
            }
        }
    }
}

/// Frames of `frame_bytes`, stored; `None` where a value does not fit.
fn encode(chain: &Chain, bytes: &[u8], frame_bytes: u64) -> Option<Vec<Vec<u8>>> {
    let mut scratch = Scratch::new();
    let unit = usize::try_from(if chain.is_framed() {
        frame_bytes
    } else {
        1 << 30
    })
    .unwrap();
    bytes
        .chunks(unit)
        .map(|frame| {
            let elements = (frame.len() / chain.source().bytes()) as u64;
            let mut stored = vec![0; usize::try_from(chain.stored_bytes_max(elements)).unwrap()];
            let encoded = chain.encode_frame(frame, &mut scratch, &mut stored).ok()?;
            stored.truncate(encoded.stored_bytes);
            Some(stored)
        })
        .collect()
}

fn round_trip(chain: &Chain, bytes: &[u8], frame_bytes: u64) -> Vec<u8> {
    let unit = usize::try_from(if chain.is_framed() {
        frame_bytes
    } else {
        1 << 30
    })
    .unwrap();
    let decoder = Decoder::new(chain, &ViewChain::identity(), None).unwrap();
    let stored = encode(chain, bytes, frame_bytes).unwrap();
    let mut all = Vec::new();
    for (frame, source) in stored.iter().zip(bytes.chunks(unit)) {
        let elements = (source.len() / chain.source().bytes()) as u64;
        let mut packed = vec![0; usize::try_from(chain.packed_bytes(elements)).unwrap()];
        chain
            .unblock(frame, &mut Scratch::new(), &mut packed)
            .unwrap();
        let mut out = vec![0; source.len()];
        let window = PackedWindow {
            first_byte: 0,
            bytes: &packed,
        };
        let into = &mut OutSegments::from_slice(&mut out);
        decoder
            .expand(window, 0..source.len() as u64, into)
            .unwrap();
        all.extend(out);
    }
    all
}

/// Every chain that keeps these bytes, by trying: the narrowest type of each sign, the narrowest field, the narrowest of whole bytes; each with
/// each compressor. `is_bytes`: they are no values.
fn every_chain(element: ElementType, is_bytes: bool, bytes: &[u8], prefer: Prefer) -> Vec<Chain> {
    let fits = |text: &str| {
        let chain = Chain::parse(text, element).ok()?;
        let narrow = chain.packed_bits() < element.bits();
        (narrow && encode(&chain, bytes, FRAME).is_some()).then(|| text.to_owned())
    };
    let mut widths = vec!["none".to_owned()];
    if !is_bytes {
        widths.extend(["u8", "u16", "u32"].into_iter().find_map(fits));
        widths.extend(["i8", "i16", "i32"].into_iter().find_map(fits));
        widths.extend((1..=32).find_map(|bits| fits(&format!("bitpack:{bits}"))));
        widths.extend((1..=4).find_map(|bytes| fits(&format!("bitpack:{}", 8 * bytes))));
    }
    let mut compressors = vec!["lz4", "lz4hc:9", "zstd:1", "zstd:3", "zstd:9", "floatsplit"];
    if prefer == Prefer::Ratio {
        compressors.push("zstd:19");
    }
    let mut chains = by_rank(element, is_bytes, bytes, &compressors);
    for width in widths {
        let steps = |more: &str| {
            let text = format!("{width}{more}");
            text.strip_prefix("none+").unwrap_or(&text).to_owned()
        };
        let mut texts = vec![steps("")];
        for compressor in &compressors {
            texts.push(steps(&format!("+{compressor}")));
            texts.push(steps(&format!("+shuffle+{compressor}")));
        }
        chains.extend(
            texts
                .iter()
                .filter_map(|text| Chain::parse(text, element).ok()),
        );
    }
    chains
}

/// Those by rank, with the table of these ids: out of the narrowest of 16 and 32 bits.
fn by_rank(element: ElementType, is_bytes: bool, bytes: &[u8], compressors: &[&str]) -> Vec<Chain> {
    let mut counts = IdCounts::new();
    if is_bytes
        || !element.is_integer()
        || element.bytes() == 1
        || counts.add(element, bytes).is_err()
    {
        return Vec::new();
    }
    let table = Arc::new(counts.table().unwrap());
    let narrow = if table.largest() < 1 << 16 { 16 } else { 32 };
    let rank = match element.bits() > narrow {
        true => format!("u{narrow}+rank"),
        false => "rank".to_owned(),
    };
    let texts = compressors.iter().map(|it| format!("{rank}+{it}"));
    let chains = texts.chain([rank.clone()]);
    let chains = chains.filter_map(|text| Chain::parse(&text, element).ok());
    chains
        .map(|chain| chain.with_table(Arc::clone(&table)).unwrap())
        .collect()
}

/// What rank makes of them.
fn codes_bytes(chain: &Chain, bytes: &[u8]) -> usize {
    let text = chain.to_string();
    let Some((before, _)) = text.split_once("rank") else {
        return 0;
    };
    let alone = Chain::parse(&format!("{before}rank"), chain.source()).unwrap();
    let alone = alone
        .with_table(Arc::clone(chain.rank_table().unwrap()))
        .unwrap();
    encode(&alone, bytes, FRAME)
        .unwrap()
        .iter()
        .map(Vec::len)
        .sum()
}

/// The rule, as its documentation says it, in floating point: cost of a source byte, sequential.
fn worth(chain: &Chain, bytes: &[u8], stored_bytes: usize, prefer: Prefer) -> f64 {
    let weight = match prefer {
        Prefer::Speed => 8.0,
        Prefer::Balanced => 24.0,
        Prefer::Ratio => 2048.0,
    };
    let text = chain.to_string();
    let (mut step, mut by_codes, mut tables) = (0.0, 0.0, 0.0);
    let planes = 3_750.0 * f64::from(chain.packed_bits());
    for (name, decode, encode, table) in [
        ("rank", 4.0, 10.0, 0.0),
        ("shuffle", 1.0, 1.0, 0.0),
        ("floatsplit", 2.0, 8.0, planes),
        ("lz4", 3.0, 20.0, 0.0),
        ("lz4hc:9", 3.0, 160.0, 0.0),
        ("zstd:1", 10.0, 24.0, 30_000.0),
        ("zstd:3", 10.0, 40.0, 30_000.0),
        ("zstd:9", 10.0, 160.0, 30_000.0),
        ("zstd:19", 10.0, 1600.0, 30_000.0),
    ] {
        if text.split('+').any(|part| part == name) {
            // Of f16 it takes twice as long.
            let is_slow = name == "floatsplit" && chain.source() == ElementType::F16;
            let decode = if is_slow { 2.0 * decode } else { decode };
            let of_codes = text.contains("rank");
            *(if of_codes { &mut by_codes } else { &mut step }) += decode + encode / 64.0;
            tables += table;
        }
    }
    let packed = f64::from(chain.packed_bits()) / f64::from(chain.source().bits());
    let table = chain.rank_table().map_or(0, |table| table.stored_bytes());
    #[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
    let of = |part: usize| part as f64 / bytes.len() as f64;
    let stored = of(stored_bytes + usize::try_from(table).unwrap());
    let frame = usize::try_from(FRAME).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let frames = bytes.len().div_ceil(frame) as f64;
    let tables = tables * frames * of(1);
    weight * stored + step * packed + by_codes * of(codes_bytes(chain, bytes)) + tables
}

/// Of one run: nothing that keeps its bytes is worth more than what was chosen.
fn check(group: &Group, bytes: &[u8], prefer: Prefer) {
    let chosen = group.chosen().unwrap();
    let frame = chosen.frame_bytes;
    assert!(round_trip(&chosen.chain, bytes, frame.max(FRAME)) == bytes);
    let is_bytes = group.element == ElementType::U8 && group.kind != "raw elements";
    let length = |chain: &Chain| -> usize {
        let stored = encode(chain, bytes, FRAME).unwrap();
        stored.iter().map(Vec::len).sum()
    };
    let have = worth(&chosen.chain, bytes, length(&chosen.chain), prefer);
    for chain in every_chain(group.element, is_bytes, bytes, prefer) {
        let other = worth(&chain, bytes, length(&chain), prefer);
        assert!(
            have <= other + 1e-9,
            "{} is worth less than {chain}",
            chosen.chain
        );
    }
}

fn fixtures(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")).join(name)
}

/// Files of real data, one by one, whole: each is its own sample.
#[test]
fn real_data_get_the_best_chain_under_the_rule() {
    for (name, element, prefer) in [
        ("r50k-u32.bin", ElementType::U32, Prefer::Balanced),
        ("o200k-u32.bin", ElementType::I32, Prefer::Balanced),
        ("o200k-u32.bin", ElementType::U32, Prefer::Speed),
        ("tiny-u32.bin", ElementType::U32, Prefer::Balanced),
        ("tiny-u32.bin", ElementType::U32, Prefer::Ratio),
        ("weights-f32.bin", ElementType::F32, Prefer::Balanced),
    ] {
        let wish = Wish {
            prefer,
            ..ONE_FRAME
        };
        let path = fixtures("data").join(name);
        let chosen = Chosen::of(&[path], &[("*", element)], &wish);
        assert_eq!(chosen.choices.groups.len(), 1);
        chosen.each(|group, bytes| {
            assert_eq!(group.sampled_bytes, bytes.len() as u64);
            check(group, bytes, prefer);
        });
    }
}

/// What is chosen by ratio for samples makes them fetch the least that any candidate does, in small frames and large ones, within what its work to read and
/// to pack may weigh.
#[test]
fn by_ratio_samples_fetch_the_least() {
    let sample_bytes = 8 << 10;
    let of_frame = |frame_bytes| {
        let wish = Wish {
            prefer: Prefer::Ratio,
            access: Access::Random { sample_bytes },
            frame_bytes,
        };
        let file = [fixtures("data/o200k-u32.bin")];
        Chosen::of(&file, &[("*", ElementType::U32)], &wish)
    };
    // The table of ranks counts as stored, and much in so small a file.
    let fetched = |trial: &choose::Trial| {
        let table = trial.touched_bytes(sample_bytes) * trial.table_bytes;
        trial.fetched_bytes(sample_bytes) + table / trial.source_bytes
    };
    let least = [4 << 10, 64 << 10].map(|frame_bytes| {
        let framed = of_frame(Some(frame_bytes));
        let trials = framed.choices.groups[0].trials.iter();
        trials.map(fetched).min().unwrap()
    });
    let least = least.into_iter().min().unwrap();
    let free = of_frame(None);
    let chosen = free.choices.groups[0].chosen().unwrap();
    let (chain, frame_bytes) = (&chosen.chain, chosen.frame_bytes);
    let found = fetched(chosen);
    assert!(
        (least..=least * 102 / 100).contains(&found),
        "{chain} in {frame_bytes}: {found}, {least} is possible"
    );
}

/// Every file of every format: what is chosen gives it back, also where the group is of many.
#[test]
fn files_of_every_format_come_back() {
    let chosen = Chosen::of(&[fixtures("formats")], &[], &Wish::default());
    assert!(chosen.choices.groups.len() > 5);
    let mut files = 0;
    chosen.each(|group, bytes| {
        let it = group.chosen().unwrap();
        assert!(round_trip(&it.chain, bytes, it.frame_bytes.max(FRAME)) == bytes);
        files += 1;
    });
    assert!(files > 50, "{files}");
    // And each alone is the best for itself.
    for name in [
        "npy/ids-v2.npy",
        "safetensors/mixed.safetensors",
        "mds/f32/index.json",
        "megatron/text-i32.bin",
    ] {
        let alone = Chosen::of(&[fixtures("formats").join(name)], &[], &ONE_FRAME);
        for group in &alone.choices.groups {
            if let [(_, run)] = group.runs.as_slice() {
                let file = fs::read(fixtures("formats").join(name)).unwrap();
                let part =
                    usize::try_from(run.offset).unwrap()..usize::try_from(run.end()).unwrap();
                check(group, &file[part], Prefer::Balanced);
            }
        }
    }
}

/// Numerical Recipes' generator: its upper bits.
fn noise(count: usize) -> impl Iterator<Item = u32> {
    let mut state = 7u64;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    })
    .take(count)
}

/// Values without a pattern in every width: they are narrowed to exactly what they need, and never compressed.
#[test]
fn noise_is_narrowed_and_not_compressed() {
    let folder = tempfile::tempdir().unwrap();
    for (bits, wanted) in [
        (1, "bitpack:1"),
        (7, "bitpack:7"),
        (8, "u8"),
        (12, "bitpack:12"),
        (16, "u16"),
        (18, "bitpack:18"),
        (24, "bitpack:24"),
        (31, "bitpack:31"),
        (32, "none"),
    ] {
        let path = folder.path().join(format!("{bits}.bin"));
        let bytes: Vec<u8> = noise(40_000)
            .flat_map(|value| (value >> (32 - bits)).to_le_bytes())
            .collect();
        fs::write(&path, &bytes).unwrap();
        for prefer in [Prefer::Ratio, Prefer::Balanced, Prefer::Speed] {
            let wish = Wish {
                prefer,
                ..Wish::default()
            };
            let chosen = Chosen::of(
                std::slice::from_ref(&path),
                &[("*", ElementType::U32)],
                &wish,
            );
            let group = &chosen.choices.groups[0];
            let it = group.chosen().unwrap();
            // One bit of noise is the exception: shorter than a byte, codecs find nothing either.
            assert_eq!(it.chain.to_string(), wanted, "{bits} bits, {prefer:?}");
            assert_eq!(
                group.stored_bytes(bytes.len() as u64),
                (40_000u64 * bits).div_ceil(8)
            );
            assert!(round_trip(&it.chain, &bytes, FRAME) == bytes);
        }
    }
    // The same bytes as bytes, and what is compressed already.
    let plain = Chosen::of(&[folder.path().join("32.bin")], &[], &Wish::default());
    assert_eq!(
        plain.choices.groups[0].chosen().unwrap().chain.to_string(),
        "none"
    );
}

/// A function of the bytes and the wish: not of the number of threads, nor of the time it took.
#[test]
fn the_choice_is_the_same_again() {
    let inputs = [fixtures("formats"), fixtures("data/tiny-u32.bin")];
    let wish = Wish {
        access: Access::Random {
            sample_bytes: 16 << 10,
        },
        ..Wish::default()
    };
    let texts = |threads| -> Vec<String> {
        let chosen = Chosen::with(&inputs, &[("tiny*", ElementType::U32)], &wish, threads);
        let groups = chosen.choices.groups.iter();
        groups
            .flat_map(|group| {
                let trials = group.trials.iter();
                trials.map(|it| {
                    format!(
                        "{} {} {} {}",
                        group.kind, it.chain, it.frame_bytes, it.stored_bytes
                    )
                })
            })
            .collect()
    };
    let first = texts(1);
    assert!(first.len() > 20);
    assert_eq!(texts(3), first);
}

/// 2,000 small files of ids and 300 of text are two groups, tried as wholes; a wider file is a group of its own.
#[test]
fn small_files_are_chosen_for_together() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: String, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let mut ids = noise(200_000);
    for file in 0..2000 {
        let bytes: Vec<u8> = ids
            .by_ref()
            .take(100)
            .flat_map(|value| (value >> 16).to_le_bytes())
            .collect();
        write(format!("{file}.ids"), &bytes);
    }
    for file in 0..300 {
        write(
            format!("{file}.txt"),
            "the same words again and again. "
                .repeat(10 + file % 7)
                .as_bytes(),
        );
    }
    write("wide.ids".to_owned(), &70_000u32.to_le_bytes());
    let chosen = Chosen::of(
        &[folder.path().to_owned()],
        &[("*.ids", ElementType::U32)],
        &Wish::default(),
    );
    let seen: Vec<_> = chosen
        .choices
        .groups
        .iter()
        .map(|group| {
            let chain = group.chosen().unwrap().chain.to_string();
            (group.kind.as_str(), group.runs.len(), group.bytes, chain)
        })
        .collect();
    let text_bytes: u64 = (0..300).map(|file| 32 * (10 + file % 7)).sum();
    assert_eq!(seen[0], ("raw elements", 2000, 800_000, "u16".to_owned()));
    assert_eq!(
        (seen[1].0, seen[1].1, seen[1].2),
        ("unknown .txt", 300, text_bytes)
    );
    assert!(seen[1].3.contains("lz4"), "{}", seen[1].3);
    assert_eq!(seen[2], ("raw elements", 1, 4, "bitpack:17".to_owned()));
    assert_eq!(seen.len(), 3);
}
