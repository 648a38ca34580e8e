//! A volume appears under its name whole, or not at all.

use std::fs;
use std::path::Path;

use super::*;
use crate::write::FileOutput;

/// A folder of its own, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("volume-write-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Create = fn(&Path, bool) -> Result<FileOutput, WriteError>;

/// Both ways to make a file, so that filesystems without nameless ones are tested everywhere.
const WAYS: [(&str, Create); 2] = [
    ("nameless", |path, replace| {
        FileOutput::create(path, replace)
    }),
    ("named", |path, replace| {
        FileOutput::create_named(path, replace)
    }),
];

fn image() -> Vec<u8> {
    let mut recorder = Recorder::default();
    let source = values(1000, 1000);
    pack(&mut recorder, 1, &spec("u16", ElementType::U32, 0), &source).unwrap();
    recorder.image()
}

#[test]
fn the_name_appears_with_the_whole_volume() {
    for (way, create) in WAYS {
        let folder = Folder::new(way);
        let path = folder.0.join("v.xio");
        let mut output = create(&path, false).unwrap();
        assert!(!path.exists());
        output.write_at(0, b"x").unwrap();
        output.sync().unwrap();
        assert!(!path.exists());
        output.publish().unwrap();
        drop(output);
        assert_eq!(folder.names(), ["v.xio"]);

        let source = values(1000, 1000);
        let output = create(&path, true).unwrap();
        pack(output, 2, &spec("u16", ElementType::U32, 0), &source).unwrap();
        assert_eq!(fs::read(&path).unwrap(), image());
        assert_eq!(folder.names(), ["v.xio"]);
    }
}

#[test]
fn a_writer_that_fails_leaves_nothing_and_what_was_there() {
    for (way, create) in WAYS {
        let folder = Folder::new(&format!("fails-{way}"));
        let path = folder.0.join("v.xio");
        let bad = 70_000u32.to_le_bytes();
        let spec = spec("u16", ElementType::U32, 0);
        pack(create(&path, false).unwrap(), 1, &spec, &bad).unwrap_err();
        assert!(folder.names().is_empty());
        fs::write(&path, "what was there").unwrap();
        pack(create(&path, true).unwrap(), 1, &spec, &bad).unwrap_err();
        assert_eq!(folder.names(), ["v.xio"]);
        assert_eq!(fs::read(&path).unwrap(), b"what was there");
    }
}

#[test]
fn a_name_that_is_taken_is_refused_before_and_after() {
    for (way, create) in WAYS {
        let folder = Folder::new(&format!("taken-{way}"));
        let path = folder.0.join("v.xio");
        let mut output = create(&path, false).unwrap();
        fs::write(&path, "came in between").unwrap();
        assert!(matches!(output.publish(), Err(WriteError::Exists { .. })));
        assert!(matches!(
            create(&path, false),
            Err(WriteError::Exists { .. })
        ));
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"came in between");
        assert_eq!(folder.names(), ["v.xio"]);
        assert!(matches!(
            create(&folder.0, true),
            Err(WriteError::NotAFile { .. })
        ));
        let nowhere = folder.0.join("no such folder/v.xio");
        assert!(matches!(
            create(&nowhere, false),
            Err(WriteError::Output { .. })
        ));
    }
}
