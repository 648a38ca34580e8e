//! Input that lies, is cut off, or changes: each is refused with the file and the place in it. docs/datasets.md lists these tests.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;

use super::mounting::{Mount, can_mount};
use super::served::{NQN, Target};
use super::support::{Folder, Random, formats};

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.next().to_le_bytes()[3]).collect()
}

/// A safetensors file: its header's length, or another one, the header, and so many zeros.
fn safetensors(length: Option<u64>, header: &str, data_bytes: usize) -> Vec<u8> {
    let length = length.unwrap_or(header.len() as u64);
    let mut file = length.to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.resize(file.len() + data_bytes, 0);
    file
}

/// `plan` shows it, `pack` and `map` refuse it in these words and leave nothing; with `--keep` it is bytes like others.
fn refused(folder: &Folder, name: &str, why: &str) {
    let keep = format!("mend it, or pass it through as bytes with --keep '{name}'");
    let error = format!("d/{name}: {why}; {keep}");
    for command in ["pack", "map"] {
        folder.fails(1, &error, &[command, "d", "-o", "v.xio"]);
    }
    let plan = folder.xio(["plan", "d"]);
    assert_eq!(plan.status, 1);
    let line = format!("\n! {name}: {why}; {keep}\n");
    assert!(plan.stdout.contains(&line), "{}", plan.stdout);
    assert_eq!(folder.names(), ["d"]);
    folder.done(["pack", "d", "--keep", name, "-o", "v.xio"]);
    folder.done(["diff", "d", "v.xio"]);
    fs::remove_file(folder.path("v.xio")).unwrap();
    fs::remove_dir_all(folder.path("d")).unwrap();
}

#[test]
fn safetensors_whose_header_or_tensors_lie() {
    let folder = Folder::new();
    let tensors = |b: (u64, u64)| {
        format!(
            r#"{{"a":{{"dtype":"F32","shape":[4],"data_offsets":[0,16]}},"b":{{"dtype":"F32","shape":[2],"data_offsets":[{},{}]}}}}"#,
            b.0, b.1
        )
    };
    let right = tensors((16, 24));
    let length = right.len();
    let not_valid = "not a valid safetensors file: at byte";
    for (file, why) in [
        (
            safetensors(Some(5000), &right, 24),
            format!(
                "{not_valid} 8: 5000 bytes belong there, the file ends at byte {}",
                8 + length + 24
            ),
        ),
        (
            // Two tensors share 8 bytes.
            safetensors(None, &tensors((8, 16)), 16),
            format!(
                "{not_valid} {}: tensor \"b\" does not start there",
                8 + tensors((8, 16)).len() + 16
            ),
        ),
        (
            safetensors(None, &tensors((16, 20)), 20),
            format!("{not_valid} 8: tensor \"b\": f32 of shape [2] is not bytes 16 to 20"),
        ),
        (
            // The download ended early.
            safetensors(None, &right, 20),
            format!(
                "{not_valid} {}: the tensors end there, and the file at {}",
                8 + length + 24,
                8 + length + 20
            ),
        ),
        (
            safetensors(None, &right[..length - 1], 24),
            format!(
                "{not_valid} 8: EOF while parsing an object at line 1 column {}",
                length - 1
            ),
        ),
    ] {
        fs::create_dir(folder.path("d")).unwrap();
        folder.write("d/m.safetensors", &file);
        refused(&folder, "m.safetensors", &why);
    }
}

#[test]
fn an_array_whose_shape_lies() {
    let folder = Folder::new();
    let array = |shape: &str| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(118u16.to_le_bytes());
        file.extend(format!("{header:<117}\n").bytes());
        file.resize(128 + 400, 0);
        file
    };
    for (shape, shown) in [
        ("(101,)", "[101]"),
        ("(4294967296, 4294967296)", "[4294967296, 4294967296]"),
    ] {
        fs::create_dir(folder.path("d")).unwrap();
        folder.write("d/a.npy", &array(shape));
        let why = format!(
            "not a valid npy file: at byte 128: f32 of shape {shown} does not fit the 400 bytes behind the header"
        );
        refused(&folder, "a.npy", &why);
    }
}

