//! Options that name files by patterns: those that fit nothing are named, those that leave something out, those that the content does not agree with.

use std::fs;
use std::process::Command;

use super::support::{Folder, fixture};

const HELD: &str =
    "a pattern with a '/' is held against the path from the root, any other against the name";

fn formats(name: &str) -> std::path::PathBuf {
    fixture("../formats").join(name)
}

#[test]
fn what_a_pattern_is_stands_in_the_help_once() {
    let folder = Folder::new();
    for command in ["plan", "pack", "map"] {
        let help = folder.done([command, "--help"]);
        assert_eq!(help.matches("PATTERN: '*' is any run").count(), 1, "{help}");
        assert!(help.contains("--exclude <PATTERN>"), "{help}");
    }
}

#[test]
fn an_option_that_fits_nothing_is_named() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/sub")).unwrap();
    folder.write("d/sub/a.bin", &[1, 0].repeat(300));
    let options = [
        "--keep",
        "*.gone",
        "--as",
        "sub/a.bin=u16",
        "--as",
        "a/*=u16",
        "--store",
        "a.bin=lz4",
        "--store",
        "d/sub/a.bin=none",
        "--exclude",
        "*.tmp",
        "--present-as",
        "half:blk*=keep,*=f16",
    ];
    let said = [
        format!("--keep '*.gone': no file fits it; {HELD}"),
        format!("--as 'a/*=u16': no file fits it; {HELD}"),
        format!("--store 'd/sub/a.bin=none': no file fits it; {HELD}"),
        format!("--exclude '*.tmp': no file or folder fits it; {HELD}"),
        "--present-as half: 'blk*=keep': no tensor fits it; it is held against the tensor's whole name".to_owned(),
    ];
    let ran = folder.xio([&["pack", "d", "-o", "v.xio"], &options[..]].concat());
    let notes: Vec<&str> = ran.stderr.lines().take(said.len()).collect();
    let expected = said.each_ref().map(|line| format!("note: {line}"));
    assert_eq!(
        (ran.status, notes),
        (0, expected.iter().map(String::as_str).collect())
    );
    let ran = folder.xio([&["plan", "d"], &options[..]].concat());
    let warned: Vec<&str> = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("! "))
        .collect();
    assert_eq!(
        (ran.status, &warned[..said.len()]),
        (0, &said.each_ref().map(String::as_str)[..])
    );
    // Where all fit nothing is said.
    folder.done([
        "map",
        "d",
        "--as",
        "*.bin=u16",
        "--keep",
        "*b*",
        "-o",
        "m.xio",
    ]);
}

#[test]
fn what_is_excluded_is_not_on_the_disk() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/.git")).unwrap();
    for name in ["d/a", "d/b.tmp", "d/.git/x"] {
        folder.write(name, b"some bytes");
    }
    let pipe = Command::new("mkfifo").arg(folder.path("d/pipe")).status();
    assert!(pipe.unwrap().success());
    let refused = "1 name cannot be on a disk (it holds files, folders and links); leave them out with --exclude PATTERN, such as --exclude 'pipe':\n  d/pipe: a pipe";
    for command in ["plan", "pack", "map"] {
        let output: &[&str] = if command == "plan" {
            &[]
        } else {
            &["-o", "v.xio"]
        };
        folder.fails(2, refused, &[&[command, "d"], output].concat());
        let excluding = [
            "--exclude",
            "pipe",
            "--exclude",
            "*.tmp",
            "--exclude",
            ".git",
        ];
        let ran = folder.xio([&[command, "d"], output, &excluding].concat());
        let note = "--exclude leaves out 3 files or folders\n";
        match command {
            "plan" => assert!(ran.stdout.contains(&format!("! {note}")), "{}", ran.stdout),
            _ => assert_eq!(ran.stderr, format!("note: {note}")),
        }
        assert_eq!(ran.status, 0);
        if command != "plan" {
            folder.done(["cp", "v.xio", "c"]);
            let names = fs::read_dir(folder.path("c")).unwrap();
            let mut names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, [".xio", "a"], "{command}");
            fs::remove_dir_all(folder.path("c")).unwrap();
            fs::remove_file(folder.path("v.xio")).unwrap();
        }
    }
    let ran = folder.xio([
        "pack",
        "d/a",
        "--dtype",
        "u8",
        "--exclude",
        "a",
        "-o",
        "v.xio",
    ]);
    assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
    assert_eq!(ran.status, 2);
}

#[test]
fn a_header_is_believed_before_what_is_said() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for name in ["text-i32.bin", "text-i32.idx"] {
        fs::copy(formats("megatron").join(name), folder.path("d").join(name)).unwrap();
    }
    fs::copy(formats("npy/ids-v1.npy"), folder.path("d/ids.bin")).unwrap();
    folder.write("d/raw.bin", &[7; 4096]);
    let plan = |element: &str| {
        let hint = format!("*.bin={element}");
        let said = folder.done(["plan", "d", "--as", &hint]);
        let of = |name: &str| {
            said.lines()
                .find(|line| line.starts_with(name))
                .unwrap()
                .to_owned()
        };
        assert!(of("text-i32.bin ").contains(" Megatron bin  "), "{said}");
        assert!(of("ids.bin ").contains(" npy "), "{said}");
        assert!(of("raw.bin ").contains(" raw elements "), "{said}");
        let lines = said.lines().filter(|line| line.starts_with("! --as "));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    // 323 elements of 4 bytes are no whole number of 8: no error, since it is not asked.
    let believed = "the content says the types, and is believed";
    assert_eq!(
        plan("u64"),
        [
            format!(
                "! --as '*.bin=u64': not for 1 file of Megatron bin (text-i32.bin): {believed}"
            ),
            format!("! --as '*.bin=u64': not for 1 file of npy (ids.bin): {believed}"),
        ]
    );
    // Nothing is said of what is right.
    let only_npy = format!("! --as '*.bin=i32': not for 1 file of npy (ids.bin): {believed}");
    assert_eq!(plan("i32"), [only_npy]);
    // What only begins like a picture is what the user says.
    folder.write("d/raw.bin", &b"\xff\xd8\xff\x00".repeat(1024));
    plan("u32");
}

#[test]
fn a_chain_that_does_not_fit_is_advised_about_by_the_rule_that_named_it() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a.f32", &[0; 400]);
    let pack = |rules: &[&str], advice: &str| {
        let options = ["pack", "d", "--as", "*=f32", "-o", "v.xio"];
        let ran = folder.xio([&options[..], rules].concat());
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        assert!(
            ran.stderr
                .starts_with("error: d/a.f32: f32 cannot be stored as u16: "),
            "{}",
            ran.stderr
        );
        assert!(
            ran.stderr.ends_with(&format!("; {advice}\n")),
            "{}",
            ran.stderr
        );
    };
    pack(
        &["--store-as", "u16"],
        "say how it is stored with --store 'a.f32=CHAIN'",
    );
    pack(
        &["--store", "a*=u16"],
        "change --store 'a*=u16', or put --store 'a.f32=CHAIN' before it",
    );
    folder.done([
        "pack",
        "d",
        "--as",
        "*=f32",
        "--store",
        "a.f32=none",
        "--store",
        "a*=u16",
        "-o",
        "v.xio",
    ]);
}
