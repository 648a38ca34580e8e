//! Views against what the formats' own writers write: fixtures/formats, made by its make.py.

#![allow(clippy::unwrap_used)] // tests

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::presented;
use formats::mds::{self, ChangedShard};
use formats::megatron::Index;
use formats::model::{self, Changed, ModelFile};
use formats::rules::Rules;
use formats::{
    ByteSource, Companion, Description, Dtype, Format, FormatError, Presentation, describe,
    describe_as,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/formats")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

fn described(name: &str) -> Description {
    describe(&read(name).as_slice()).unwrap()
}

/// The view of a file by rules.
fn view(name: &str, rules: &str, alignment: u64) -> Result<Presentation, FormatError> {
    let (source, rules) = (read(name), rules.parse::<Rules>().unwrap());
    let source = source.as_slice();
    describe(&source)?.present(&source, &|payload| rules.target(payload), alignment)
}

fn case(line: &str) {
    let [source, rules, expected] = line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{line}");
    };
    if let Some(stem) = source.strip_suffix(".idx") {
        return pair(stem, rules, expected.strip_suffix(".idx").unwrap());
    }
    let view = view(source, rules, 8).unwrap();
    assert!(presented(&read(source), &view) == read(expected), "{line}");
}

fn pair(stem: &str, rules: &str, expected: &str) {
    let (idx, bin) = (read(&format!("{stem}.idx")), read(&format!("{stem}.bin")));
    let dtype = Dtype::from(rules.parse::<transforms::ElementType>().unwrap());
    let index = Index::read(&idx.as_slice(), bin.len() as u64).unwrap();
    let view = index.present(&idx.as_slice(), dtype).unwrap();
    assert!(
        presented(&idx, &view) == read(&format!("{expected}.idx")),
        "{stem}.idx"
    );
    let source = bin.as_slice();
    let view = index
        .describe_bin()
        .present(&source, &|_| Some(dtype), 1)
        .unwrap();
    assert!(
        presented(&bin, &view) == read(&format!("{expected}.bin")),
        "{stem}.bin"
    );
}

#[test]
fn a_view_is_the_file_that_the_formats_own_writer_writes() {
    let cases = String::from_utf8(read("cases.txt")).unwrap();
    assert_eq!(cases.lines().count(), 24);
    cases.lines().for_each(case);
}

#[test]
fn data_start_at_4096_where_the_header_can_grow() {
    for (source, rules, expected) in [
        ("npy/plane.npy", "f16", "npy/plane.f16.npy"),
        ("npy/ids-v2.npy", "u16", "npy/ids-v2.u16.npy"),
        (
            "safetensors/mixed.safetensors",
            "wide=keep,*=f16",
            "safetensors/mixed.f16.safetensors",
        ),
    ] {
        let bytes = presented(&read(source), &view(source, rules, 4096).unwrap());
        let (ours, theirs) = (describe(&bytes.as_slice()).unwrap(), described(expected));
        let start = |d: &Description| usize::try_from(d.payloads[0].offset).unwrap();
        assert_eq!(start(&ours), 4096);
        let expected = read(expected);
        assert_eq!(bytes[4096..], expected[start(&theirs)..]);
        // The headers differ in their padding, and in the length that counts it.
        let text = |header: &[u8]| {
            let from = header.iter().position(|byte| *byte == b'{').unwrap();
            String::from_utf8(header[from..].to_vec()).unwrap()
        };
        let trimmed = |text: String| text.trim_end().to_owned();
        assert_eq!(
            trimmed(text(&bytes[..4096])),
            trimmed(text(&expected[..start(&theirs)]))
        );
    }
}

