//! Several precisions of one dataset on a disk: what each presents is what the format's own writer makes (fixtures/formats).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use sha1::{Digest, Sha1};

use super::support::{Folder, formats, sha256, xio};

/// Token ids in three formats, and a file that is none.
fn dataset(folder: &Folder) {
    fs::create_dir_all(folder.path("d/sub")).unwrap();
    for (from, to) in [
        ("megatron/text-i32.bin", "d/text.bin"),
        ("megatron/text-i32.idx", "d/text.idx"),
        ("llmc/ids-u32.bin", "d/sub/ids.bin"),
        ("npy/ids-v1.npy", "d/ids.npy"),
        ("mds/f32/index.json", "d/index.json"),
    ] {
        fs::copy(formats(from), folder.path(to)).unwrap();
    }
    folder.write("d/notes", b"words");
    symlink("text.bin", folder.path("d/latest")).unwrap();
    folder.write("d/large.npy", &npy("<u4", |id| id.to_le_bytes().to_vec()));
}

fn of_unknown(view: &str, name: &str) -> String {
    format!(
        "note: --present-as {view}: 1 file of unknown format ({name}): presented as they are: no format is known here; '--as PATTERN=TYPE' says what bare elements are\n"
    )
}

const LARGE: u32 = 20_000;

/// An array in the least that `numpy.lib.format` reads.
fn npy(descr: &str, element: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({LARGE},), }}");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(118u16.to_le_bytes());
    file.extend(format!("{header:<117}\n").bytes());
    file.extend((0..LARGE).flat_map(element));
    file
}

#[test]
fn a_directory_for_each_precision_over_one_stored_stream() {
    for command in ["pack", "map"] {
        let folder = Folder::new();
        dataset(&folder);
        let arguments = [command, "d", "--present-as", "source,u16", "-o", "v.xio"];
        let ran = folder.xio(arguments);
        assert_eq!((ran.status, ran.stderr), (0, of_unknown("u16", "notes")));
        let said = ran.stdout;
        assert!(said.contains("u16: 5 files rewritten"), "{said}");
        assert_eq!(
            said.contains("1 of the files mapped"),
            command == "map",
            "{said}"
        );
        folder.done(["verify", "v.xio"]);
        folder.done(["cp", "v.xio", "c"]);
        for name in [
            "text.bin",
            "text.idx",
            "sub/ids.bin",
            "ids.npy",
            "notes",
            "index.json",
        ] {
            let (source, copied) = (format!("d/{name}"), format!("c/source/{name}"));
            assert!(
                folder.read(&copied) == folder.read(&source),
                "{command} {name}"
            );
        }
        for (name, wanted) in [
            ("text.bin", "megatron/text-u16.bin"),
            ("text.idx", "megatron/text-u16.idx"),
            ("sub/ids.bin", "llmc/ids-u16.bin"),
        ] {
            let presented = folder.read(&format!("c/u16/{name}"));
            assert!(
                presented == fs::read(formats(wanted)).unwrap(),
                "{command} {name}"
            );
        }
        let (presented, wanted) = (folder.read("c/u16/ids.npy"), formats("npy/ids-v1.u16.npy"));
        let wanted = fs::read(wanted).unwrap();
        let data = &wanted[128..];
        assert!(presented[4096..] == *data, "{command}");
        assert!(presented.starts_with(b"\x93NUMPY\x01\x00"));
        let large = npy("<u2", |id| id.to_le_bytes()[..2].to_vec());
        assert!(
            folder.read("c/u16/large.npy")[4096..] == large[128..],
            "{command}"
        );
        assert_eq!(folder.read("c/u16/notes"), b"words");
        for view in ["source", "u16"] {
            let link = folder.path(&format!("c/{view}/latest"));
            assert_eq!(fs::read_link(link).unwrap(), PathBuf::from("text.bin"));
        }

        let manifest: serde_json::Value =
            serde_json::from_slice(&folder.read("c/.xio/manifest.json")).unwrap();
        assert_eq!(manifest["xio_manifest"], 1);
        assert_eq!(manifest["lossy"], false);
        let changed = manifest["views"][1]["changed_files"].as_array().unwrap();
        assert_eq!(changed.len(), 5);
        for file in changed {
            let path = format!("c/u16/{}", file["path"].as_str().unwrap());
            assert_eq!(file["sha256"], sha256(&folder.read(&path)), "{path}");
        }
        for source in manifest["sources"].as_array().unwrap() {
            let path = format!("d/{}", source["path"].as_str().unwrap());
            assert_eq!(source["sha256"], sha256(&folder.read(&path)), "{path}");
        }
    }
}

