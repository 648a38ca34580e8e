//! The kernel's questions, answered.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::SystemTime;

use erofs::limits::{BLOCK_BYTES, NAME_BYTES_MAX};
use erofs::{ErofsError, Kind};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};

use crate::complaints::{Complaints, Place};
use crate::files::{Content, Files, Node};
use crate::limits::{CHUNK_BYTES, KEPT};
use crate::medium::{Medium, ReadFailure};
use crate::read_ahead::ReadAhead;

const BLOCK: u32 = 4096;
const _: () = assert!(BLOCK as usize == BLOCK_BYTES);
/// An inode is the same as long as the mount is there.
const GENERATION: Generation = Generation(0);

/// A mounted disk.
pub(crate) struct DiskFilesystem {
    medium: Arc<dyn Medium>,
    files: Files,
    ahead: ReadAhead,
    complaints: Arc<Complaints>,
}

impl DiskFilesystem {
    pub(crate) fn new(content: Content, complaints: Complaints) -> DiskFilesystem {
        DiskFilesystem {
            ahead: ReadAhead::new(content.medium.clone()),
            medium: content.medium,
            files: content.files,
            complaints: Arc::new(complaints),
        }
    }

    /// Says what is wrong, and what the reader is told.
    fn complain(&self, number: INodeNo, error: &ErofsError) -> Errno {
        self.complaints
            .about(format!("inode {number}: {error}", number = number.0));
        Errno::EIO
    }

    fn read_file(&self, number: u64, from: u64, bytes: usize) -> Result<Vec<u8>, ReadFailure> {
        let runs = self.files.locate(number, (from, bytes))?;
        let [first, tail] = runs;
        let mut content = vec![0; first.bytes + tail.bytes];
        let (in_blocks, in_tail) = content.split_at_mut(first.bytes);
        self.ahead.read(first.at, in_blocks)?;
        self.ahead.read(tail.at, in_tail)?;
        Ok(content)
    }

    /// Says which bytes of a request cannot be read, once.
    fn complain_of_read(&self, number: u64, from: u64, bytes: usize, failure: ReadFailure) {
        let failed = match failure.is_damage {
            true => self.damaged(number, from, bytes),
            false => Vec::new(),
        };
        // What was damaged a moment ago, and is not now, is told as it was met.
        let failed = match failed.is_empty() {
            true => vec![(from..from.saturating_add(bytes as u64), failure)],
            false => failed,
        };
        for (bytes, failure) in failed {
            let place = Place {
                file: number,
                bytes,
                is_damage: failure.is_damage,
            };
            if self.complaints.is_new(&place) {
                let (path, at) = (self.files.path(number), place.bytes.start);
                let count = place.bytes.end - at;
                let text = format!("{path}, {count} bytes at {at}: {failure}");
                self.complaints.about(text);
            }
        }
    }

    /// The runs of blocks of a request that cannot be had, each with why its first block cannot: what lies beside them is good, and a request is of many.
    fn damaged(&self, number: u64, from: u64, bytes: usize) -> Vec<(Range<u64>, ReadFailure)> {
        let mut failed: Vec<(Range<u64>, ReadFailure)> = Vec::new();
        let end = from.saturating_add(bytes as u64);
        let mut at = from;
        while at < end {
            let next = (at - at % BLOCK_BYTES as u64).saturating_add(BLOCK_BYTES as u64);
            let block = at..next.min(end);
            match self.read_block(number, &block) {
                // The kernel asks for whole pages, and files end within.
                Ok(0) => break,
                Ok(_) => {}
                Err(failure) => match failed.last_mut().filter(|(run, _)| run.end == at) {
                    Some((run, _)) => run.end = block.end,
                    None => failed.push((block.clone(), failure)),
                },
            }
            at = block.end;
        }
        failed
    }