#[test]
fn every_file_is_what_it_is_whatever_its_name() {
    for (name, format, reason) in [
        ("safetensors/mixed.safetensors", Format::Safetensors, None),
        ("npy/plane.npy", Format::Npy, None),
        ("npy/big-endian.npy", Format::Npy, Some("big-endian (>f4)")),
        ("npy/objects.npy", Format::Npy, Some("pickled")),
        ("npy/records.npy", Format::Npy, Some("records")),
        ("npy/strings.npy", Format::Npy, Some("<U2")),
        ("npy/two.npz", Format::Npz, Some(".npy")),
        ("megatron/text-i32.idx", Format::MegatronIndex, Some(".bin")),
        ("megatron/text-i32.bin", Format::Unknown, Some("not known")),
        ("llmc/ids-u16.bin", Format::LlmC, None),
        (
            "llmc/headerless-u16.bin",
            Format::Unknown,
            Some("not known"),
        ),
        ("gguf/model.gguf", Format::Gguf, None),
        ("mds/f32/shard.00001.mds", Format::MdsShard, None),
        ("mds/f32/index.json", Format::MdsIndex, Some("shards")),
        (
            "mds/zip/shard.00000.mds.bz2",
            Format::Unknown,
            Some("not known"),
        ),
        (
            "model/f32/model.safetensors.index.json",
            Format::SafetensorsIndex,
            Some("shards"),
        ),
        ("model/f32/config.json", Format::Unknown, Some("not known")),
        ("other/a.tar", Format::Tar, Some("512")),
        ("other/a.parquet", Format::Parquet, Some("compressed")),
        ("other/a.jpeg", Format::Jpeg, Some("compressed")),
    ] {
        let found = described(name);
        assert_eq!(found.format, format, "{name}");
        match (reason, &found.pass_through) {
            (None, None) => {}
            (Some(part), Some(found)) => assert!(found.contains(part), "{name}: {found}"),
            (_, found) => panic!("{name}: {found:?}"),
        }
        let source = read(name);
        let exact = found.present(&source.as_slice(), &|_| None, 4096).unwrap();
        assert!(exact.is_exact(source.len() as u64), "{name}");
    }
}

#[test]
fn payloads_are_where_the_readers_find_them() {
    let gguf = described("gguf/aligned.gguf");
    let rows: Vec<_> = gguf
        .payloads
        .iter()
        .map(|p| (p.name.as_str(), p.offset % 256, p.bytes, p.shape.clone()))
        .collect();
    assert_eq!(
        rows,
        [
            ("token_embd.weight", 0, 768, vec![6, 32]),
            ("blk.0.norm.weight", 0, 132, vec![33]),
            ("blk.0.q.weight", 0, 40, vec![1, 2, 5]),
            ("blk.0.k.weight", 0, 136, vec![2, 64]),
        ]
    );
    assert_eq!(gguf.payloads[3].contents, formats::Contents::Opaque("Q8_0"));
    let mds = described("mds/f32/shard.00000.mds");
    let shapes: Vec<_> = mds
        .payloads
        .iter()
        .take(3)
        .map(|p| (p.name.as_str(), p.shape.clone(), p.bytes))
        .collect();
    assert_eq!(
        shapes,
        [
            ("any", vec![2, 1], 8),
            ("fixed", vec![2, 3], 24),
            ("typed", vec![1], 4)
        ]
    );
    let gaps = gguf.headers();
    assert_eq!(gaps[0], 0..gguf.payloads[0].offset);
    let covered: u64 = gguf.payloads.iter().map(|p| p.bytes).sum();
    let rest: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
    assert_eq!((covered + rest, gaps.len()), (gguf.file_bytes, 4));
    let tar = described("other/a.tar").headers();
    assert!(tar.len() == 1 && tar[0] == (0..1536), "{tar:?}");
    let place = mds.payloads[1].offset;
    assert_eq!(mds.payload_at(place + 23), Some(&mds.payloads[1]));
    assert_eq!(mds.payload_at(place + 24), None);
}

#[test]
fn what_belongs_to_a_file_is_named() {
    let listed = |names: &[&str]| -> Vec<Companion> {
        names
            .iter()
            .map(|n| Companion::Listed((*n).to_owned()))
            .collect()
    };
    for (name, expected) in [
        ("megatron/text-i32.idx", vec![Companion::Extension("bin")]),
        (
            "mds/f32/shard.00002.mds",
            vec![Companion::Name("index.json")],
        ),
        (
            "model/f32/model.safetensors.index.json",
            listed(&[
                "model-00002-of-00002.safetensors",
                "model-00001-of-00002.safetensors",
            ]),
        ),
        (
            "mds/zip/index.json",
            listed(&[
                "shard.00000.mds.bz2",
                "shard.00001.mds.bz2",
                "shard.00002.mds.bz2",
                "shard.00003.mds.bz2",
            ]),
        ),
        ("npy/plane.npy", vec![]),
    ] {
        assert_eq!(described(name).companions, expected, "{name}");
    }
    for name in ["../a", "/etc/passwd", "a/../b", "", ".."] {
        let index = format!("{{\"weight_map\": {{\"w\": \"{name}\"}}}}");
        let error = describe(&index.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("which is not below its folder"), "{error}");
    }
    assert!(describe(&&b"{\"weight_map\": {\"w\": \"parts/a\"}}"[..]).is_ok());
}