#[test]
fn a_megatron_index_that_points_beyond_its_bin() {
    let folder = Folder::new();
    let index = fs::read(formats("megatron/text-i32.idx")).unwrap();
    let sequences = usize::try_from(u64::from_le_bytes(index[18..26].try_into().unwrap())).unwrap();
    // The second pointer, one sequence too far.
    let place = 34 + 4 * sequences + 8;
    let length = u32::from_le_bytes(index[38..42].try_into().unwrap());
    let mut far = index.clone();
    far[place..place + 8].copy_from_slice(&1292u64.to_le_bytes());
    let beyond = |at: u64| {
        format!(
            "not a valid Megatron index file: at byte {place}: sequence 1: {length} ids at byte {at} do not lie in a .bin of 1292 bytes"
        )
    };
    let mut negative = index.clone();
    negative[place..place + 8].fill(0xFF);
    let mut cut = index.clone();
    cut.truncate(100);
    let documents = u64::from_le_bytes(index[26..34].try_into().unwrap());
    for (index, why) in [
        (far, beyond(1292)),
        (negative, beyond(u64::MAX)),
        (
            cut,
            format!(
                "not a valid Megatron index file: at byte 18: {sequences} sequences and {documents} documents do not make 100 bytes"
            ),
        ),
    ] {
        fs::create_dir(folder.path("d")).unwrap();
        fs::copy(formats("megatron/text-i32.bin"), folder.path("d/t.bin")).unwrap();
        folder.write("d/t.idx", &index);
        refused(&folder, "t.idx", &why);
    }
}

#[test]
fn an_mds_index_that_was_cut_off() {
    let folder = Folder::new();
    let index = fs::read(formats("mds/f32/index.json")).unwrap();
    fs::create_dir(folder.path("d")).unwrap();
    for shard in ["shard.00000.mds", "shard.00001.mds"] {
        let from = formats("mds/f32").join(shard);
        fs::copy(from, folder.path("d").join(shard)).unwrap();
    }
    folder.write("d/index.json", &index[..700]);
    let why =
        "not a valid MDS index file: at byte 0: EOF while parsing a value at line 1 column 700";
    refused(&folder, "index.json", why);
}

/// The ids are below 50,257; what is asked for holds 32,768, or 65,536 of ids that go on to 199,999.
#[test]
fn ids_out_of_the_range_that_they_are_to_be_stored_in() {
    for (name, chain, first, holds, needs) in [
        (
            "r50k-u32.bin",
            "bitpack:15",
            32_768,
            "15 bits (0..=32767)",
            16,
        ),
        ("o200k-u32.bin", "u16+zstd:3", 65_536, "u16 (0..=65535)", 17),
    ] {
        let folder = Folder::new();
        fs::create_dir(folder.path("d")).unwrap();
        let ids = fs::read(super::support::fixture(name)).unwrap();
        folder.write("d/ids.bin", &ids);
        let values = ids
            .chunks_exact(4)
            .map(|it| u32::from_le_bytes(it.try_into().unwrap()));
        let (at, value) = (0..)
            .zip(values)
            .find(|(_, value)| *value >= first)
            .unwrap();
        let error = format!(
            "d/ids.bin: element {at} (byte {}) is {value}, which does not fit {holds}: it needs {needs} bits, and later elements may need more; choose a wider stored chain",
            4 * at
        );
        let arguments = [
            "pack",
            "d",
            "--as",
            "*=u32",
            "--store-as",
            chain,
            "-o",
            "v.xio",
        ];
        folder.fails(1, &error, &arguments);
        assert_eq!(folder.names(), ["d"]);
    }
}

/// What is done to a file, and the first LBA that is not what was mapped then.
type Change<'a> = (&'a str, &'a dyn Fn(&File), Option<u64>);

