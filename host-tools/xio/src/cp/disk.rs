//! A disk to copy from: what a volume file presents, or a served namespace.

use std::io;
use std::path::{Path, PathBuf};

use erofs::ReadBlocks;
use erofs::limits::BLOCK_BYTES;
use initiator::{Initiator, Url};
use volume::blocking::Reader;

use crate::failure::Failure;
use crate::local::{LocalVolume, OwnedReader};
use crate::verify::the_namespace;

/// Bytes that are fetched at a time for metadata: directories and inodes lie together, and a request to a target costs more than the bytes.
const AHEAD_BYTES: usize = 64 << 10;

/// Where the bytes come from.
enum Medium {
    Volume(Box<OwnedReader>),
    Namespace(Box<Initiator>, u32),
}

/// A disk whose bytes are read from any place.
pub struct Disk {
    medium: Medium,
    bytes: u64,
    ahead: Vec<u8>,
    ahead_at: u64,
    /// Why reading failed: an I/O error carries text alone.
    failure: Option<Failure>,
}

impl Disk {
    /// `nvme+tcp://...`, or a volume file.
    pub fn open(source: &str, allow_sources: &[PathBuf]) -> Result<Disk, Failure> {
        let (medium, bytes) = if source.contains("://") {
            let url: Url = source
                .parse()
                .map_err(|error: initiator::UrlError| Failure::usage(error))?;
            let options = initiator::Options::default();
            let initiator = Initiator::connect(&url.address(), &url.subnqn, &options)?;
            let nsid = the_namespace(&initiator, &url)?;
            let bytes = initiator.namespace(nsid)?.bytes();
            (Medium::Namespace(Box::new(initiator), nsid), bytes)
        } else {
            let local = LocalVolume::open(Path::new(source), allow_sources)?;
            let bytes = local.volume.presented_bytes();
            (Medium::Volume(Box::new(local.into_reader())), bytes)
        };
        Ok(Disk {
            medium,
            bytes,
            ahead: Vec::new(),
            ahead_at: 0,
            failure: None,
        })
    }

    /// Blocks of 4 KiB.
    pub fn blocks(&self) -> u64 {
        self.bytes / BLOCK_BYTES as u64
    }

    /// Reads bytes of the disk.
    pub fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        match &mut self.medium {
            Medium::Volume(reader) => {
                Reader::read(reader, at, into)?;
            }
            Medium::Namespace(initiator, nsid) => initiator.read(*nsid, at, into)?,
        }
        Ok(())
    }

    /// Why the last block could not be read.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Ends the connection, where there is one.
    pub fn close(self) -> Result<(), Failure> {
        match self.medium {
            Medium::Volume(_) => Ok(()),
            Medium::Namespace(initiator, _) => Ok(initiator.shutdown()?),
        }
    }

    fn fill_ahead(&mut self, at: u64) -> Result<(), Failure> {
        let left = usize::try_from(self.bytes - at).unwrap_or(usize::MAX);
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.resize(left.min(AHEAD_BYTES), 0);
        self.read(at, &mut ahead)?;
        self.ahead = ahead;
        self.ahead_at = at;
        Ok(())
    }
}

impl ReadBlocks for &mut Disk {
    fn read_block(&mut self, block: u32, into: &mut [u8; BLOCK_BYTES]) -> io::Result<()> {
        let at = u64::from(block) * BLOCK_BYTES as u64;
        if at + BLOCK_BYTES as u64 > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let held = |disk: &Disk| {
            let from = usize::try_from(at.checked_sub(disk.ahead_at)?).ok()?;
            Some(from..from.checked_add(BLOCK_BYTES)?)
        };
        let mut bytes = held(self).and_then(|range| self.ahead.get(range));
        if bytes.is_none() {
            if let Err(failure) = self.fill_ahead(at) {
                let said = io::Error::other(failure.to_string());
                self.failure = Some(failure);
                return Err(said);
            }
            bytes = held(self).and_then(|range| self.ahead.get(range));
        }
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