#[test]
fn what_a_format_cannot_say_is_refused_with_the_way_out() {
    let refusals = [
        ("npy/plane.npy", "bf16", "present f16 or f32"),
        (
            "llmc/ids-u16.bin",
            "i32",
            "u16 (gpt-2) and u32 (llama-3) only",
        ),
        ("gguf/model.gguf", "f16", "a pattern, as '*=bf16', leaves"),
        (
            "gguf/model.gguf",
            "*@2+=f64",
            "only f32 becomes another type",
        ),
        (
            "mds/f32/shard.00000.mds",
            "bf16",
            "no bf16; present f16 or f32",
        ),
    ];
    for (name, rules, part) in refusals {
        let error = view(name, rules, 4096).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, FormatError::Refused { .. }) && text.contains(part),
            "{name}: {text}"
        );
    }
    let idx = read("megatron/text-i32.idx");
    let index = Index::read(&idx.as_slice(), 1292).unwrap();
    let error = index.present(&idx.as_slice(), Dtype::U32).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no u32: Megatron itself takes uint16 for vocabularies below 65,500")
    );
    assert!(index.present(&idx.as_slice(), Dtype::F32).is_err());
    // A target that is no rule: the tensor is named.
    let source = read("safetensors/mixed.safetensors");
    let source = source.as_slice();
    let description = describe(&source).unwrap();
    let all = description
        .present(&source, &|_| Some(Dtype::F16), 8)
        .unwrap_err();
    assert!(
        all.to_string()
            .starts_with("ids: i64 as f16: integers stay integers")
    );
    let odd = description.present(&source, &|_| None, 3).unwrap_err();
    assert!(odd.to_string().contains("no power of two"));
}

#[test]
fn a_file_without_a_header_is_what_the_user_says() {
    let source = read("llmc/headerless-u16.bin");
    let unknown = describe(&source.as_slice()).unwrap();
    assert!(unknown.notes[0].ends_with("--as u16"));
    let ids = describe_as(&source.as_slice(), Dtype::U16).unwrap();
    assert_eq!(ids.payloads[0].shape, [1000]);
    let view = ids
        .present(&source.as_slice(), &|_| Some(Dtype::U32), 8)
        .unwrap();
    assert_eq!(presented(&source, &view), read("llmc/ids-u32.bin")[1024..]);
    let odd = describe_as(&&source[1..], Dtype::U16).unwrap_err();
    assert!(
        odd.to_string()
            .contains("1999 bytes are no whole number of u16")
    );
}

/// What streaming's index says of each shard, with the shard's own presented bytes.
fn changed_shards() -> Vec<Option<ChangedShard>> {
    let rules = Rules::all(Dtype::F16);
    let theirs = read("mds/f16/index.json");
    let theirs = mds::Index::read(&theirs.as_slice()).unwrap();
    let one = |entry: &mds::ShardEntry| {
        let name = format!("mds/f32/{}", entry.raw.basename);
        let description = described(&name);
        let bytes = view(&name, "f16", 8).unwrap().bytes();
        assert_eq!(bytes, entry.raw.bytes);
        Some(ChangedShard {
            bytes,
            hashes: entry.raw.hashes.clone(),
            columns: mds::presented_columns(&description, &|p| rules.target(p)).unwrap(),
        })
    };
    theirs.shards().iter().map(one).collect()
}

#[test]
fn an_mds_index_follows_its_shards() {
    let index = read("mds/f32/index.json");
    let index = mds::Index::read(&index.as_slice()).unwrap();
    let none = vec![None; index.shards().len()];
    assert!(index.present(&none).unwrap().is_exact(1939));
    let changed = changed_shards();
    let view = index.present(&changed).unwrap();
    assert_eq!(presented(&[], &view), read("mds/f16/index.json"));
    let mut without_hash = changed.clone();
    without_hash[1].as_mut().unwrap().hashes.remove("sha1");
    let error = index.present(&without_hash).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the sha1 of its presented bytes")
    );
    assert!(index.present(&changed[1..]).is_err());
}

