//! `xio-tags.json`: names for the volumes of a folder. Whoever can write to the folder writes it, so it is read as a stranger's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Its name, in the folder of the volumes.
pub const FILE_NAME: &str = "xio-tags.json";

const VERSION: u32 = 1;
/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Characters of a tag's name.
const NAME_CHARS_MAX: usize = 64;
/// Bytes of a file's name, as Linux has it.
const FILE_NAME_BYTES_MAX: usize = 255;
/// Bytes of a note.
pub const NOTE_BYTES_MAX: usize = 4096;
/// Views of a volume that are recorded.
const NAMESPACES_MAX: usize = 1 << 16;

/// All tags of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tags {
    xio_tags: u32,
    /// By name.
    pub tags: BTreeMap<String, Tag>,
}

/// A name for what a volume held when it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    /// Name of the volume's file, in the same folder.
    pub file: String,
    /// The volume's UUID.
    pub volume_uuid: String,
    /// Those of its views.
    pub namespace_uuids: Vec<String>,
    /// What whoever gave it says.
    pub note: String,
    /// When it was given: seconds since 1970, UTC.
    pub time: u64,
}

impl Tags {
    /// None.
    pub fn none() -> Tags {
        Tags {
            xio_tags: VERSION,
            tags: BTreeMap::new(),
        }
    }

    /// Reads the tags of `folder`; a folder without the file has none.
    pub fn read(folder: &Path) -> Result<Tags, Failure> {
        let path = folder.join(FILE_NAME);
        let failed = |error| Failure::io("reading", &path, error);
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => {
                let limited = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
                limited.map_err(failed)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Tags::none()),
            Err(error) => return Err(failed(error)),
        }
        Tags::parse(&text).map_err(|why| {
            Failure::data(anyhow!(
                "{}: {why}; mend it, or remove it and give the tags again",
                path.display()
            ))
        })
    }

    /// Reads and checks the file's bytes.
    fn parse(text: &[u8]) -> Result<Tags, String> {
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
        }
        let tags: Tags = serde_json::from_slice(text)
            .map_err(|error| format!("it is no list of tags: {error}"))?;
        if tags.xio_tags != VERSION {
            let found = tags.xio_tags;
            return Err(format!("version {found}; this program reads {VERSION}"));
        }
        for (name, tag) in &tags.tags {
            check_name(name)?;
            tag.check()
                .map_err(|why| format!("the tag '{name}': {why}"))?;
        }
        Ok(tags)
    }

    /// Replaces the file of `folder`: there is the old or the new, whatever happens.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        let path = folder.join(FILE_NAME);
        let failed = |error| Failure::io("writing", &path, error);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| Failure::system(anyhow!("writing {}: {error}", path.display())))?;
        text.push(b'\n');
        let new = tempfile::Builder::new()
            .prefix(".xio-tags-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)
            // Not with the new file's name, which nobody knows.
            .map_err(|error| failed(error.kind().into()))?;
        new.as_file().write_all(&text).map_err(failed)?;
        new.as_file().sync_all().map_err(failed)?;
        new.persist(&path).map_err(|error| failed(error.error))?;
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)
    }
}

impl Tag {
    fn check(&self) -> Result<(), String> {
        check_file(&self.file)?;
        check_note(&self.note)?;
        if self.namespace_uuids.len() > NAMESPACES_MAX {
            return Err(format!("more than {NAMESPACES_MAX} views"));
        }
        for uuid in [&self.volume_uuid].into_iter().chain(&self.namespace_uuids) {
            if !is_uuid(uuid) {
                return Err(format!("'{}' is no UUID", uuid.escape_debug()));
            }
        }
        Ok(())
    }
}

/// What a tag can be called.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!(
        "'{}' is no name of a tag: 1 to {NAME_CHARS_MAX} letters, digits, '-', '_', '.'",
        name.escape_debug()
    ))
}

/// A file in the folder itself: no path leads out of it.
pub fn check_file(file: &str) -> Result<(), String> {
    let fits = (1..=FILE_NAME_BYTES_MAX).contains(&file.len());
    if fits && !matches!(file, "." | "..") && !file.contains(['/', '\0']) {
        return Ok(());
    }
    Err(format!(
        "'{}' is no name of a file in the folder",
        file.escape_debug()
    ))
}

