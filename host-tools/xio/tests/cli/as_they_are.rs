//! Files that stay as they are in a view of another type: a line for each reason, and in JSON each file's own.

use std::fs;

use serde_json::Value;

use super::support::{Folder, formats};

const UNKNOWN: &str = "presented as they are: no format is known here; '--as PATTERN=TYPE' says what bare elements are";

/// A model, what lies beside one, and a picture.
fn dataset(folder: &Folder) {
    fs::create_dir_all(folder.path("d/notes")).unwrap();
    for file in fs::read_dir(formats("model/f32")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path("d").join(file.file_name())).unwrap();
    }
    fs::copy(formats("other/a.jpeg"), folder.path("d/a.jpeg")).unwrap();
    folder.write("d/README", b"words");
    folder.write("d/notes/1.txt", b"more words");
    folder.write("d/notes/2.txt", b"more words yet");
}

fn lines<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(begin));
    lines.collect()
}

#[test]
fn unknown_files_are_counted_and_named_where_a_type_is_asked_for() {
    let folder = Folder::new();
    dataset(&folder);
    let named = "4 files of unknown format (README, tokenizer.json, notes/1.txt and 1 more)";
    let picture = "1 file of JPEG (a.jpeg): presented as they are: it is compressed already";
    for (views, told) in [("bf16", "bf16"), ("source,bf16,f16", "bf16, f16")] {
        let unknown = format!("--present-as {told}: {named}: {UNKNOWN}");
        let said = folder.done(["plan", "d", "--present-as", views]);
        let warned = lines(&said, "! ");
        assert!(warned.contains(&unknown.as_str()), "{said}");
        assert!(warned.contains(&picture), "{said}");
        for command in ["pack", "map"] {
            let ran = folder.xio([
                command,
                "d",
                "--force",
                "--present-as",
                views,
                "-o",
                "v.xio",
            ]);
            let notes = lines(&ran.stderr, "note: ");
            assert_eq!((ran.status, &notes[..2]), (0, &[picture, &unknown][..]));
        }
    }
    // Where nothing is asked for, there is nothing to say.
    let said = folder.done(["plan", "d"]);
    assert!(!said.contains("unknown format"), "{said}");
    folder.done(["pack", "d", "--force", "-o", "v.xio"]);
}

#[test]
fn each_file_has_its_own_reason_in_json() {
    let folder = Folder::new();
    dataset(&folder);
    let options = [
        "d",
        "--json",
        "--present-as",
        "source,bf16",
        "--keep",
        "1.txt",
    ];
    let plan = folder.done([&["plan"][..], &options].concat());
    let pack = folder.xio([&["pack"][..], &options, &["-o", "v.xio"]].concat());
    for text in [plan, pack.stdout] {
        let said: Value = serde_json::from_str(&text).unwrap();
        let [source, narrow] = &said["views"].as_array().unwrap()[..] else {
            panic!("{text}")
        };
        assert_eq!(source["as_they_are"], Value::Array(Vec::new()));
        assert_eq!(narrow["name"], "bf16");
        let files = narrow["as_they_are"].as_array().unwrap().iter();
        let files: Vec<String> = files
            .map(|it| {
                format!(
                    "{}: {}",
                    it["path"].as_str().unwrap(),
                    it["why"].as_str().unwrap()
                )
            })
            .collect();
        let (_, unknown) = UNKNOWN.split_once(": ").unwrap();
        let wanted = [
            &format!("README: {unknown}"),
            "a.jpeg: it is compressed already",
            &format!("tokenizer.json: {unknown}"),
            "notes/1.txt: --keep names them",
            &format!("notes/2.txt: {unknown}"),
        ];
        assert_eq!(files, wanted);
        assert_eq!(narrow["files_changed"], 4);
    }
}