#[test]
fn compressed_shards_are_presented_raw() {
    let text = read("mds/zip/index.json");
    let index = mds::Index::read(&text.as_slice()).unwrap();
    let first = &index.shards()[0];
    assert_eq!(first.compression.as_deref(), Some("bz2:9"));
    assert_eq!(first.zip.as_ref().unwrap().bytes, 346);
    let view = index.present(&vec![None; index.shards().len()]).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&presented(&text, &view)).unwrap();
    let mut expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for shard in expected["shards"].as_array_mut().unwrap() {
        shard["compression"] = serde_json::Value::Null;
        shard["zip_data"] = serde_json::Value::Null;
    }
    assert_eq!(found, expected);
}

/// The files of a model's folder, by name.
fn model_files(name: &str) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(folder().join(name))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

fn plan_of(files: &BTreeMap<String, Vec<u8>>, rules: &str) -> Result<model::Plan, FormatError> {
    let slices: Vec<_> = files
        .iter()
        .map(|(n, bytes)| (n, bytes.as_slice()))
        .collect();
    let files: Vec<_> = slices
        .iter()
        .map(|(name, source)| ModelFile {
            name,
            source: source as &dyn ByteSource,
            is_kept: false,
        })
        .collect();
    model::plan(&files, &rules.parse()?, 8)
}

#[test]
fn a_model_view_is_the_model_saved_in_the_other_type() {
    let (source, expected) = (model_files("model/f32"), model_files("model/bf16"));
    assert_eq!(source.len(), 5);
    let plan = plan_of(&source, "*norm*=keep,bf16").unwrap();
    for file in &plan.files {
        let bytes = presented(&source[&file.name], &file.presentation);
        let shown = String::from_utf8_lossy(&bytes);
        assert!(bytes == expected[&file.name], "{}: {shown}", file.name);
    }
    let changed = Changed {
        tensors: 2,
        bytes: 288,
    };
    assert_eq!(plan.changes, [((Dtype::F32, Dtype::Bf16), changed)].into());
    assert_eq!(plan.notes, Vec::<String>::new());
    let rules = "*norm*=keep,bf16".parse().unwrap();
    let unchanged: Vec<_> = model::unchanged(&plan, &rules)
        .map(|(_, p)| &p.name)
        .collect();
    assert_eq!(unchanged, ["model.norm.weight", "model.ids"]);
}

#[test]
fn a_model_without_changes_is_exact_and_a_minority_leaves_the_configuration() {
    let source = model_files("model/f32");
    let exact = plan_of(&source, "keep").unwrap();
    for file in &exact.files {
        assert!(
            file.presentation.is_exact(file.description.file_bytes),
            "{}",
            file.name
        );
    }
    let minority = plan_of(&source, "*norm*=bf16").unwrap();
    let config = minority
        .files
        .iter()
        .find(|f| f.name == "config.json")
        .unwrap();
    assert!(config.presentation.is_exact(121));
    assert_eq!(minority.notes.len(), 2);
    assert!(minority.notes[0].starts_with("config.json: names float32"));
}

#[test]
fn a_model_whose_index_does_not_fit_its_shards_is_refused() {
    let mut source = model_files("model/f32");
    let first = source.remove("model-00001-of-00002.safetensors").unwrap();
    let error = plan_of(&source, "bf16").unwrap_err().to_string();
    assert!(error.contains("names \"model-00001-of-00002.safetensors\", which is not there"));
    let second = source["model-00002-of-00002.safetensors"].clone();
    source.insert("model-00001-of-00002.safetensors".to_owned(), second);
    let error = plan_of(&source, "bf16").unwrap_err().to_string();
    assert!(
        error.contains("does not hold \"model.embed.weight\""),
        "{error}"
    );
    let index = "model.safetensors.index.json";
    let twice = String::from_utf8(source[index].clone()).unwrap();
    let twice = twice.replace("model.ids", "lm_head.weight");
    let good = source.insert(index.to_owned(), twice.into_bytes()).unwrap();
    let error = plan_of(&source, "bf16").unwrap_err().to_string();
    assert!(
        error.contains("weight_map: \"lm_head.weight\" comes twice"),
        "{error}"
    );
    source.insert(index.to_owned(), good);
    source.insert(
        "model-00001-of-00002.safetensors".to_owned(),
        first[..first.len() - 1].to_vec(),
    );
    let error = plan_of(&source, "bf16").unwrap_err().to_string();
    assert!(
        error.starts_with(
            "model-00001-of-00002.safetensors: not a valid safetensors file: at byte "
        ),
        "{error}"
    );
}

