//! Reading a file's bytes, whatever holds them: ranges, and a cursor for headers whose length is not known beforehand.

use std::cell::RefCell;
use std::io;

use crate::{Format, FormatError};

/// Bytes that can be read at any offset.
pub trait ByteSource {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Whatever the medium says; a range beyond the end is `UnexpectedEof`.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl ByteSource for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..)?.get(..into.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(found);
        Ok(())
    }
}

/// Bytes `offset..offset + bytes` of a file, at most `max` of them, all inside it.
pub(crate) fn range(
    source: &dyn ByteSource,
    format: Format,
    offset: u64,
    bytes: u64,
    max: u64,
) -> Result<Vec<u8>, FormatError> {
    let inside = offset
        .checked_add(bytes)
        .is_some_and(|end| end <= source.bytes());
    if !inside {
        let why = format!(
            "{bytes} bytes belong there, the file ends at byte {}",
            source.bytes()
        );
        return Err(FormatError::malformed(format, offset, why));
    }
    let limit = FormatError::Limit {
        format,
        what: "bytes of header",
        found: bytes,
        max,
    };
    let Some(len) = usize::try_from(bytes).ok().filter(|_| bytes <= max) else {
        return Err(limit);
    };
    let mut read = vec![0; len];
    source
        .read_at(offset, &mut read)
        .map_err(|error| FormatError::Read { offset, error })?;
    Ok(read)
}

/// The file's first bytes, at most `N`; zeros where there are none, and how many there are.
pub(crate) fn head<const N: usize>(
    source: &dyn ByteSource,
) -> Result<([u8; N], usize), FormatError> {
    let mut head = [0; N];
    let len = usize::try_from(source.bytes()).map_or(N, |bytes| bytes.min(N));
    let (part, _) = head.split_at_mut(len);
    source
        .read_at(0, part)
        .map_err(|error| FormatError::Read { offset: 0, error })?;
    Ok((head, len))
}

/// Reads little-endian fields one behind the other. Buffered; never beyond the file or the limit.
pub(crate) struct Cursor<'a> {
    source: &'a dyn ByteSource,
    format: Format,
    /// Where the next field starts.
    offset: u64,
    /// No field ends behind this.
    end_max: u64,
    buffer: Vec<u8>,
    /// File offset of the buffer's first byte.
    buffer_offset: u64,
}

impl<'a> Cursor<'a> {
    const CHUNK_BYTES: u64 = 64 << 10;

    pub(crate) fn new(source: &'a dyn ByteSource, format: Format, offset: u64, max: u64) -> Self {
        Cursor {
            source,
            format,
            offset,
            end_max: offset.saturating_add(max),
            buffer: Vec::new(),
            buffer_offset: offset,
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `bytes` bytes.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<&[u8], FormatError> {
        let start = self.offset;
        let end = start.saturating_add(bytes);
        if end > self.source.bytes() {
            let why = format!("a field of {bytes} bytes ends behind the file's end");
            return Err(FormatError::malformed(self.format, start, why));
        }
        if end > self.end_max {
            return Err(FormatError::Limit {
                format: self.format,
                what: "bytes of header",
                found: end,
                max: self.end_max,
            });
        }
        if end > self.buffer_offset + self.buffer.len() as u64 {
            let wanted = bytes.max(Self::CHUNK_BYTES);
            let there = wanted.min(self.source.bytes() - start);
            self.buffer = range(self.source, self.format, start, there, there)?;
            self.buffer_offset = start;
        }
        self.offset = end;
        usize::try_from(start - self.buffer_offset)
            .ok()
            .and_then(|from| self.buffer.get(from..)?.get(..usize::try_from(bytes).ok()?))
            .ok_or_else(|| FormatError::malformed(self.format, start, "out of memory"))
    }

    /// Goes on `bytes` bytes further without looking at them.
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<(), FormatError> {
        let start = self.offset;
        let end = start.checked_add(bytes);
        match end.filter(|end| *end <= self.source.bytes()) {
            Some(end) if end <= self.end_max => {
                if end > self.buffer_offset + self.buffer.len() as u64 {
                    self.buffer.clear();
                    self.buffer_offset = end;
                }
                self.offset = end;
                Ok(())
            }
            Some(end) => Err(FormatError::Limit {
                format: self.format,
                what: "bytes of header",
                found: end,
                max: self.end_max,
            }),
            None => {
                let why = format!("a field of {bytes} bytes ends behind the file's end");
                Err(FormatError::malformed(self.format, start, why))
            }
        }
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32_at(self.take(4)?, 0))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64_at(self.take(8)?, 0))
    }
}