    /// Reads a part of a file past what is read ahead; how much of it there is.
    fn read_block(&self, number: u64, block: &Range<u64>) -> Result<usize, ReadFailure> {
        let bytes = usize::try_from(block.end - block.start).unwrap_or(BLOCK_BYTES);
        let runs = self.files.locate(number, (block.start, bytes))?;
        let mut content = [0; BLOCK_BYTES];
        for run in runs.iter().filter(|run| run.bytes > 0) {
            if let Some(into) = content.get_mut(..run.bytes) {
                self.medium.read(run.at, into)?;
            }
        }
        Ok(runs.iter().map(|run| run.bytes).sum())
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File => FileType::RegularFile,
        Kind::Symlink => FileType::Symlink,
    }
}

fn attributes(node: &Node) -> FileAttr {
    let modified = node.attributes.modified.to_system();
    let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(node.number),
        size: node.bytes,
        blocks: node.bytes.div_ceil(512),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: file_type(node.kind),
        perm: node.attributes.permissions,
        nlink: node.links,
        uid: node.attributes.uid,
        gid: node.attributes.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

/// "There is no such name", which the kernel may remember too.
fn nothing() -> FileAttr {
    let node = Node {
        number: 0,
        kind: Kind::File,
        attributes: erofs::Attributes::new(0),
        links: 0,
        bytes: 0,
    };
    attributes(&node)
}

impl Filesystem for DiskFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each is a wish: an older kernel does without.
        for wish in [
            // Names and inodes in one answer.
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            // Several look-ups in one folder at once.
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Targets of links are kept.
            InitFlags::FUSE_CACHE_SYMLINKS,
            // Whoever reads while the mount ends is told so.
            InitFlags::FUSE_ABORT_ERROR,
        ] {
            let _ = config.add_capabilities(wish);
        }
        let bytes = u32::try_from(CHUNK_BYTES).unwrap_or(u32::MAX);
        if let Err(most) = config.set_max_readahead(bytes) {
            let _ = config.set_max_readahead(most);
        }
        // The largest request, of which the largest read is made too.
        let _ = config.set_max_write(bytes);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.files.find(parent.0, name.as_bytes()) {
            Ok(Some(node)) => reply.entry(&KEPT, &attributes(&node), GENERATION),
            Ok(None) => reply.entry(&KEPT, &nothing(), GENERATION),
            Err(error) => reply.error(self.complain(parent, &error)),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.files.node(number.0) {
            Ok(node) => reply.attr(&KEPT, &attributes(&node)),
            Err(error) => reply.error(self.complain(number, &error)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.files.target(number.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.complain(number, &error)),
        }
    }

    /// Not there: the kernel opens files without asking from then on, and keeps their pages (FUSE_NO_OPEN_SUPPORT, Linux 3.16).
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    /// Not there, and folders' names are kept (FUSE_NO_OPENDIR_SUPPORT, Linux 5.1).
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        from: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(number.0, from, bytes as usize) {
            Ok(content) => reply.data(&content),
            Err(failure) => {
                // The reader is not kept waiting for the name of its file.
                reply.error(Errno::EIO);
                self.complain_of_read(number.0, from, bytes as usize, failure);
            }
        }
    }

    fn readdir(
        &self,
        _: &Request,
        folder: INodeNo,
        _: FileHandle,
        at: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.files.list(folder.0, at, false, |entry, _| {
            let name = OsStr::from_bytes(entry.name);
            let (number, kind) = (INodeNo(entry.number), file_type(entry.kind));
            !reply.add(number, entry.next, kind, name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.complain(folder, &error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        folder: INodeNo,
        _: FileHandle,
        at: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.files.list(folder.0, at, true, |entry, node| {
            let name = OsStr::from_bytes(entry.name);
            let attributes = node.map_or_else(nothing, attributes);
            let number = INodeNo(entry.number);
            !reply.add(number, entry.next, name, &KEPT, &attributes, GENERATION)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.complain(folder, &error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.files.blocks(&*self.medium);
        let inodes = self.files.inodes();
        let name_bytes = u32::try_from(NAME_BYTES_MAX).unwrap_or(255);
        reply.statfs(blocks, 0, 0, inodes, 0, BLOCK, name_bytes, BLOCK);
    }
}