/// Mapped files that change while a target serves them: what is left of them is served, what is not is an Unrecovered Read Error, and never another byte.
#[test]
fn a_source_that_changes_while_it_is_served() {
    let bytes = noise(5, 1 << 20);
    let changes: [Change<'_>; 3] = [
        (
            "grown",
            &|file| file.write_all_at(&[7; 5000], 1 << 20).unwrap(),
            None,
        ),
        // From the block of byte 600,000 on.
        (
            "truncated",
            &|file| file.set_len(600_000).unwrap(),
            Some(146),
        ),
        (
            "rewritten",
            &|file| file.write_all_at(&[0; 10], 700_000).unwrap(),
            Some(170),
        ),
    ];
    for (what, change, first_lba) in changes {
        let folder = Folder::new();
        folder.write("tokens.bin", &bytes);
        folder.write("copy.bin", &bytes);
        folder.done(["map", "tokens.bin", "--dtype", "u8", "-o", "m.xio"]);
        let target = Target::start(NQN, &[&folder.path("m.xio")]);
        let url = target.url("?nsid=1");
        folder.done(["verify", &url, "--against", "copy.bin"]);
        let file = File::options().write(true).open(folder.path("tokens.bin"));
        change(&file.unwrap());
        let Some(first_lba) = first_lba else {
            folder.done(["verify", &url, "--against", "copy.bin"]);
            continue;
        };
        let ran = folder.xio(["verify", &url, "--against", "copy.bin"]);
        assert_eq!(
            (ran.status, ran.stdout.as_str()),
            (3, ""),
            "{what}: {}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains("status 2h/81h Unrecovered Read Error"),
            "{what}: {}",
            ran.stderr
        );
        // Block by block: an error where it changed, the bytes that it was mapped on elsewhere.
        let mut failed = Vec::new();
        let mut block = vec![0; 4096];
        let mut host = initiator::Initiator::connect(
            &target.address.to_string(),
            NQN,
            &initiator::Options::default(),
        )
        .unwrap();
        for (lba, wanted) in bytes.chunks_exact(4096).enumerate() {
            match host.read(1, 4096 * lba as u64, &mut block) {
                Ok(()) => assert!(block == wanted, "{what}: LBA {lba}"),
                Err(error) => {
                    let says = format!(
                        "Read of 1 blocks at LBA {lba} of namespace 1 failed with status 2h/81h Unrecovered Read Error"
                    );
                    assert!(error.to_string().starts_with(&says), "{error}");
                    failed.push(lba as u64);
                }
            }
        }
        let expected: Vec<u64> = match what {
            "truncated" => (first_lba..256).collect(),
            _ => vec![first_lba],
        };
        assert_eq!(failed, expected, "{what}");
    }
}

/// The same under a mount of the volume's file: an error with the source's name and the byte in it.
#[test]
fn a_source_that_changes_while_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let bytes = noise(6, 1 << 20);
    // Blocks 146 and 171 are the first that are not what was mapped.
    for (what, right_bytes, says) in [
        ("truncated", 598_016, "; that source is tokens.bin\n"),
        (
            "rewritten",
            700_416,
            "at byte 700416 of source 1: checksum mismatch: recorded ",
        ),
    ] {
        let folder = Folder::new();
        folder.write("tokens.bin", &bytes);
        folder.done(["map", "tokens.bin", "--dtype", "u8", "-o", "m.xio"]);
        let mut mount = Mount::start(&folder, "m.xio", "m", &[]);
        let source = File::options().write(true).open(folder.path("tokens.bin"));
        let source = source.unwrap();
        match what {
            "truncated" => source.set_len(600_000).unwrap(),
            _ => source.write_all_at(&[0; 10], 702_000).unwrap(),
        }
        let mut found = Vec::new();
        let mut file = File::open(mount.folder.join("tokens.bin")).unwrap();
        let mut piece = [0; 4096];
        let error = loop {
            match file.read(&mut piece) {
                Ok(0) => break None,
                Ok(read) => found.extend_from_slice(&piece[..read]),
                Err(error) => break Some(error),
            }
        };
        assert_eq!(error.unwrap().raw_os_error(), Some(5), "{what}");
        assert_eq!(found.len(), right_bytes, "{what}");
        assert!(bytes.starts_with(&found), "{what}");
        drop(file);
        mount.signal("TERM");
        let (status, complaints) = mount.ended();
        assert_eq!(status, 0);
        assert!(complaints.contains(says), "{what}: {complaints}");
        if what == "truncated" {
            // One place is told of all that is missing; which of the kernel's reads meets it first, those ahead included, is the kernel's affair.
            let (_, at) = complaints.split_once(" bytes at ").unwrap();
            let (at, why) = at.split_once(": presented byte ").unwrap();
            let at: usize = at.parse().unwrap();
            assert!((right_bytes..bytes.len()).contains(&at), "{complaints}");
            assert!(
                why.starts_with(&format!("{at}: source 1, byte {at}: ")),
                "{complaints}"
            );
        }
        assert!(
            complaints.contains("; that source is tokens.bin\n"),
            "{complaints}"
        );
    }
}