/// A note that is short enough.
pub fn check_note(note: &str) -> Result<(), String> {
    if note.len() <= NOTE_BYTES_MAX {
        return Ok(());
    }
    let bytes = note.len();
    Err(format!(
        "a note of {bytes} bytes; up to {NOTE_BYTES_MAX} are possible"
    ))
}

fn is_uuid(text: &str) -> bool {
    let shape = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(shape)
}

/// Keeps others from changing the tags of a folder, until it is dropped.
pub struct Lock(#[expect(dead_code, reason = "it unlocks when it is closed")] File);

impl Lock {
    /// Waits for it.
    pub fn of(folder: &Path) -> Result<Lock, Failure> {
        let locked = File::open(folder).and_then(|file| file.lock().map(|()| file));
        let locked = locked.map_err(|error| Failure::io("locking", folder, error))?;
        Ok(Lock(locked))
    }
}

/// The folder and the name in it of a volume's path.
pub fn split(volume: &Path) -> Result<(PathBuf, String), Failure> {
    let name = volume.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        let shown = volume.display();
        Failure::usage(anyhow!("{shown}: only a file whose name is text has tags"))
    })?;
    check_file(name).map_err(|why| Failure::usage(anyhow!(why)))?;
    let folder = match volume.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    Ok((folder.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn text(name: &str, file: &str, more: &str) -> String {
        format!(
            r#"{{"xio_tags":1,"tags":{{"{name}":{{"file":"{file}","volume_uuid":"{UUID}","namespace_uuids":["{UUID}"],"note":"","time":1{more}}}}}}}"#
        )
    }

    #[test]
    fn what_is_written_is_read() {
        let tags = Tags::parse(text("v1.2-rc_3", "a b.xio", "").as_bytes()).unwrap();
        assert_eq!(tags.tags["v1.2-rc_3"].file, "a b.xio");
        let again = serde_json::to_vec(&tags).unwrap();
        assert_eq!(Tags::parse(&again).unwrap(), tags);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Tags::read(folder.path()).unwrap(), Tags::none());
        tags.write(folder.path()).unwrap();
        assert_eq!(Tags::read(folder.path()).unwrap(), tags);
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn a_strangers_file_is_refused_by_what_is_wrong() {
        let no_name = |name: &str| {
            let rule = "1 to 64 letters, digits, '-', '_', '.'";
            format!("'{name}' is no name of a tag: {rule}")
        };
        let no_file =
            |file: &str| format!("the tag 'v1': '{file}' is no name of a file in the folder");
        for (text, why) in [
            (text("v1", "../a.xio", ""), no_file("../a.xio")),
            (text("v1", "/etc/passwd", ""), no_file("/etc/passwd")),
            (text("v1", "..", ""), no_file("..")),
            (text("v1", "", ""), no_file("")),
            (text("v1", "a\\u0000b", ""), no_file("a\\0b")),
            (text("v 1", "a", ""), no_name("v 1")),
            (text("", "a", ""), no_name("")),
            (text("a/b", "a", ""), no_name("a/b")),
            (text("é", "a", ""), no_name("é")),
            (
                text("v1", "a", "").replace(UUID, "0123"),
                "the tag 'v1': '0123' is no UUID".to_owned(),
            ),
            (
                text("v1", "a", "").replace(":1,\"tags\"", ":2,\"tags\""),
                "version 2; this program reads 1".to_owned(),
            ),
        ] {
            assert_eq!(Tags::parse(text.as_bytes()).unwrap_err(), why, "{text}");
        }
        let unknown = text("v1", "a", ",\"extra\":1");
        let why = Tags::parse(unknown.as_bytes()).unwrap_err();
        assert!(
            why.starts_with("it is no list of tags: unknown field `extra`"),
            "{why}"
        );
        let long = text(&"x".repeat(65), "a", "");
        assert!(Tags::parse(long.as_bytes()).is_err());
        let note = text("v1", "a", "").replace(
            "\"note\":\"\"",
            &format!("\"note\":\"{}\"", "n".repeat(4097)),
        );
        let why = Tags::parse(note.as_bytes()).unwrap_err();
        assert_eq!(
            why,
            "the tag 'v1': a note of 4097 bytes; up to 4096 are possible"
        );
        // Deeper than any parser should follow.
        let deep = "[".repeat(1 << 20);
        assert!(Tags::parse(deep.as_bytes()).is_err());
        let large = vec![b' '; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
        assert_eq!(
            Tags::parse(&large).unwrap_err(),
            "it has more than 16777216 bytes"
        );
    }
}
