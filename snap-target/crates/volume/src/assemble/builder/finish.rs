//! The end of a volume: what waited goes behind the payload, then the directory, and superblocks for what there is then.

use std::io::{Read, Seek, SeekFrom, Write};

use transforms::Table as ChainTable;
use zerocopy::IntoBytes;

use super::{TableWriter, VolumeBuilder, padding, refused, writing};
use crate::VolumeError;
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64, MAGIC, VERSION, zeroed_superblock};
use crate::format::superblock::{SLOT_OFFSETS, TAIL_SLOT, seal};
use crate::format::{Blob, ChainUse, Layout, Source, Stream, Table, TableKind, View};
use crate::limits;

/// A volume that lacks only its superblocks.
pub(crate) struct Sealed<W> {
    /// Where payload and tables went, and where `tail` follows.
    pub out: W,
    /// The last 4096 bytes.
    pub tail: Box<[u8; BLOCK_BYTES]>,
    /// The first 4096 bytes.
    pub slot_0: Box<[u8; BLOCK_BYTES]>,
    /// The other slot, the same.
    pub slot_1: Box<[u8; BLOCK_BYTES]>,
}

impl<W: Write> VolumeBuilder<W> {
    /// Writes tables and blobs behind the payload, and makes the superblocks.
    ///
    /// # Errors
    /// [`VolumeError::Usage`] when a stream was begun and not finished; [`VolumeError::Refused`]; [`VolumeError::Io`].
    pub fn finish(mut self) -> Result<Sealed<W>, VolumeError> {
        if self.stream_open {
            return Err(VolumeError::Usage("a stream was begun and not finished"));
        }
        self.place_spill()?;
        self.place_texts()?;
        let directory_blocks = self.directory_blocks();
        let volume_bytes = self.position + (directory_blocks + 1) * BLOCK_BYTES_U64;
        if volume_bytes > limits::BYTES_MAX {
            return Err(refused("volume", "larger than a volume may be"));
        }
        self.sources[0].bytes = volume_bytes;
        let directory = self.write_directory()?;
        self.out.flush().map_err(writing)?;

        let mut raw = zeroed_superblock();
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.volume_uuid = self.options.volume_uuid;
        raw.generation = 1.into();
        raw.volume_bytes = volume_bytes.into();
        raw.lba_bytes = self.options.lba_bytes.into();
        for (to, from) in raw.writer.iter_mut().zip(self.options.writer.bytes()) {
            *to = from;
        }
        for (to, from) in raw.directory.iter_mut().zip(&directory) {
            *to = from.to_raw();
        }
        seal(&mut raw);
        let slot_0 = boxed(raw.as_bytes());
        raw.slot = 1.into();
        raw.own_offset = SLOT_OFFSETS[1].into();
        seal(&mut raw);
        let slot_1 = boxed(raw.as_bytes());
        raw.slot = TAIL_SLOT.into();
        raw.own_offset = (volume_bytes - BLOCK_BYTES_U64).into();
        seal(&mut raw);
        Ok(Sealed {
            out: self.out,
            tail: boxed(raw.as_bytes()),
            slot_0,
            slot_1,
        })
    }

    /// Copies the spill behind the payload, and moves what lies in it.
    fn place_spill(&mut self) -> Result<(), VolumeError> {
        let base = self.position;
        let reading = |error| VolumeError::io("reading the spill file back", error);
        self.spill.seek(SeekFrom::Start(0)).map_err(reading)?;
        let mut left = self.spill_bytes;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            let now = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            self.spill.read_exact(&mut buffer[..now]).map_err(reading)?;
            self.out.write_all(&buffer[..now]).map_err(writing)?;
            self.position += now as u64;
            left -= now as u64;
        }
        let moved = |table: &mut Table| *table = table.moved_to(base + table.offset());
        for stream in &mut self.streams {
            match &mut stream.layout {
                Layout::Framed { frames, .. } => moved(frames),
                Layout::Unframed { checksums, .. } => checksums.iter_mut().for_each(moved),
            }
        }
        self.views
            .iter_mut()
            .for_each(|view| moved(&mut view.extents));
        for blob in self.blobs.iter_mut().filter(|blob| !blob.kind.is_text()) {
            blob.offset += base;
        }
        Ok(())
    }

    fn place_texts(&mut self) -> Result<(), VolumeError> {
        let base = self.position;
        let texts = std::mem::take(&mut self.texts);
        self.write(&texts)?;
        self.write(padding(self.position))?;
        for blob in self.blobs.iter_mut().filter(|blob| blob.kind.is_text()) {
            blob.offset += base;
        }
        Ok(())
    }

    fn directory_blocks(&self) -> u64 {
        [
            (TableKind::Sources, self.sources.len()),
            (TableKind::Streams, self.streams.len()),
            (TableKind::Chains, self.chains.len()),
            (TableKind::Blobs, self.blobs.len()),
            (TableKind::Views, self.views.len()),
        ]
        .iter()
        .map(|(kind, count)| Table::at(*kind, 0, *count as u64, 0).block_count())
        .sum()
    }

    fn write_directory(&mut self) -> Result<[Table; 5], VolumeError> {
        let sources: Vec<_> = self.sources.iter().map(Source::to_raw).collect();
        let streams: Vec<_> = self.streams.iter().map(Stream::to_raw).collect();
        let blob = |table: &ChainTable| {
            let index = self.chain_tables.position(table)?;
            self.chain_table_blobs.get(index).copied()
        };
        let raw = |chain: &ChainUse| chain.to_raw(blob);
        let chains: Vec<_> = self.chains.iter().map(raw).collect();
        let blobs: Vec<_> = self.blobs.iter().map(Blob::to_raw).collect();
        let views: Vec<_> = self.views.iter().map(View::to_raw).collect();
        Ok([
            self.write_table(TableKind::Sources, &sources)?,
            self.write_table(TableKind::Streams, &streams)?,
            self.write_table(TableKind::Chains, &chains)?,
            self.write_table(TableKind::Blobs, &blobs)?,
            self.write_table(TableKind::Views, &views)?,
        ])
    }

    fn write_table<E>(&mut self, kind: TableKind, entries: &[E]) -> Result<Table, VolumeError>
    where
        E: IntoBytes + zerocopy::Immutable,
    {
        let offset = self.position;
        let mut writer = TableWriter::new(kind, 0, self.volume_uuid());
        let mut bytes = Vec::new();
        for entry in entries {
            writer.push(entry.as_bytes(), &mut bytes).map_err(writing)?;
        }
        let table = writer.finish(&mut bytes).map_err(writing)?.moved_to(offset);
        self.write(&bytes)?;
        Ok(table)
    }
}

impl Sealed<Vec<u8>> {
    /// The whole volume, in memory.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.out.extend_from_slice(&self.tail[..]);
        for (offset, slot) in SLOT_OFFSETS.iter().zip([&self.slot_0, &self.slot_1]) {
            let at = usize::try_from(*offset).unwrap_or(usize::MAX);
            self.out[at..at + BLOCK_BYTES].copy_from_slice(&slot[..]);
        }
        self.out
    }
}

fn boxed(bytes: &[u8]) -> Box<[u8; BLOCK_BYTES]> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    block.copy_from_slice(bytes);
    block
}
