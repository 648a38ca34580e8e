//! What a view presents of files that name one another: every index says of its files what they are in the view.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dataset::measure::{self, Sink};
use dataset::{Catalogue, DatasetError, Entry, FileId, Hints, Pattern, Precisions, Scan, View};
use tempfile::TempDir;

fn fixture(name: &str) -> Vec<u8> {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/formats");
    fs::read(formats.join(name)).unwrap()
}

/// A folder, and what is presented of it.
struct Input {
    folder: TempDir,
}

impl Input {
    fn new() -> Input {
        let folder = TempDir::new().unwrap();
        Input { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn link(&self, name: &str, target: &str) {
        symlink(target, self.path(name)).unwrap();
    }

    fn view(&self, present_as: &str, keep: &[&str]) -> Result<Presented, DatasetError> {
        let scan = Scan::new(&[self.folder.path().to_owned()])?;
        let keep = keep.iter().map(|it| it.parse::<Pattern>().unwrap());
        let hints = Hints {
            keep: keep.collect(),
            ..Hints::default()
        };
        let catalogue = Catalogue::new(&scan, &hints)?;
        catalogue.check(&scan)?;
        let precisions: Precisions = present_as.parse().unwrap();
        let view = View::new(&scan, &catalogue, &precisions.0[0])?;
        Ok(Presented {
            scan,
            catalogue,
            view,
        })
    }
}

struct Presented {
    scan: Scan,
    catalogue: Catalogue,
    view: View,
}

impl Presented {
    /// The first of the file's names.
    fn name(&self, id: FileId) -> String {
        let mut entries = self.scan.entries.iter();
        entries.find(|it| it.file() == Some(id)).unwrap().shown()
    }

    fn place(&self, name: &str) -> usize {
        let is_it = |entry: &Entry| entry.path == name.as_bytes();
        self.scan.entries.iter().position(is_it).unwrap()
    }

    /// Whether the name is a file of its own, and no longer a link.
    fn is_changed(&self, name: &str) -> bool {
        self.view.changed.contains_key(&self.place(name))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        struct All(Vec<u8>);
        impl Sink for All {
            fn bytes(&mut self, presented: &[u8]) {
                self.0.extend_from_slice(presented);
            }
        }
        let place = self.place(name);
        let file = self.scan.file(self.scan.entries[place].file().unwrap());
        let file = file.unwrap();
        let presented = self.view.presentation(place, file.bytes);
        let mut all = All(Vec::new());
        measure::feed(&file.open().unwrap(), &file.path, &presented, &mut all).unwrap();
        all.0
    }
}

/// An index as megatron-core writes it, of sequences one behind another.
fn idx(code: u8, width: u64, lengths: &[u32]) -> Vec<u8> {
    let mut index = b"MMIDIDX\0\0".to_vec();
    index.extend(1u64.to_le_bytes());
    index.push(code);
    index.extend((lengths.len() as u64).to_le_bytes());
    index.extend(2u64.to_le_bytes());
    index.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
    let mut pointer = 0;
    for length in lengths {
        index.extend(u64::to_le_bytes(pointer));
        pointer += u64::from(*length) * width;
    }
    index.extend(
        [0, lengths.len() as u64]
            .iter()
            .flat_map(|it| it.to_le_bytes()),
    );
    index
}

const I32: u8 = 4;
const U16: u8 = 8;

fn ids(width: usize) -> Vec<u8> {
    let ids = (0..1000u32).flat_map(|id| id.to_le_bytes()[..width].to_vec());
    ids.collect()
}

/// A hub's cache: two revisions of an index over one `.bin`.
#[test]
fn each_index_of_a_shared_bin_has_its_own_pointers() {
    let hub = Input::new();
    hub.write("blobs/b", ids(4));
    for (revision, lengths) in [("1", [500, 500]), ("2", [300, 700])] {
        hub.write(&format!("blobs/i{revision}"), idx(I32, 4, &lengths));
        let snapshot = format!("snapshots/r{revision}/t");
        hub.link(&format!("{snapshot}.bin"), "../../blobs/b");
        hub.link(
            &format!("{snapshot}.idx"),
            &format!("../../blobs/i{revision}"),
        );
    }
    let presented = hub.view("u16", &[]).unwrap();
    for (revision, lengths) in [("1", [500, 500]), ("2", [300, 700])] {
        let snapshot = format!("snapshots/r{revision}/t");
        let index = presented.bytes(&format!("{snapshot}.idx"));
        assert_eq!(index, idx(U16, 2, &lengths), "{revision}");
        // A link, to ids that are the same for both.
        assert!(!presented.is_changed(&format!("{snapshot}.bin")));
        // The blob is no index by its name.
        let blob = presented.bytes(&format!("blobs/i{revision}"));
        assert_eq!(blob, idx(I32, 4, &lengths));
    }
    assert_eq!(presented.bytes("blobs/b"), ids(2));
}

/// Hard links and links beside each other, the one or the other first, of indexes of different lengths.
#[test]
fn each_name_of_a_bin_has_the_index_beside_it() {
    for other in ["a", "z"] {
        for is_hard in [false, true] {
            let input = Input::new();
            input.write("m.bin", ids(4));
            input.write("m.idx", idx(I32, 4, &[500, 500]));
            input.write(&format!("{other}.idx"), idx(I32, 4, &[10, 20, 30]));
            let name = format!("{other}.bin");
            match is_hard {
                true => fs::hard_link(input.path("m.bin"), input.path(&name)).unwrap(),
                false => input.link(&name, "m.bin"),
            }
            let presented = input.view("u16", &[]).unwrap();
            assert_eq!(presented.bytes("m.idx"), idx(U16, 2, &[500, 500]));
            let index = presented.bytes(&format!("{other}.idx"));
            assert_eq!(index, idx(U16, 2, &[10, 20, 30]), "{other} {is_hard}");
            assert_eq!(presented.bytes("m.bin"), ids(2));
            assert_eq!(presented.is_changed(&name), is_hard);
        }
    }
}

#[test]
fn every_index_of_a_bin_is_checked() {
    let input = Input::new();
    input.write("m.bin", ids(4));
    input.write("m.idx", idx(I32, 4, &[500, 500]));
    input.link("z.bin", "m.bin");
    input.write("z.idx", idx(I32, 4, &[500, 501]));
    let refusal = input.view("u16", &[]).map(drop).unwrap_err().to_string();
    let wanted = "z.idx: not a valid Megatron index file: at byte 50: sequence 1: 501 ids at byte 2000 do not lie in a .bin of 4000 bytes; mend it, or pass it through as bytes with --keep 'z.idx'";
    assert!(refusal.ends_with(wanted), "{refusal}");
    // With one half of a pair the .bin is kept, under each of its names.
    for keep in ["z.idx", "z.bin", "m.idx"] {
        let presented = input.view("u16", &[keep]).unwrap();
        assert!(presented.view.changed.is_empty(), "{keep}");
    }
}

#[test]
fn indexes_that_disagree_on_a_type_are_presented_as_they_are_or_refused() {
    let input = Input::new();
    input.write("m.bin", ids(4));
    input.write("m.idx", idx(I32, 4, &[500, 500]));
    input.link("z.bin", "m.bin");
    input.write("z.idx", idx(U16, 2, &[1000, 1000]));
    assert!(input.view("source", &[]).unwrap().view.changed.is_empty());
    let refusal = input.view("u16", &[]).map(drop).unwrap_err().to_string();
    let wanted = "z.idx says that z.bin is of u16, another index of this file that it is of i32: leave them as they are with --keep 'z.bin'";
    assert!(refusal.ends_with(wanted), "{refusal}");
    assert!(
        input
            .view("u16", &["z.bin"])
            .unwrap()
            .view
            .changed
            .is_empty()
    );
}

#[test]
fn a_link_becomes_a_file_where_it_would_lead_to_other_bytes() {
    let input = Input::new();
    input.write("t.bin", ids(4));
    input.write("t.idx", idx(I32, 4, &[500, 500]));
    // Another .bin, which stays as it is, so its index has to.
    input.write("kept.bin", [ids(4), ids(4)].concat());
    input.link("kept.idx", "t.idx");
    // The same pair under other names, by way of one another.
    input.link("more/u.bin", "../t.bin");
    input.link("more/u.idx", "../t.idx");
    input.link("more/v.bin", "u.bin");
    input.link("more/v.idx", "u.idx");
    let presented = input.view("u16", &["kept.bin"]).unwrap();
    assert_eq!(presented.bytes("t.idx"), idx(U16, 2, &[500, 500]));
    assert_eq!(presented.bytes("kept.idx"), idx(I32, 4, &[500, 500]));
    assert!(presented.is_changed("kept.idx"));
    for name in ["more/u.bin", "more/u.idx", "more/v.bin", "more/v.idx"] {
        assert!(!presented.is_changed(name), "{name}");
    }
}

const MDS: [&str; 4] = [
    "shard.00000.mds",
    "shard.00001.mds",
    "shard.00002.mds",
    "shard.00003.mds",
];

/// The index that streaming's `merge_index` makes of those in these folders.
fn merged(index: &str, folders: &[&str]) -> String {
    let (begin, end) = (r#"{"shards": ["#, r#"], "version": 2}"#);
    let shards = index.trim_end().strip_prefix(begin).unwrap();
    let shards = shards.strip_suffix(end).unwrap();
    let of = |folder: &&str| {
        let named = format!(r#""basename": "{folder}/shard"#);
        shards.replace(r#""basename": "shard"#, &named)
    };
    let all: Vec<String> = folders.iter().map(of).collect();
    format!("{begin}{}{end}", all.join(", "))
}

#[test]
fn a_merged_index_and_those_it_was_merged_of_are_rewritten_alike() {
    let [source, changed] = ["f32", "f16"].map(|dtype| {
        let index = fixture(&format!("mds/{dtype}/index.json"));
        String::from_utf8(index).unwrap()
    });
    for has_parts in [true, false] {
        let input = Input::new();
        for part in ["0", "1/deep"] {
            for name in MDS {
                input.write(
                    &format!("{part}/{name}"),
                    fixture(&format!("mds/f32/{name}")),
                );
            }
            if has_parts {
                input.write(&format!("{part}/index.json"), &source);
            }
        }
        // By way of a link to a folder, which stays one.
        input.link("deep", "1/deep");
        input.write("index.json", merged(&source, &["0", "deep"]));
        let presented = input.view("f16", &[]).unwrap();
        let root = String::from_utf8(presented.bytes("index.json")).unwrap();
        assert_eq!(root, merged(&changed, &["0", "deep"]));
        for part in ["0", "1/deep"] {
            for name in MDS {
                let shard = presented.bytes(&format!("{part}/{name}"));
                assert!(
                    shard == fixture(&format!("mds/f16/{name}")),
                    "{part} {name}"
                );
            }
            if has_parts {
                let index = presented.bytes(&format!("{part}/index.json"));
                assert_eq!(String::from_utf8(index).unwrap(), changed);
            }
        }
    }
}

#[test]
fn weights_in_another_folder_are_those_of_the_index_that_names_them() {
    let input = Input::new();
    let index = "model.safetensors.index.json";
    let [source, changed] = ["f32", "bf16"].map(|dtype| {
        let index = String::from_utf8(fixture(&format!("model/{dtype}/{index}"))).unwrap();
        index.replace("\"model-0", "\"w/model-0")
    });
    input.write(index, &source);
    input.write("config.json", fixture("model/f32/config.json"));
    for shard in ["model-00001-of-00002", "model-00002-of-00002"] {
        let name = format!("{shard}.safetensors");
        input.write(&format!("w/{name}"), fixture(&format!("model/f32/{name}")));
    }
    let presented = input.view("*norm*=keep,bf16", &[]).unwrap();
    assert_eq!(String::from_utf8(presented.bytes(index)).unwrap(), changed);
    assert!(presented.bytes("config.json") == fixture("model/bf16/config.json"));
    assert!(presented.is_changed("w/model-00001-of-00002.safetensors"));
}

#[test]
fn what_stays_although_another_type_is_asked_for_has_a_reason() {
    let input = Input::new();
    for name in ["index.json", "shard.00000.mds.bz2", "shard.00001.mds.bz2"] {
        input.write(&format!("zip/{name}"), fixture(&format!("mds/zip/{name}")));
    }
    input.write("lone/shard.mds", fixture("mds/f32/shard.00000.mds"));
    input.write("lone/f.idx", idx(6, 8, &[500, 500]));
    input.write("lone/i.idx", idx(I32, 4, &[500, 500]));
    input.write("lone/n.IDX", idx(7, 4, &[500, 500]));
    input.write("lone/n.BIN", ids(4));
    input.write("m.gguf", fixture("gguf/model.bf16.gguf"));
    input.write("ids.npy", fixture("npy/ids-v1.npy"));
    let presented = input.view("f32", &[]).unwrap();
    let told = presented.view.unconverted.iter();
    let told = told.filter(|(why, _)| why.is_told());
    let said: Vec<String> = told
        .map(|(why, files)| {
            let names = files.iter().map(|id| presented.name(*id));
            let names = names.collect::<Vec<_>>().join(", ");
            format!("{} ({names}): {why}", why.what())
        })
        .collect();
    let wanted = [
        "u32 (ids.npy): u32 does not become f32",
        "GGUF bf16 (m.gguf): in GGUF only f32 becomes another type, f16 or bf16, and f32, f16 and bf16 become q8_0 where a row has a multiple of 32 elements, in tensors of two and more dimensions",
        "compressed MDS (zip/shard.00000.mds.bz2, zip/shard.00001.mds.bz2): their arrays are compressed; 'xio pack --unzip' stores them raw",
        "Megatron index (lone/f.idx): a .bin of the same name is not beside them",
        "unknown format (lone/n.BIN): no format is known here; '--as PATTERN=TYPE' says what bare elements are",
    ];
    assert_eq!(said, wanted);
    let presented = input.view("f16", &[]).unwrap();
    let lone = presented.view.unconverted.iter();
    let lone = lone.filter(|(why, _)| why.to_string() == "no index.json names them");
    assert_eq!(lone.map(|(_, files)| files.len()).collect::<Vec<_>>(), [1]);
}

/// Whatever a file is: it changes, or there is a reason.
#[test]
fn every_file_that_stays_has_a_reason() {
    let input = Input::new();
    for name in [
        "other/a.jpeg",
        "other/a.tar",
        "npy/strings.npy",
        "npy/plane.npy",
        "npy/plane.f16.npy",
        "npy/ids-v1.npy",
        "megatron/text-i32.bin",
        "megatron/text-i32.idx",
        "model/f32/config.json",
        "model/f32/tokenizer.json",
        "model/f32/model.safetensors.index.json",
        "model/f32/model-00001-of-00002.safetensors",
        "model/f32/model-00002-of-00002.safetensors",
    ] {
        input.write(name, fixture(name));
    }
    // Its norms are of f32, and become f16; its configuration names bf16.
    for name in ["config.json", "model-00001-of-00002.safetensors"] {
        input.write(
            &format!("bf16/{name}"),
            fixture(&format!("model/bf16/{name}")),
        );
    }
    input.write("README", "words");
    input.write("kept.npy", fixture("npy/plane.npy"));
    input.write("empty", "");
    input.write("half.bin", ids(4));
    input.write("half.idx", idx(I32, 4, &[500, 500]));
    let presented = input.view("f16", &["kept.npy", "half.idx"]).unwrap();
    let reasons = presented.view.as_they_are(&presented.catalogue);
    let said: Vec<String> = reasons
        .iter()
        .map(|(id, why)| format!("{}: {why}", presented.name(*id)))
        .collect();
    let unknown = "no format is known here; '--as PATTERN=TYPE' says what bare elements are";
    let wanted = [
        &format!("README: {unknown}"),
        "empty: it is empty",
        "half.bin: the other half of a pair is kept",
        "half.idx: --keep names them",
        "kept.npy: --keep names them",
        "bf16/config.json: it names no type that changed",
        "megatron/text-i32.bin: i32 does not become f16",
        "megatron/text-i32.idx: what it names stays as it is",
        &format!("model/f32/tokenizer.json: {unknown}"),
        "npy/ids-v1.npy: u32 does not become f16",
        "npy/plane.f16.npy: no element of it is to have another type",
        "npy/strings.npy: its elements are <U2, which is no plain number",
        "other/a.jpeg: it is compressed already",
        "other/a.tar: its members begin at multiples of 512 with headers between them; unpack it",
    ];
    assert_eq!(said, wanted);
    let changed = presented.view.changed.keys();
    let changed = changed.map(|place| presented.scan.entries[*place].file().unwrap());
    let mut all: Vec<_> = changed.chain(reasons.keys().copied()).collect();
    all.sort_unstable();
    let every: Vec<_> = presented.scan.files().map(|(id, _)| id).collect();
    assert_eq!(all, every);
    // Of the sources' exact bytes there is nothing to say.
    let exact = input.view("source", &[]).unwrap();
    assert!(exact.view.unconverted.is_empty());
}

#[test]
fn an_index_is_not_kept_where_another_changes_its_shards() {
    let input = Input::new();
    let source = String::from_utf8(fixture("mds/f32/index.json")).unwrap();
    for name in MDS {
        input.write(&format!("0/{name}"), fixture(&format!("mds/f32/{name}")));
    }
    input.write("0/index.json", &source);
    input.write("index.json", merged(&source, &["0"]));
    let refusal = input.view("f16", &["0/index.json"]).map(drop);
    let refusal = refusal.unwrap_err().to_string();
    let wanted = "/0/index.json is kept, and says the length and hashes of shard.00000.mds, which this view changes: keep that, too, with --keep 'shard.00000.mds', or do not keep the index";
    assert!(refusal.ends_with(wanted), "{refusal}");
    // The ways out, and types that change nothing.
    input.view("f16", &[]).unwrap();
    for (present_as, keep) in [
        ("f16", &["0/index.json", "*.mds"][..]),
        ("u16", &["0/index.json"]),
        ("f16", &["index.json"]),
    ] {
        let presented = input.view(present_as, keep).unwrap();
        assert!(presented.view.changed.is_empty(), "{present_as} {keep:?}");
    }
    let presented = input.view("f16", &["index.json"]).unwrap();
    let reasons = presented.view.as_they_are(&presented.catalogue);
    let kept = reasons.values();
    let kept = kept.filter(|why| *why == "the index that names them is kept");
    assert_eq!(kept.count(), MDS.len());
    // By way of a link that leads to what another index changes.
    for name in MDS {
        input.link(&format!("z/{name}"), &format!("../0/{name}"));
    }
    input.write("z/index.json", &source);
    let refusal = input.view("f16", &["z/index.json"]).map(drop);
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains("/z/index.json is kept, "), "{refusal}");
}

#[test]
fn an_index_of_weights_is_not_kept_where_they_change_their_length() {
    let input = Input::new();
    let index = "model.safetensors.index.json";
    let weights = ["model-00001-of-00002", "model-00002-of-00002"];
    for name in [index, "config.json"] {
        input.write(name, fixture(&format!("model/f32/{name}")));
    }
    for shard in weights {
        let name = format!("{shard}.safetensors");
        input.write(&name, fixture(&format!("model/f32/{name}")));
    }
    let refusal = input.view("bf16", &[index]).map(drop);
    let refusal = refusal.unwrap_err().to_string();
    let wanted = ": model.safetensors.index.json: is kept, and says how long the weights are that this view changes: keep them, too, with --keep '*.safetensors', or do not keep the index";
    assert!(refusal.ends_with(wanted), "{refusal}");
    let kept = input.view("bf16", &[index, "*.safetensors"]).unwrap();
    assert!(kept.view.changed.is_empty());
    // Of one that is kept, the index says what it said; of the other, what it is.
    let presented = input
        .view("bf16", &["model-00001-of-00002.safetensors"])
        .unwrap();
    assert!(!presented.is_changed("model-00001-of-00002.safetensors"));
    let total = |text: Vec<u8>| -> u64 {
        let index: serde_json::Value = serde_json::from_slice(&text).unwrap();
        index["metadata"]["total_size"].as_u64().unwrap()
    };
    let data = |name: &str| {
        let file = presented.bytes(name);
        let header = u64::from_le_bytes(file[..8].try_into().unwrap());
        file.len() as u64 - 8 - header
    };
    let both = weights.map(|shard| data(&format!("{shard}.safetensors")));
    assert_eq!(total(presented.bytes(index)), both[0] + both[1]);
    assert!(both[0] + both[1] < total(fixture(&format!("model/f32/{index}"))));
}

#[test]
fn a_configuration_that_is_kept_stays_and_is_named() {
    let input = Input::new();
    let shard = "model-00001-of-00002.safetensors";
    input.write(shard, fixture(&format!("model/f32/{shard}")));
    input.write("config.json", fixture("model/f32/config.json"));
    let presented = input.view("bf16", &["config.json"]).unwrap();
    assert!(presented.is_changed(shard));
    assert!(!presented.is_changed("config.json"));
    let note = presented.view.notes.last().unwrap();
    let wanted =
        ": config.json: is kept, and names a type that most weights do not have in this view";
    assert!(note.ends_with(wanted), "{note}");
}