/// A damaged file keeps its name: nothing else says that a type was to be changed in it.
#[test]
fn files_that_are_not_what_their_names_say() {
    let folder = Folder::new();
    let read = |name: &str| fs::read(formats(name)).unwrap();
    let right = read("safetensors/mixed.safetensors");
    let flipped = |at: usize, bits: u8| {
        let mut file = right.clone();
        file[at] ^= bits;
        file
    };
    let length = u64::from_le_bytes(right[..8].try_into().unwrap());
    let st = "not a valid safetensors file: at byte";
    let magic = |format: &str, magic: &str| {
        format!("not a valid {format} file: at byte 0: \"{magic}\" belongs there")
    };
    let cases: Vec<(&str, Vec<u8>, String)> = vec![
        (
            "w.safetensors",
            flipped(6, 1),
            format!(
                "{st} 8: {} bytes of header belong there, the file ends at byte {}",
                length + (1 << 48),
                right.len()
            ),
        ),
        (
            "w.safetensors",
            flipped(8, 1),
            format!("{st} 8: a header that begins with '{{' belongs there"),
        ),
        (
            "w.safetensors",
            vec![0; 4096],
            format!("{st} 8: a header that begins with '{{' belongs there"),
        ),
        (
            "w.safetensors",
            right[..8].to_vec(),
            format!("{st} 0: the header's length and a header belong there, the file has 8 bytes"),
        ),
        ("a.npy", vec![0; 200], magic("npy", "\\x93NUMPY")),
        ("m.gguf", b"GGUE".to_vec(), magic("GGUF", "GGUF")),
        (
            "s.mds",
            vec![0; 64],
            "not a valid MDS shard file: at byte 0: its content is no such file".to_owned(),
        ),
    ];
    for (name, file, why) in cases {
        fs::create_dir(folder.path("d")).unwrap();
        folder.write("d/x.bin", b"words");
        folder.write(&format!("d/{name}"), &file);
        let told = format!("1 file not what the name says ({name}): taken for plain bytes: {why}");
        let plan = folder.done(["plan", "d"]);
        assert!(plan.contains(&format!("\n! {told}\n")), "{plan}");
        let pack = folder.xio(["pack", "d", "-o", "v.xio"]);
        assert_eq!(
            (pack.status, pack.stderr.as_str()),
            (0, format!("note: {told}\n").as_str())
        );
        folder.done(["diff", "d", "v.xio"]);
        fs::remove_file(folder.path("v.xio")).unwrap();
        let refused =
            format!("d/{name}: {why}; mend it, or pass it through as bytes with --keep '{name}'");
        for command in ["pack", "map"] {
            let view = [command, "d", "--present-as", "source,bf16", "-o", "v.xio"];
            folder.fails(1, &refused, &view);
        }
        let plan = folder.xio(["plan", "d", "--present-as", "bf16"]);
        assert_eq!(plan.status, 1);
        let line = format!("\n! --present-as bf16: {refused}\n");
        assert!(plan.stdout.contains(&line), "{}", plan.stdout);
        assert!(
            !plan.stdout.contains("not what the name says"),
            "{}",
            plan.stdout
        );
        let kept = ["--present-as", "bf16", "--keep", name, "-o", "v.xio"];
        let kept = folder.xio([&["pack", "d"][..], &kept].concat());
        assert!(
            kept.status == 0 && !kept.stderr.contains(name),
            "{}",
            kept.stderr
        );
        fs::remove_file(folder.path("v.xio")).unwrap();
        fs::remove_dir_all(folder.path("d")).unwrap();
    }
}

/// All of them at once, with options that keep them and nothing that is whole.
#[test]
fn several_files_that_are_wrong_are_told_together() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/x")).unwrap();
    let right = fs::read(formats("npy/ids-v1.npy")).unwrap();
    folder.write("d/a.npy", &right[..right.len() - 1]);
    folder.write("d/x/b.npy", &right[..right.len() - 1]);
    folder.write("d/m.gguf", &[0; 64]);
    folder.write("d/n.gguf", &[0; 64]);
    let error = |keep: &str| {
        format!(
            "d/a.npy: not a valid npy file: at byte 128: u32 of shape [5] does not fit the 19 bytes behind the header; and 1 more such (x/b.npy): mend them, or pass them through as bytes with {keep}"
        )
    };
    let pack = ["pack", "d", "-o", "v.xio", "--present-as", "source,u16"];
    folder.fails(1, &error("--keep '*.npy'"), &pack);
    folder.write("d/c.npy", &right);
    let keep = "--keep 'a.npy' --keep 'b.npy'";
    folder.fails(1, &error(keep), &pack);
    let magic = "not a valid GGUF file: at byte 0: \"GGUF\" belongs there";
    let error = format!(
        "d/m.gguf: {magic}; and 1 more such (n.gguf): mend them, or pass them through as bytes with --keep '*.gguf'"
    );
    let more = ["--keep", "a.npy", "--keep", "b.npy"];
    folder.fails(1, &error, &[&pack[..], &more].concat());
    folder.done([&pack[..], &more, &["--keep", "*.gguf"]].concat());
}