#[test]
fn ids_that_do_not_fit_are_named_with_their_place() {
    let folder = Folder::new();
    let ids: Vec<u8> = (0..3000u32)
        .flat_map(|id| if id == 2999 { 65_536u32 } else { id }.to_le_bytes())
        .collect();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/ids.bin", &ids);
    let ran = folder.xio([
        "pack",
        "d",
        "--as",
        "*.bin=u32",
        "--present-as",
        "u16",
        "-o",
        "v.xio",
    ]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("d/ids.bin")
            && ran.stderr.contains("2999")
            && ran.stderr.contains("65536"),
        "{}",
        ran.stderr
    );
    assert_eq!(folder.names(), ["d"]);
}

#[test]
fn what_breaks_its_formats_rules_is_refused_or_kept() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let mut npy = fs::read(formats("npy/ids-v1.npy")).unwrap();
    npy.truncate(npy.len() - 1);
    folder.write("d/short.npy", &npy);
    let ran = folder.xio(["pack", "d", "-o", "v.xio"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("d/short.npy") && ran.stderr.contains("--keep 'short.npy'"),
        "{}",
        ran.stderr
    );
    folder.done(["pack", "d", "--keep", "short.npy", "-o", "v.xio"]);
    folder.done(["cp", "v.xio", "c"]);
    assert!(folder.read("c/short.npy") == npy);
}

/// The data of a file and what its header says, without the padding that differs: views have their data at 4,096.
fn without_padding(name: &str, file: &[u8]) -> (String, Vec<u8>) {
    if name.ends_with(".safetensors") {
        let header = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
        let (header, data) = file[8..].split_at(header);
        return (
            String::from_utf8_lossy(header).trim_end().to_owned(),
            data.to_vec(),
        );
    }
    if name.ends_with(".npy") {
        let end = 10 + usize::from(u16::from_le_bytes(file[8..10].try_into().unwrap()));
        let words = String::from_utf8_lossy(&file[10..end]);
        let words: Vec<&str> = words.split_whitespace().collect();
        return (words.join(" "), file[end..].to_vec());
    }
    (String::new(), file.to_vec())
}

