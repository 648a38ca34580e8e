//! `xio tag`: names for volumes, as people name the versions of a dataset; and `FOLDER@NAME` wherever a command takes a volume.

mod file;
mod time;

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::anyhow;
use printout::text_table::{Align, TextTable};
use serde_json::json;
use volume::identity::uuid_text;
use volume::{ViewIndex, Volume};

use crate::cli;
use crate::failure::Failure;
use crate::local::LocalVolume;
use crate::medium;
use crate::stdout::{print, print_line};
use file::{Lock, Tag, Tags};

/// Runs the command.
pub fn run(arguments: &cli::Tag) -> Result<(), Failure> {
    let place = &arguments.place;
    check_place(place)?;
    match (&arguments.name, &arguments.delete) {
        (_, Some(name)) => delete(place, name),
        (Some(name), None) => give(arguments, name),
        (None, None) if place.is_dir() => list(place, arguments.json),
        (None, None) => Err(Failure::usage(anyhow!(
            "{} is no folder; to name a volume, give a name behind it",
            place.display()
        ))),
    }
}

/// Tags lie beside volumes: what a target serves has none.
fn check_place(place: &Path) -> Result<(), Failure> {
    match medium::url(place)? {
        None => Ok(()),
        Some(_) => Err(Failure::usage(anyhow!(
            "{} is served by a target, and tags name volumes in folders: give the volume's file where it lies, or its folder",
            place.display()
        ))),
    }
}

fn give(arguments: &cli::Tag, name: &str) -> Result<(), Failure> {
    let usage = |why: String| Failure::usage(anyhow!(why));
    file::check_name(name).map_err(usage)?;
    file::check_note(&arguments.note).map_err(usage)?;
    let volume_path = &arguments.place;
    // The volume may be named by another tag.
    let local = LocalVolume::open_alone(volume_path)?;
    let (folder, file) = file::split(&local.path)?;
    let tag = Tag {
        file,
        volume_uuid: uuid_text(&local.volume.superblock().volume_uuid),
        namespace_uuids: namespace_uuids(&local.volume)?,
        note: arguments.note.clone(),
        time: now(),
    };
    let _lock = Lock::of(&folder)?;
    let mut tags = Tags::read(&folder)?;
    if let Some(there) = tags.tags.get(name)
        && !arguments.moves
    {
        let (file, uuid) = (&there.file, &there.volume_uuid);
        return Err(usage(format!(
            "the tag '{name}' is there: {file}, volume {uuid}; --move gives it to another"
        )));
    }
    let said = format!("{}: volume {} is {name}", tag.file, tag.volume_uuid);
    tags.tags.insert(name.to_owned(), tag);
    tags.write(&folder)?;
    print_line(said)
}

fn delete(folder: &Path, name: &str) -> Result<(), Failure> {
    let _lock = Lock::of(folder)?;
    let mut tags = Tags::read(folder)?;
    let tag = tags.tags.remove(name).ok_or_else(|| absent(folder, name))?;
    tags.write(folder)?;
    let (file, uuid) = (tag.file, tag.volume_uuid);
    print_line(format_args!("{name} was {file}, volume {uuid}"))
}

fn list(folder: &Path, as_json: bool) -> Result<(), Failure> {
    let tags = Tags::read(folder)?;
    if as_json {
        let tags = serde_json::to_value(&tags.tags);
        let tags = tags.map_err(|error| Failure::system(anyhow!("{error}")))?;
        return print_line(json!({ "folder": folder.display().to_string(), "tags": tags }));
    }
    let mut table = TextTable::new(&[
        ("tag", Align::Left),
        ("file", Align::Left),
        ("volume", Align::Left),
        ("given (UTC)", Align::Left),
        ("state", Align::Left),
        ("note", Align::Left),
    ]);
    // The newest last, as a history is read.
    let mut newest: Vec<_> = tags.tags.iter().collect();
    newest.sort_by_key(|(name, tag)| (tag.time, *name));
    for (name, tag) in newest {
        table.row([
            name.clone(),
            tag.file.clone(),
            tag.volume_uuid.clone(),
            time::shown(tag.time),
            state(folder, tag),
            tag.note.clone(),
        ]);
    }
    print(&table.render())
}

