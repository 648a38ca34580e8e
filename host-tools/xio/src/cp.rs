//! `xio cp`: the files of a disk into a folder, without a mount and without root.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::mount::Medium;
use anyhow::anyhow;
use dataset::{PATH_BYTES_MAX, shortened};
use erofs::{Attributes, Kind, Time};
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;

use crate::cli;
use crate::contents::{self, Item, Items};
use crate::failure::Failure;
use crate::medium::{PATIENCE, Source};
use crate::progress::Progress;
use crate::room::{self, Needed};
use crate::signals::Underway;
use crate::sparse;
use crate::spool::Spool;
use crate::stdout::print_line;
use printout::size::counted;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Set-user-ID and the like are not given: the files belong to whoever copies.
const PERMISSIONS: u16 = 0o777;

/// Runs the command.
pub fn run(arguments: &cli::Cp) -> Result<(), Failure> {
    let folder = &arguments.folder;
    if fs::symlink_metadata(folder).is_ok() {
        let why = anyhow!("{} exists already; choose another name", folder.display());
        return Err(Failure::usage(why));
    }
    let above = match folder.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    let source = Source::open(&arguments.source, &arguments.opening, PATIENCE)?;
    let items = contents::of(&source, arguments.source.display())?;
    let Some(items) = items else {
        return Err(Failure::data(anyhow!(
            "{} has neither a filesystem nor a partition table: there are no files to copy; 'xio unpack' writes the bytes of a volume into a file",
            arguments.source.display()
        )));
    };
    // Complete before it has its name.
    let partial = Spool::new(above, ".xio-cp-")?;
    check_room(folder, &items)?;
    let root = partial.path().join("root");
    check_paths(&[&root, folder], &items)?;
    let places = Places { root, folder };
    let copied = copy_all(&source.medium(), &items, &places);
    let copied = copied.map_err(|failure| failure.about(arguments.source.display()))?;
    source.close();
    fs::rename(&places.root, folder).map_err(|error| Failure::io("writing", folder, error))?;
    if let Some(root) = items.get(&b""[..]) {
        finish_folder(folder, folder, &root.attributes)?;
    }
    print_line(format_args!(
        "{}: {} of {}, {}, {}",
        folder.display(),
        counted(copied.files, "file"),
        counted(copied.bytes, "byte"),
        counted(copied.folders, "folder"),
        counted(copied.links, "symbolic link"),
    ))
}

/// What a disk has deep within it may lie too deep in the copy, or in the folder where this is made.
fn check_paths(folders: &[&Path], items: &Items) -> Result<(), Failure> {
    let longest = items.keys().max_by_key(|path| path.len());
    let above = folders.iter().map(|it| it.as_os_str().len()).max();
    let (Some(longest), Some(above)) = (longest, above) else {
        return Ok(());
    };
    let bytes = above + 1 + longest.len();
    if bytes <= PATH_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::usage(anyhow!(
        "{}: its path would have {bytes} bytes in the copy, and Linux takes {PATH_BYTES_MAX}: go to the folder that the copy is to be in and give it a short name, or use xio mount",
        shortened(longest)
    )))
}

fn check_room(folder: &Path, items: &Items) -> Result<(), Failure> {
    let largest = items.iter().max_by_key(|(_, item)| item.bytes);
    if let Some((name, item)) = largest {
        let path = folder.join(OsStr::from_bytes(name));
        room::check_limit(&path, Needed::exactly(item.bytes))?;
    }
    let bytes = items.values().map(|item| item.bytes).sum();
    room::check_file_system(folder, Needed::exactly(bytes))
}

#[derive(Default)]
struct Copied {
    files: u64,
    bytes: u64,
    folders: u64,
    links: u64,
}

/// Where the copy is made, and where it will be: a person is told the latter.
struct Places<'a> {
    root: PathBuf,
    folder: &'a Path,
}

/// Everything but the attributes of the root itself: a folder that may not be written to cannot be moved.
fn copy_all(
    medium: &Arc<dyn Medium>,
    items: &Items,
    Places { root, folder }: &Places<'_>,
) -> Result<Copied, Failure> {
    let progress = Progress::start("copying", None);
    fs::create_dir(root).map_err(|error| Failure::io("writing", folder, error))?;
    let mut copied = Copied::default();
    let mut folders: Vec<(PathBuf, PathBuf, &Attributes)> = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    for (name, item) in items.iter().filter(|(path, _)| !path.is_empty()) {
        // A command that was told to end makes nothing more.
        drop(Underway::now());
        let name_in = |folder: &Path| folder.join(OsStr::from_bytes(name));
        let (path, shown) = (name_in(root), name_in(folder));
        let failed = |error| Failure::io("writing", &shown, error);
        match item.kind {
            Kind::Directory => {
                fs::create_dir(&path).map_err(failed)?;
                folders.push((path, shown, &item.attributes));
                copied.folders += 1;
            }
            Kind::Symlink => {
                symlink(OsStr::from_bytes(&item.target), &path).map_err(failed)?;
                finish_link(&path, &item.attributes).map_err(failed)?;
                copied.links += 1;
            }
            Kind::File => {
                let read = |from, into: &mut [u8]| {
                    let read = contents::read(medium, item.runs, from, into);
                    read.map_err(|failure| Failure::from(failure).about(erofs::shown(name)))
                };
                copy_file(read, (&path, &shown), item, &mut piece)?;
                copied.files += 1;
                copied.bytes += item.bytes;
                progress.set(copied.bytes);
            }
        }
    }
    // What is put into a folder changes its time, and may not be allowed by its permissions: those above come last.
    for (path, shown, attributes) in folders.iter().rev() {
        finish_folder(path, shown, attributes)?;
    }
    Ok(copied)
}

fn finish_folder(path: &Path, shown: &Path, attributes: &Attributes) -> Result<(), Failure> {
    let opened = File::open(path).and_then(|folder| finish(&folder, attributes));
    opened.map_err(|error| Failure::io("writing", shown, error))
}

/// Its time: links have no permissions of their own.
fn finish_link(path: &Path, attributes: &Attributes) -> std::io::Result<()> {
    let Time {
        seconds,
        nanoseconds,
    } = attributes.modified;
    let modified = TimeSpec::new(seconds, nanoseconds.into());
    let not_followed = UtimensatFlags::NoFollowSymlink;
    utimensat(
        AT_FDCWD,
        path,
        &TimeSpec::UTIME_OMIT,
        &modified,
        not_followed,
    )?;
    Ok(())
}

fn copy_file(
    read: impl Fn(u64, &mut [u8]) -> Result<(), Failure>,
    (path, shown): (&Path, &Path),
    item: &Item,
    piece: &mut [u8],
) -> Result<(), Failure> {
    let failed = |error| Failure::io("writing", shown, error);
    let file = File::create_new(path).map_err(failed)?;
    let mut done = 0;
    while done < item.bytes {
        let wanted = usize::try_from(item.bytes - done).unwrap_or(usize::MAX);
        let bytes = wanted.min(piece.len());
        let piece = &mut piece[..bytes];
        read(done, piece)?;
        sparse::write(&file, piece, done).map_err(failed)?;
        done += bytes as u64;
    }
    file.set_len(item.bytes).map_err(failed)?;
    finish(&file, &item.attributes).map_err(failed)
}

/// Permissions and time.
fn finish(file: &File, attributes: &Attributes) -> std::io::Result<()> {
    if let Some(modified) = attributes.modified.to_system() {
        file.set_modified(modified)?;
    }
    let permissions = u32::from(attributes.permissions & PERMISSIONS);
    file.set_permissions(Permissions::from_mode(permissions))
}
