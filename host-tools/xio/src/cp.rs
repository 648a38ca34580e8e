//! `xio cp`: the files of a mountable disk into a folder, without a mount and without root.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::mount::{Medium, MetadataCache};
use anyhow::anyhow;
use erofs::limits::BLOCK_BYTES;
use erofs::{Attributes, Image, Inode, Kind, Walk};

use crate::cli;
use crate::failure::Failure;
use crate::medium::{self, Source};
use crate::progress::Progress;
use crate::stdout::print_line;
use printout::size::grouped;

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
    let source = Source::open(
        &arguments.source,
        &arguments.allow_sources,
        medium::PATIENCE,
    )?;
    // Complete before it has its name.
    let partial = tempfile::Builder::new()
        .prefix(".xio-cp-")
        .tempdir_in(above)
        .map_err(|error| Failure::io("writing into", above, error))?;
    let root = partial.path().join("root");
    let copied = copy_all(&source.medium(), &root);
    let copied = copied.map_err(|failure| failure.about(&arguments.source))?;
    source.close();
    fs::rename(&root, folder).map_err(|error| Failure::io("writing", folder, error))?;
    finish_folder(folder, &copied.root)?;
    print_line(format_args!(
        "{}: {} files of {} bytes, {} folders, {} symbolic links",
        folder.display(),
        grouped(copied.files as u64),
        grouped(copied.bytes),
        grouped(copied.folders as u64),
        grouped(copied.links),
    ))
}

struct Copied {
    root: Attributes,
    files: usize,
    bytes: u64,
    folders: usize,
    links: u64,
}

/// Everything but the attributes of the root itself: a folder that may not be written to cannot be moved.
fn copy_all(disk: &Arc<dyn Medium>, root: &Path) -> Result<Copied, Failure> {
    let progress = Progress::start("copying", None);
    let listed = make_names(disk, root)?;
    let mut bytes = 0;
    let mut piece = vec![0; PIECE_BYTES];
    for (path, inode) in &listed.files {
        copy_file(&**disk, path, inode, &mut piece)?;
        bytes += inode.bytes;
        progress.set(bytes);
    }
    let [(_, root), below @ ..] = listed.folders.as_slice() else {
        return Err(Failure::data(anyhow!("it has no root")));
    };
    // What is put into a folder changes its time, and may not be allowed by its permissions: those above come last.
    for (path, attributes) in below.iter().rev() {
        finish_folder(path, attributes)?;
    }
    Ok(Copied {
        root: *root,
        files: listed.files.len(),
        bytes,
        folders: below.len(),
        links: listed.links,
    })
}

fn finish_folder(path: &Path, attributes: &Attributes) -> Result<(), Failure> {
    let opened = File::open(path).and_then(|folder| finish(&folder, attributes));
    opened.map_err(|error| Failure::io("writing", path, error))
}

/// What a walk has found.
#[derive(Default)]
struct Listed {
    /// The root first.
    folders: Vec<(PathBuf, Attributes)>,
    files: Vec<(PathBuf, Inode)>,
    links: u64,
}

/// Makes folders and symbolic links. Files are only listed, so that what follows reads payload alone.
fn make_names(disk: &Arc<dyn Medium>, root: &Path) -> Result<Listed, Failure> {
    let mut listed = Listed::default();
    let blocks = disk.bytes() / BLOCK_BYTES as u64;
    let mut image =
        Image::open(MetadataCache::new(disk.clone()), blocks).map_err(medium::of_erofs)?;
    let attributes = image.root().map_err(medium::of_erofs)?.attributes;
    make(fs::create_dir(root), root)?;
    listed.folders.push((root.to_owned(), attributes));
    let mut walk = Walk::new();
    while let Some(visit) = walk.next(&mut image).map_err(medium::of_erofs)? {
        // Its names are checked: each is one name, and leads nowhere but down.
        let path = root.join(OsStr::from_bytes(&visit.path));
        let inode = visit.inode;
        match inode.kind {
            Kind::Directory => {
                make(fs::create_dir(&path), &path)?;
                listed.folders.push((path, inode.attributes));
            }
            Kind::Symlink => {
                let target = image.target(&inode).map_err(medium::of_erofs)?;
                make(symlink(OsStr::from_bytes(&target), &path), &path)?;
                listed.links += 1;
            }
            Kind::File => listed.files.push((path, inode)),
        }
    }
    Ok(listed)
}

fn make(made: std::io::Result<()>, path: &Path) -> Result<(), Failure> {
    made.map_err(|error| Failure::io("writing", path, error))
}

fn copy_file(
    disk: &dyn Medium,
    path: &Path,
    inode: &Inode,
    piece: &mut [u8],
) -> Result<(), Failure> {
    let failed = |error| Failure::io("writing", path, error);
    let file = File::create_new(path).map_err(failed)?;
    let payload = &inode.payload;
    let first = u64::from(payload.first_block) * BLOCK_BYTES as u64;
    let runs = [
        (first, payload.bytes),
        (payload.tail_offset, payload.tail_bytes as u64),
    ];
    let mut done = 0;
    for (at, bytes) in runs {
        let mut from = 0;
        while from < bytes {
            let wanted =
                usize::try_from(bytes - from).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let piece = &mut piece[..wanted];
            let read = disk.read(at + from, piece);
            read.map_err(|failure| medium::of_read(&failure))?;
            file.write_all_at(piece, done).map_err(failed)?;
            from += wanted as u64;
            done += wanted as u64;
        }
    }
    finish(&file, &inode.attributes).map_err(failed)
}

/// Permissions and time.
fn finish(file: &File, attributes: &Attributes) -> std::io::Result<()> {
    if let Some(modified) = attributes.modified.to_system() {
        file.set_modified(modified)?;
    }
    let permissions = u32::from(attributes.permissions & PERMISSIONS);
    file.set_permissions(Permissions::from_mode(permissions))
}