/// Reads through a buffer, for many small reads that go forward.
pub(crate) struct Buffered<'a> {
    source: &'a dyn ByteSource,
    /// File offset of the buffer's first byte, and the buffer.
    held: RefCell<(u64, Vec<u8>)>,
}

impl<'a> Buffered<'a> {
    const CHUNK_BYTES: u64 = 64 << 10;

    pub(crate) fn new(source: &'a dyn ByteSource) -> Buffered<'a> {
        Buffered {
            source,
            held: RefCell::new((0, Vec::new())),
        }
    }
}

impl ByteSource for Buffered<'_> {
    fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = into.len() as u64;
        if bytes >= Self::CHUNK_BYTES {
            return self.source.read_at(offset, into);
        }
        let mut held = self.held.borrow_mut();
        let (start, buffer) = &mut *held;
        let inside = offset
            .checked_sub(*start)
            .is_some_and(|from| from + bytes <= buffer.len() as u64);
        if !inside {
            let there = self.source.bytes().saturating_sub(offset);
            buffer.resize(index(Self::CHUNK_BYTES.min(there).max(bytes)), 0);
            *start = offset;
            if let Err(error) = self.source.read_at(offset, buffer) {
                buffer.clear();
                return Err(error);
            }
        }
        buffer.as_slice().read_at(offset - *start, into)
    }
}

/// A length in memory, which is shorter than a `usize` can count.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Little-endian; zero where the bytes end before, which every caller has excluded.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at).map_or(0, u32::from_le_bytes)
}

/// As [`u32_at`].
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, u64::from_le_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.get(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_cursor_reads_across_its_chunks_and_stops_at_its_limit() {
        let file: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        let source = file.as_slice();
        let mut cursor = Cursor::new(&source, Format::Gguf, 0, 600_000);
        for expected in 0..100_000 {
            assert_eq!(cursor.u32().unwrap(), expected);
        }
        cursor.skip(40_000).unwrap();
        assert_eq!(cursor.u32().unwrap(), 110_000);
        assert_eq!(cursor.take(150_000).unwrap().len(), 150_000);
        assert_eq!(cursor.offset(), 590_004);
        assert!(matches!(
            cursor.take(10_000),
            Err(FormatError::Limit { found: 600_004, .. })
        ));
        assert!(matches!(
            cursor.skip(u64::MAX),
            Err(FormatError::Malformed {
                offset: 590_004,
                ..
            })
        ));
    }

    #[test]
    fn buffered_reads_are_the_sources_and_few() {
        struct Counted(Vec<u8>, Cell<u32>);
        impl ByteSource for Counted {
            fn bytes(&self) -> u64 {
                self.0.len() as u64
            }
            fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
                self.1.set(self.1.get() + 1);
                self.0.as_slice().read_at(offset, into)
            }
        }
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let source = Counted(bytes.clone(), Cell::new(0));
        let buffered = Buffered::new(&source);
        let mut found = [0; 7];
        for (chunk, offset) in bytes.chunks_exact(7).zip((0..).step_by(7)) {
            buffered.read_at(offset, &mut found).unwrap();
            assert_eq!(found, chunk);
        }
        // 64 KiB at a time, begun at the read that does not fit.
        assert_eq!(source.1.get(), 4);
        buffered.read_at(3, &mut found).unwrap();
        assert_eq!(found, bytes[3..10]);
        let beyond = buffered.read_at(199_995, &mut found).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        buffered.read_at(199_993, &mut found).unwrap();
        assert_eq!(found, bytes[199_993..]);
    }

    #[test]
    fn a_range_beyond_the_file_or_the_limit_is_refused_before_memory_is_taken() {
        let source: &[u8] = &[1, 2, 3];
        let read = |offset, bytes, max| range(&source, Format::Npy, offset, bytes, max);
        assert_eq!(read(1, 2, 2).unwrap(), [2, 3]);
        assert!(matches!(
            read(1, u64::MAX, u64::MAX),
            Err(FormatError::Malformed { .. })
        ));
        assert!(matches!(
            read(0, 3, 2),
            Err(FormatError::Limit { max: 2, .. })
        ));
    }
}