/// The oracle is the index of streaming's own writer: it has the digests that the shards had before they were compressed.
#[test]
fn compressed_shards_are_presented_raw() {
    let folder = Folder::new();
    copy_folder("mds/zip", &folder, "d");
    let index = |path: &str| -> Value { serde_json::from_slice(&folder.read(path)).unwrap() };
    let sha1_of = |path: &str| {
        let digest = Sha1::digest(folder.read(path));
        digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let options = [
        "pack",
        "d",
        "--unzip",
        "--present-as",
        "source,f16",
        "-o",
        "v.xio",
    ];
    let ran = folder.xio(options);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let told = "4 compressed MDS shards of 2,867 bytes are presented raw, ";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert_eq!(folder.names(), ["d", "v.xio"]);
    folder.done(["cp", "v.xio", "c"]);
    let (source, raw, narrow) = (
        index("d/index.json"),
        index("c/source/index.json"),
        index("c/f16/index.json"),
    );
    for (number, shard) in source["shards"].as_array().unwrap().iter().enumerate() {
        let name = shard["raw_data"]["basename"].as_str().unwrap();
        let (raw, narrow) = (&raw["shards"][number], &narrow["shards"][number]);
        assert_eq!(raw["raw_data"], shard["raw_data"]);
        assert_eq!(
            json!(sha1_of(&format!("c/source/{name}"))),
            shard["raw_data"]["hashes"]["sha1"]
        );
        assert_eq!(
            json!(sha1_of(&format!("c/f16/{name}"))),
            narrow["raw_data"]["hashes"]["sha1"]
        );
        assert_eq!(narrow["column_encodings"][4], "ndarray:float16");
        for shard in [raw, narrow] {
            assert_eq!(
                (&shard["compression"], &shard["zip_data"]),
                (&Value::Null, &Value::Null)
            );
        }
    }
    // Without it they are files like others.
    folder.done(["pack", "d", "-o", "exact.xio"]);
    folder.done(["cp", "exact.xio", "exact"]);
    for name in ["index.json", "shard.00003.mds.bz2"] {
        assert_eq!(
            folder.read(&format!("exact/{name}")),
            folder.read(&format!("d/{name}"))
        );
    }
    let ran = folder.xio([
        "pack",
        "d/index.json",
        "--dtype",
        "u8",
        "--unzip",
        "-o",
        "w.xio",
    ]);
    assert_eq!(ran.status, 2);
    let why = "--unzip are for files whose format is recognised";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

fn copy_folder(from: &str, folder: &Folder, to: &str) -> Vec<String> {
    fs::create_dir_all(folder.path(to)).unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(formats(from)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        fs::copy(
            formats(&format!("{from}/{name}")),
            folder.path(&format!("{to}/{name}")),
        )
        .unwrap();
        names.push(name);
    }
    names.sort();
    names
}

/// A model as a hub's cache has it, and a dataset of shards: rounded, as the formats' own writers round and write.
#[test]
fn floats_are_presented_as_their_own_writers_write_them() {
    for command in ["pack", "map"] {
        let folder = Folder::new();
        let model = copy_folder("model/f32", &folder, "d/blobs");
        fs::create_dir_all(folder.path("d/snapshots/main")).unwrap();
        for (number, name) in model.iter().enumerate() {
            let blob = format!("d/blobs/{number:040x}");
            fs::rename(folder.path(&format!("d/blobs/{name}")), folder.path(&blob)).unwrap();
            fs::set_permissions(folder.path(&blob), fs::Permissions::from_mode(0o604)).unwrap();
            let link = folder.path(&format!("d/snapshots/main/{name}"));
            symlink(format!("../../blobs/{number:040x}"), link).unwrap();
        }
        let rules = "half:*norm*=keep,bf16";
        let ran = folder.xio([command, "d", "--present-as", rules, "-o", "v.xio"]);
        let tokenizer = format!("blobs/{:040x}", model.len() - 1);
        assert_eq!(
            (ran.status, ran.stderr),
            (0, of_unknown("half", &tokenizer))
        );
        folder.done(["verify", "v.xio"]);
        folder.done(["cp", "v.xio", "c"]);
        for name in &model {
            let copied = format!("c/snapshots/main/{name}");
            let found = folder.read(&copied);
            let wanted = fs::read(formats(&format!("model/bf16/{name}"))).unwrap();
            // A link that became a file has the mode of what it led to.
            let mode = fs::metadata(folder.path(&copied)).unwrap().permissions();
            assert_eq!(mode.mode() & 0o7777, 0o604, "{command} {name}");
            assert!(
                without_padding(name, &found) == without_padding(name, &wanted),
                "{command} {name}"
            );
        }
        let inspected: serde_json::Value =
            serde_json::from_str(&folder.done(["inspect", "v.xio", "--json"])).unwrap();
        assert_eq!(inspected["views"][0]["lossy"], true);
        let manifest = &inspected["views"][0]["manifest"];
        let change = &manifest["views"][0]["changes"][0];
        assert_eq!(
            (&change["from"], &change["to"]),
            (&"f32".into(), &"bf16".into())
        );
        assert!(change["loss"]["rms_error"].is_f64(), "{change}");
        // What a blob and a link of a snapshot have in common is counted once, as if the files stood alone.
        copy_folder("model/f32", &folder, "plain");
        let plain = [command, "plain", "--present-as", rules, "--force"];
        let ran = folder.xio([&plain[..], &["-o", "p.xio"]].concat());
        assert_eq!(
            (ran.status, ran.stderr),
            (0, of_unknown("half", "tokenizer.json"))
        );
        let plain: serde_json::Value =
            serde_json::from_str(&folder.done(["inspect", "p.xio", "--json"])).unwrap();
        let plain = &plain["views"][0]["manifest"]["views"][0]["changes"];
        assert_eq!(change["source_bytes"], plain[0]["source_bytes"]);
        assert_eq!(change["loss"]["elements"], plain[0]["loss"]["elements"]);
        let text = folder.done(["inspect", "v.xio"]);
        assert!(text.contains("some of them rounded"), "{text}");
    }
}

#[test]
fn shards_and_their_index_are_presented_together() {
    let folder = Folder::new();
    let names = copy_folder("mds/f32", &folder, "d");
    let ran = folder.xio(["pack", "d", "--present-as", "f16", "-o", "v.xio"]);
    let lost = "note: --present-as f16: of 425 numbers of f32, 21 became infinite and 4 became zero in f16 (shard.00000.mds, shard.00001.mds, shard.00002.mds and 1 more)\n";
    assert_eq!((ran.status, ran.stderr.as_str()), (0, lost));
    folder.done(["verify", "v.xio"]);
    folder.done(["cp", "v.xio", "c"]);
    for name in names {
        let found = folder.read(&format!("c/{name}"));
        let wanted = fs::read(formats(&format!("mds/f16/{name}"))).unwrap();
        assert!(
            found == wanted,
            "{name}: {}",
            String::from_utf8_lossy(&found)
        );
    }
}

#[test]
fn what_was_lost_is_told() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    // Kept, rounded by 2^-12 to 1, too large for f16, too small for it, no number.
    let values = [1.0f32, 1.0 + 1.0 / 4096.0, 70_000.0, 1e-9, f32::NAN];
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    folder.write("d/x.bin", &bytes);
    let arguments = [
        "pack",
        "d",
        "--as",
        "x.bin=f32",
        "--present-as",
        "source,f16",
        "-o",
        "v.xio",
    ];
    let ran = folder.xio(arguments);
    assert_eq!(ran.status, 0);
    let lost = "--present-as f16: of 5 numbers of f32, 1 became infinite and 1 became zero in f16 (x.bin)\n";
    let told = "note: d/x.bin: nothing in the file says its type: its reader has to be told the changed one\n";
    assert_eq!(ran.stderr, format!("{told}note: {lost}"));
    let planned = folder.done([
        "plan",
        "d",
        "--as",
        "x.bin=f32",
        "--present-as",
        "source,f16",
    ]);
    assert!(planned.contains(&format!("! {lost}")), "{planned}");
    let text = folder.done(["inspect", "v.xio"]);
    assert!(text.contains("became infinite  became zero"), "{text}");
    folder.done(["cp", "v.xio", "c"]);
    assert_eq!(folder.read("c/source/x.bin"), bytes);
    assert_eq!(
        folder.read("c/f16/x.bin"),
        [0, 0x3C, 0, 0x3C, 0, 0x7C, 0, 0, 0, 0x7E]
    );
    let manifest: serde_json::Value =
        serde_json::from_slice(&folder.read("c/.xio/manifest.json")).unwrap();
    assert_eq!(manifest["lossy"], true);
    let loss = &manifest["views"][1]["changes"][0]["loss"];
    let count = |name: &str| loss[name].as_u64().unwrap();
    assert_eq!(
        (
            count("elements"),
            count("saturated"),
            count("vanished"),
            count("nans")
        ),
        (5, 1, 1, 1)
    );
    assert_eq!(loss["largest_error"], 1.0 / 4096.0);
    folder.fails(
        2,
        "f16 rounds, and what a disk stores are the sources' exact bytes: present them rounded, with --present-as",
        &["pack", "d", "--as", "x.bin=f32", "--store-as", "f16", "-o", "w.xio"],
    );
}

/// Numbers of the other byte order, and ids that are none: what stays as it is is named with the reason, by the plan and when it is packed.
#[test]
fn what_cannot_be_presented_so_is_named() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/big.npy", &npy(">u4", |id| id.to_be_bytes().to_vec()));
    for name in ["a.bin", "b.bin", "c.bin", "d.bin"] {
        fs::copy(
            formats("megatron/text-i32.bin"),
            folder.path("d").join(name),
        )
        .unwrap();
        let mut index = fs::read(formats("megatron/text-i32.idx")).unwrap();
        // As float32.
        index[17] = 7;
        folder.write(&format!("d/{}.idx", &name[..1]), &index);
    }
    let ran = folder.xio(["pack", "d", "--present-as", "u16,source", "-o", "v.xio"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let [big, pairs] = lines.as_slice() else {
        panic!("{}", ran.stderr);
    };
    assert!(
        big.starts_with("note: 1 file of npy (big.npy): presented as they are: "),
        "{big}"
    );
    assert_eq!(
        *pairs,
        "note: --present-as u16: 4 files of f32 (a.bin, b.bin, c.bin and 1 more): presented as they are: f32 does not become u16"
    );
    let planned = folder.done(["plan", "d", "--present-as", "u16,source"]);
    for line in [big, pairs] {
        let line = line.replace("note: ", "! ");
        assert!(planned.contains(&line), "{line}\n{planned}");
    }
    // Nothing is asked of the source's bytes.
    folder.done(["pack", "d", "--force", "-o", "v.xio"]);
}

/// Arrays have no bf16: all of them are told at once, and the options that are named lead past them, and leave no other file out.
#[test]
fn files_that_have_no_such_type_are_told_with_the_options_that_keep_them() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/x")).unwrap();
    let floats = npy("<f4", |id| (id as f32).to_le_bytes().to_vec());
    let mixed = formats("safetensors/mixed.safetensors");
    fs::copy(mixed, folder.path("d/m.safetensors")).unwrap();
    folder.write("d/ids.npy", &npy("<u4", |id| id.to_le_bytes().to_vec()));
    // What does not change is not spared.
    symlink("ids.npy", folder.path("d/link.npy")).unwrap();
    let why = "cannot be presented so: .npy: numpy has no bf16, so a reader would see raw bytes (|V2); present f16 or f32, or put the array into a safetensors \
        file; or";
    let view = ["d", "--present-as", "source,bf16", "-o", "v.xio"];
    let (it, them) = ("leave it as it is", "leave them as they are");
    for (file, named, leave, keep) in [
        (
            "d/it's.npy",
            "1 file (it's.npy)",
            it,
            r"--keep 'it'\''s.npy'",
        ),
        (
            "d/x/a.npy",
            "2 files (it's.npy, x/a.npy)",
            them,
            "--keep '*.npy'",
        ),
        (
            "d/x/array",
            "3 files (it's.npy, x/a.npy, x/array)",
            them,
            "--keep '*.npy' --keep 'array'",
        ),
    ] {
        folder.write(file, &floats);
        let refused = format!("{named} {why} {leave}, in every view, with {keep}");
        for command in ["pack", "map"] {
            folder.fails(1, &refused, &[&[command][..], &view].concat());
        }
        let plan = folder.xio(["plan", "d", "--present-as", "source,bf16"]);
        let line = format!("\n! --present-as bf16: {refused}\n");
        assert!(
            plan.status == 1 && plan.stdout.contains(&line),
            "{}",
            plan.stdout
        );
        // As a person copies it into a shell.
        let line = format!("\"$0\" pack d --present-as bf16 {keep} --force -o v.xio");
        let ran = Command::new("sh")
            .args(["-c", &line])
            .arg(xio().get_program())
            .current_dir(folder.path(""))
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let _ = fs::remove_dir_all(folder.path("c"));
        folder.done(["cp", "v.xio", "c"]);
        assert!(folder.read(&file.replacen('d', "c", 1)) == floats);
        let model = folder.read("c/m.safetensors");
        assert!(model != folder.read("d/m.safetensors"));
        fs::remove_file(folder.path("v.xio")).unwrap();
    }
    // A view by rules, beside one of a type that arrays have: '?*' is not for what has no name.
    let both = ["--present-as", "small:?*=bf16", "--present-as", "f16"];
    let ran = folder.xio([&["pack", "d"][..], &both, &["-o", "v.xio"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    folder.done(["cp", "v.xio", "both"]);
    assert!(folder.read("both/small/x/a.npy") == floats);
    assert!(folder.read("both/f16/x/a.npy").len() < floats.len());
    let model = folder.read("both/small/m.safetensors");
    assert!(model == folder.read("c/m.safetensors"));
}

/// Bytes of the file before an array are of the stream's first stored block and none of its own.
#[test]
fn figures_of_a_mapped_array_are_of_the_array() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/large.npy", &npy("<u4", |id| id.to_le_bytes().to_vec()));
    folder.done(["map", "d", "-o", "v.xio"]);
    let shown = folder.done(["inspect", "v.xio", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let stream = &shown["streams"][1];
    assert_eq!(stream["dtype"], "u32", "{shown}");
    assert_eq!(stream["stored_offset"], 128);
    assert_eq!(stream["stored_bytes"], u64::from(LARGE) * 4);
    assert_eq!(
        (&stream["ratio"], &stream["bits_per_value"]),
        (&1.0.into(), &32.0.into())
    );
}
