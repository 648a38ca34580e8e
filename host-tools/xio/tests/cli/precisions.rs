//! Several precisions of one dataset on a disk: what each presents is what the format's own writer makes (fixtures/formats).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::support::Folder;

fn formats(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/formats");
    PathBuf::from(folder).join(name)
}

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
        let said = folder.done(arguments);
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

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
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
