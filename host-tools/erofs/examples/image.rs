//! A folder as an EROFS disk in a file: what a caller of this crate does, in the small.
//!
//! ```text
//! image FOLDER DISK [--hole NAME=BYTES]...
//! ```
//!
//! Directories, files and symbolic links, with mode, owner and time. Each --hole adds a file of zeros to the root, which takes no room in DISK, with the
//! eight bytes "the end\n" at its end. Prints the blocks of metadata and of the disk.

use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use erofs::{Attributes, DirectoryId, FileId, Label, Layout, Time, Tree};

type Failure = Box<dyn std::error::Error>;

const BLOCK: u64 = erofs::limits::BLOCK_BYTES as u64;
const HOLE_END: &[u8] = b"the end\n";

/// Where a file's payload comes from.
enum Source {
    Path(PathBuf),
    Hole,
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), Some(disk)) = (arguments.next(), arguments.next()) else {
        return Err("image FOLDER DISK [--hole NAME=BYTES]...".into());
    };
    let folder = PathBuf::from(folder);
    let mut tree = Tree::new(attributes(&fs::metadata(&folder)?)?)?;
    let mut sources = Vec::new();
    let root = tree.root();
    add_folder(&mut tree, root, &folder, &mut sources)?;
    while arguments.next().is_some_and(|flag| flag == "--hole") {
        let given = arguments.next().ok_or("--hole NAME=BYTES")?.into_string();
        let given = given.map_err(|_| "--hole NAME=BYTES")?;
        let (name, bytes) = given.split_once('=').ok_or("--hole NAME=BYTES")?;
        let file = tree.add_file(
            root,
            name.as_bytes(),
            bytes.parse()?,
            Attributes::new(0o444),
        )?;
        sources.push((file, Source::Hole));
    }
    let layout = tree.lay_out(Label {
        uuid: *b"erofs crate test",
        built: Time::default(),
        volume_name: b"image".to_vec(),
    })?;
    write_disk(&layout, &sources, &mut File::create(disk)?)?;
    let (metadata, blocks) = (layout.metadata_blocks(), layout.blocks());
    println!("{metadata} blocks of metadata, {blocks} in all");
    Ok(())
}

fn add_folder(
    tree: &mut Tree,
    into: DirectoryId,
    folder: &Path,
    sources: &mut Vec<(FileId, Source)>,
) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, metadata) = (entry.file_name(), entry.metadata()?);
        let (name, about) = (name.as_bytes(), attributes(&metadata)?);
        if metadata.is_dir() {
            let directory = tree.add_directory(into, name, about)?;
            add_folder(tree, directory, &entry.path(), sources)?;
        } else if metadata.is_symlink() {
            let target = fs::read_link(entry.path())?.into_os_string().into_vec();
            tree.add_symlink(into, name, &target, about)?;
        } else {
            let file = tree.add_file(into, name, metadata.len(), about)?;
            sources.push((file, Source::Path(entry.path())));
        }
    }
    Ok(())
}

fn attributes(metadata: &Metadata) -> Result<Attributes, Failure> {
    Ok(Attributes {
        permissions: u16::try_from(metadata.mode() & 0o7777)?,
        uid: metadata.uid(),
        gid: metadata.gid(),
        modified: Time {
            seconds: metadata.mtime(),
            nanoseconds: u32::try_from(metadata.mtime_nsec())?,
        },
    })
}

fn write_disk(
    layout: &Layout,
    sources: &[(FileId, Source)],
    disk: &mut File,
) -> Result<(), Failure> {
    disk.set_len(u64::from(layout.blocks()) * BLOCK)?;
    io::copy(&mut layout.metadata(), disk)?;
    for (place, (file, source)) in layout.files().zip(sources) {
        assert_eq!(
            place.file, *file,
            "files come in the order in which they were added"
        );
        let at = u64::from(place.first_block) * BLOCK;
        match source {
            Source::Path(path) => {
                disk.seek(SeekFrom::Start(at))?;
                let copied = io::copy(&mut File::open(path)?, disk)?;
                assert_eq!(
                    copied,
                    place.bytes,
                    "{} has grown or shrunk",
                    path.display()
                );
            }
            Source::Hole => {
                disk.seek(SeekFrom::Start(at + place.bytes - HOLE_END.len() as u64))?;
                disk.write_all(HOLE_END)?;
            }
        }
    }
    Ok(())
}