/// Whether the file still is what was tagged.
fn state(folder: &Path, tag: &Tag) -> String {
    let path = folder.join(&tag.file);
    match LocalVolume::open_alone(&path) {
        Ok(local) if check(&local.volume, tag).is_ok() => "there".to_owned(),
        Ok(_) => "another volume now".to_owned(),
        Err(_) if is_gone(&path) => "gone".to_owned(),
        Err(_) => "not readable".to_owned(),
    }
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn absent(folder: &Path, name: &str) -> Failure {
    let folder = folder.display();
    let name = name.escape_debug();
    Failure::usage(anyhow!(
        "no tag '{name}' in {folder}; 'xio tag {folder}' lists them"
    ))
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn namespace_uuids(volume: &Volume) -> Result<Vec<String>, Failure> {
    let views = (0..).map(ViewIndex).take(volume.views().len());
    let uuid = |view| Ok(uuid_text(&volume.with_view(view)?.namespace_uuid()));
    views.map(uuid).collect()
}

/// Where the volume at `path` is, which may be `FOLDER@NAME`: what was tagged is there then.
pub fn file_of(path: &Path) -> Result<PathBuf, Failure> {
    let tagged = Tagged::resolve(path)?;
    match tagged.tag {
        None => Ok(tagged.path),
        Some(_) => Ok(LocalVolume::open_alone(path)?.path),
    }
}

/// A volume that was named by its tag.
pub struct Tagged {
    /// The volume's file.
    pub path: PathBuf,
    tag: Option<(String, Tag)>,
}

impl Tagged {
    /// `FOLDER@NAME`, where no file is called that; any other path is the volume's own.
    pub fn resolve(path: &Path) -> Result<Tagged, Failure> {
        let plain = || Tagged {
            path: path.to_owned(),
            tag: None,
        };
        let bytes = path.as_os_str().as_bytes();
        let Some(at) = bytes.iter().rposition(|&byte| byte == b'@') else {
            return Ok(plain());
        };
        let (folder, name) = (&bytes[..at], &bytes[at + 1..]);
        let folder = match folder {
            b"" => Path::new("."),
            folder => Path::new(OsStr::from_bytes(folder)),
        };
        let name = std::str::from_utf8(name).ok();
        let name = name.filter(|name| file::check_name(name).is_ok());
        let (Some(name), false, true) = (name, path.exists(), folder.is_dir()) else {
            return Ok(plain());
        };
        let mut tags = Tags::read(folder)?;
        let tag = tags.tags.remove(name).ok_or_else(|| absent(folder, name))?;
        Ok(Tagged {
            path: folder.join(&tag.file),
            tag: Some((name.to_owned(), tag)),
        })
    }

    /// What was tagged must be what is there.
    pub fn check(&self, volume: &Volume) -> Result<(), Failure> {
        let Some((name, tag)) = &self.tag else {
            return Ok(());
        };
        check(volume, tag).map_err(|(then, now)| {
            let file = &tag.file;
            Failure::data(anyhow!(
                "the tag '{name}' was given to {then}, and {file} is {now} now; 'xio tag --move' gives it to what is there"
            ))
        })
    }
}

/// Both identities, where they differ.
fn check(volume: &Volume, tag: &Tag) -> Result<(), (String, String)> {
    let uuid = uuid_text(&volume.superblock().volume_uuid);
    if uuid != tag.volume_uuid {
        return Err((
            format!("volume {}", tag.volume_uuid),
            format!("volume {uuid}"),
        ));
    }
    let now = namespace_uuids(volume).unwrap_or_default();
    if now != tag.namespace_uuids {
        let shown = |uuids: &[String]| format!("volume {uuid} with the views {}", uuids.join(", "));
        return Err((shown(&tag.namespace_uuids), shown(&now)));
    }
    Ok(())
}