/// What another format is recognised in is taken for that, and converted as that, with a note in each case.
#[test]
fn files_of_another_format_than_their_names_say() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let copies = [
        ("npy/ids-v1.npy", "array.safetensors"),
        ("other/a.jpeg", "picture.npy"),
        ("other/a.jpeg", "sub.npy"),
        ("safetensors/mixed.safetensors", "p.idx"),
        ("safetensors/mixed.safetensors", "lone.idx"),
        ("safetensors/mixed.safetensors", "w.bin"),
        ("other/a.jpeg", "kept.mds"),
        ("other/a.jpeg", "said.npy"),
    ];
    for (from, name) in copies {
        fs::copy(formats(from), folder.path("d").join(name)).unwrap();
    }
    folder.write("d/p.bin", b"words");
    let array = folder.read("d/array.safetensors");
    let st = format!(
        "not a valid safetensors file: at byte 8: {} bytes of header belong there, the file ends at byte {}",
        u64::from_le_bytes(*b"\x93NUMPY\x01\x00"),
        array.len()
    );
    let magic = |format: &str, magic: &str| {
        format!("not a valid {format} file: at byte 0: \"{magic}\" belongs there")
    };
    let told = [
        format!(
            "1 file not what the name says (p.idx): taken for safetensors: {}",
            magic("Megatron index", "MMIDIDX\\x00\\x00")
        ),
        format!(
            "2 files not what the name says (picture.npy, sub.npy): taken for JPEG: {}",
            magic("npy", "\\x93NUMPY")
        ),
        format!("1 file not what the name says (array.safetensors): taken for npy: {st}"),
    ];
    let options = ["--keep", "kept.mds", "--as", "said.npy=u8"];
    for types in [&[][..], &["--present-as", "i64"]] {
        let options = [&options[..], types].concat();
        let plan = folder.xio([&["plan", "d"][..], &options].concat());
        let begin = |it: &&str| it.contains("not what the name says");
        let said = plan.stdout.lines().filter_map(|it| it.strip_prefix("! "));
        assert_eq!(said.filter(begin).collect::<Vec<_>>(), told);
        let pack = [&["pack", "d", "--force", "-o", "v.xio"][..], &options].concat();
        let pack = folder.xio(pack);
        assert_eq!(pack.status, 0, "{}", pack.stderr);
        let said = pack
            .stderr
            .lines()
            .filter_map(|it| it.strip_prefix("note: "));
        assert_eq!(said.filter(begin).collect::<Vec<_>>(), told);
    }
    folder.done(["cp", "v.xio", "c"]);
    let changed = folder.read("c/array.safetensors");
    assert!(changed.starts_with(b"\x93NUMPY") && changed != array);
    assert!(folder.read("c/picture.npy") == folder.read("d/picture.npy"));
}

/// An `.idx` is half of a pair beside a `.bin` only, and Parquet is never changed.
#[test]
fn names_that_promise_nothing_and_formats_that_never_change() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/lone.idx", b"git's");
    folder.write("d/p.idx", &[0; 64]);
    folder.write("d/p.bin", &[0; 64]);
    folder.write("d/t.parquet", &[0; 64]);
    let said = folder.done(["plan", "d"]);
    assert!(
        said.contains("! 1 file not what the name says (p.idx): "),
        "{said}"
    );
    assert!(!said.contains("lone.idx)"), "{said}");
    let view = ["pack", "d", "--present-as", "u16", "-o", "v.xio"];
    let ran = folder.xio(view);
    let refused = "error: d/p.idx: not a valid Megatron index file: at byte 0: ";
    assert!(
        ran.status == 1 && ran.stderr.contains(refused),
        "{}",
        ran.stderr
    );
    let kept = folder.xio([&view[..], &["--keep", "p.*"]].concat());
    let note = "note: 1 file not what the name says (t.parquet): taken for plain bytes: not a valid Parquet file";
    assert!(
        kept.status == 0 && kept.stderr.contains(note),
        "{}",
        kept.stderr
    );
}