/// What a hub has beside safetensors: torch's shards with an index of their own, as zip archives or as pickles.
#[test]
fn an_index_of_shards_that_stay_is_not_looked_into() {
    let expected = model_files("model/bf16");
    for shard in [&b"PK\x03\x04 and so on"[..], b"\x80\x02 a pickle"] {
        let mut source = model_files("model/f32");
        let torch = br#"{"weight_map": {"w": "pytorch_model-1.bin", "v": "elsewhere.bin"}}"#;
        source.insert("pytorch_model.bin.index.json".to_owned(), torch.to_vec());
        source.insert("pytorch_model-1.bin".to_owned(), shard.to_vec());
        let plan = plan_of(&source, "*norm*=keep,bf16").unwrap();
        for file in &plan.files {
            let bytes = presented(&source[&file.name], &file.presentation);
            let wanted = expected.get(&file.name).unwrap_or(&source[&file.name]);
            assert!(bytes == *wanted, "{}", file.name);
        }
    }
    let mut source = model_files("model/f32");
    source.remove("model-00001-of-00002.safetensors");
    assert_eq!(
        plan_of(&source, "bf16").unwrap_err().to_string(),
        "model.safetensors.index.json: names \"model-00001-of-00002.safetensors\", which is not there: mend that, or leave the weights as they are with --keep '*.safetensors'"
    );
}

/// One index over safetensors, which change, and torch's zip archives, into which nobody looks.
#[test]
fn an_index_of_some_shards_that_stay_counts_what_the_others_became() {
    let index = "model.safetensors.index.json";
    let mut source = model_files("model/f32");
    let of_both = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        let map = "\"weight_map\": {";
        text.replace(map, &format!("{map}\"w\": \"torch.bin\", "))
    };
    source.insert(index.to_owned(), of_both(&source[index]).into_bytes());
    source.insert("torch.bin".to_owned(), b"PK\x03\x04 and so on".to_vec());
    let plan = plan_of(&source, "*norm*=keep,bf16").unwrap();
    let planned = plan.files.iter().find(|file| file.name == index).unwrap();
    let found = presented(&source[index], &planned.presentation);
    let wanted = of_both(&model_files("model/bf16")[index]);
    assert_eq!(String::from_utf8(found).unwrap(), wanted);
}

#[test]
fn a_type_for_everything_leaves_what_gguf_does_not_convert() {
    let name = "model.gguf".to_owned();
    let f16 = std::fs::read(folder().join("gguf/model.f16.gguf")).unwrap();
    let source = BTreeMap::from([(name, f16)]);
    for rules in ["f32", "bf16", "f64"] {
        let plan = plan_of(&source, rules).unwrap();
        let bytes = source["model.gguf"].len() as u64;
        assert!(plan.files[0].presentation.is_exact(bytes), "{rules}");
        assert!(plan.changes.is_empty(), "{rules}");
    }
}

#[test]
fn patterns_leave_what_gguf_does_not_convert_and_a_name_is_refused() {
    let file = std::fs::read(folder().join("gguf/model.gguf")).unwrap();
    let description = describe(&file.as_slice()).unwrap();
    let mut norms = description.payloads.iter().filter(|it| it.rank() == 1);
    let norm = norms.next().unwrap().name.clone();
    let source = BTreeMap::from([("model.gguf".to_owned(), file)]);
    let all = plan_of(&source, "bf16").unwrap();
    assert_eq!(all.notes, [""; 0]);
    let kept = "nothing has this name=keep,bf16";
    for rules in ["*=bf16", "*@2+=bf16", kept, "*=bf16,*=f16", "*@0+=bf16"] {
        let plan = plan_of(&source, rules).unwrap();
        assert_eq!(plan.changes, all.changes, "{rules}");
        let left = "left as in the file: in GGUF only f32 becomes another type";
        let is_noted = plan.notes.iter().any(|note| note.contains(left));
        assert_eq!(
            is_noted,
            rules == kept || rules == "*=bf16,*=f16",
            "{rules}: {:?}",
            plan.notes
        );
    }
    let f16 = std::fs::read(folder().join("gguf/model.f16.gguf")).unwrap();
    let wide = BTreeMap::from([("model.gguf".to_owned(), f16)]);
    let plan = plan_of(&wide, "*@2+=f32").unwrap();
    assert!(plan.changes.is_empty() && plan.notes[0].contains("left as in the file"));
    let named = plan_of(&source, &format!("{norm}=bf16,*=bf16")).unwrap_err();
    let named = named.to_string();
    assert!(
        named.contains(&format!("{norm}: a GGUF tensor of one dimension stays f32")),
        "{named}"
    );
}
