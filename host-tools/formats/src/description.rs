//! What a file is, and where its elements lie.

use std::fmt;
use std::ops::Range;

use crate::presentation::{self, Presentation, Targets};
use crate::{ByteSource, Dtype, FormatError};
use crate::{gguf, llmc, mds, npy, safetensors};

/// A file format that is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Named tensors behind a JSON header.
    Safetensors,
    /// `model.safetensors.index.json`: which shard holds which tensor.
    SafetensorsIndex,
    /// One numpy array.
    Npy,
    /// A zip archive of numpy arrays.
    Npz,
    /// Any other zip archive.
    Zip,
    /// The index of a Megatron pair.
    MegatronIndex,
    /// The token ids of a Megatron pair, which have no header of their own.
    MegatronBin,
    /// Token ids behind the 256-integer header of llm.c.
    LlmC,
    /// A shard of MosaicML streaming.
    MdsShard,
    /// `index.json` of a MosaicML streaming dataset.
    MdsIndex,
    /// Tensors of llama.cpp.
    Gguf,
    /// A tape archive.
    Tar,
    /// Apache Parquet.
    Parquet,
    /// A JPEG picture.
    Jpeg,
    /// Elements without a header, of a type that the user named.
    Raw,
    /// None of these.
    Unknown,
}

impl Format {
    /// The name that is shown to people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Safetensors => "safetensors",
            Format::SafetensorsIndex => "safetensors index",
            Format::Npy => "npy",
            Format::Npz => "npz",
            Format::Zip => "zip",
            Format::MegatronIndex => "Megatron index",
            Format::MegatronBin => "Megatron bin",
            Format::LlmC => "llm.c",
            Format::MdsShard => "MDS shard",
            Format::MdsIndex => "MDS index",
            Format::Gguf => "GGUF",
            Format::Tar => "tar",
            Format::Parquet => "Parquet",
            Format::Jpeg => "JPEG",
            Format::Raw => "raw elements",
            Format::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a payload's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Elements of this type, little-endian, one behind the other.
    Elements(Dtype),
    /// Something that is never converted: its name, as `Q4_K`.
    Opaque(&'static str),
}

impl Contents {
    /// The element type, if there is one.
    #[must_use]
    pub fn dtype(self) -> Option<Dtype> {
        match self {
            Contents::Elements(dtype) => Some(dtype),
            Contents::Opaque(_) => None,
        }
    }
}

/// A run of a file's bytes that a reader sees as one array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The tensor's or column's name; empty where the format has none.
    pub name: String,
    /// First byte, in bytes from the file's start.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Its type.
    pub contents: Contents,
    /// Its dimensions, slowest first; one, the element count, where the format has no shape.
    pub shape: Vec<u64>,
}

impl Payload {
    /// The bytes that it covers.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.bytes)
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
}

/// A file that belongs to one: they are presented together, or not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Companion {
    /// In the same folder, of the same name with this extension instead.
    Extension(&'static str),
    /// In the same folder, of this name.
    Name(&'static str),
    /// Below the same folder, of this relative name, which the file says: neither absolute nor with `..`.
    Listed(String),
}

/// What a file is.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Its format.
    pub format: Format,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Its arrays, in the order in which they lie in the file. What they do not cover is header, index or padding.
    pub payloads: Vec<Payload>,
    /// Alignment of the payloads in bytes, as the format wants it; 1 where it wants none.
    pub alignment: u64,
    /// Why the file can only be passed through as it is; `None` where its types can be changed.
    pub pass_through: Option<String>,
    /// Files that belong to this one.
    pub companions: Vec<Companion>,
    /// What else a person should know, as that a reader hard-codes a type.
    pub notes: Vec<String>,
    pub(crate) details: Details,
}

/// What the rewriting of each format needs beside its payloads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Details {
    None,
    Safetensors(safetensors::Header),
    Npy(npy::Header),
    LlmC,
    Gguf(gguf::Header),
    Mds(mds::Shard),
}

impl Description {
    /// A file that nobody looks into: it is passed through as it is, and why.
    #[must_use]
    pub fn unexamined(file_bytes: u64, reason: impl Into<String>) -> Description {
        Description::opaque(Format::Unknown, file_bytes, reason)
    }

    /// A file that is passed through as it is, and why.
    pub(crate) fn opaque(
        format: Format,
        file_bytes: u64,
        reason: impl Into<String>,
    ) -> Description {
        Description {
            format,
            file_bytes,
            payloads: Vec::new(),
            alignment: 1,
            pass_through: Some(reason.into()),
            companions: Vec::new(),
            notes: Vec::new(),
            details: Details::None,
        }
    }

    /// A file whose types can be changed.
    pub(crate) fn typed(
        format: Format,
        file_bytes: u64,
        payloads: Vec<Payload>,
        details: Details,
    ) -> Description {
        Description {
            format,
            file_bytes,
            payloads,
            alignment: 1,
            pass_through: None,
            companions: Vec::new(),
            notes: Vec::new(),
            details,
        }
    }

    /// The bytes that no payload covers: headers, indexes, padding, and the whole of a file without payloads.
    #[must_use]
    pub fn headers(&self) -> Vec<Range<u64>> {
        let mut headers = Vec::new();
        let mut position = 0;
        let end = self.file_bytes..self.file_bytes;
        for covered in self.payloads.iter().map(Payload::range).chain([end]) {
            if position < covered.start {
                headers.push(position..covered.start);
            }
            position = position.max(covered.end);
        }
        headers
    }

    /// The payload that holds the byte at `offset`, if one does.
    #[must_use]
    pub fn payload_at(&self, offset: u64) -> Option<&Payload> {
        let after = self.payloads.partition_point(|p| p.offset <= offset);
        let payload = self.payloads.get(after.checked_sub(1)?)?;
        payload.range().contains(&offset).then_some(payload)
    }

    /// The view of this file with the types that `targets` wants, its data at a multiple of `alignment` where the format can have it.
    ///
    /// Where no type changes, that is the source's exact bytes. `source` is the file that was described: parts of its header are read
    /// again.
    ///
    /// # Errors
    /// [`FormatError::Refused`] for a type that the format or the conversion does not have, with what can be had instead; an alignment
    /// that is no power of two up to [`limits::ALIGNMENT_MAX`](crate::limits::ALIGNMENT_MAX).
    pub fn present(
        &self,
        source: &dyn ByteSource,
        targets: &Targets<'_>,
        alignment: u64,
    ) -> Result<Presentation, FormatError> {
        presentation::check_alignment(alignment)?;
        let wanted = presentation::wanted(&self.payloads, targets)?;
        if wanted.is_exact() {
            return Ok(Presentation::exact(self.file_bytes));
        }
        if let Some(reason) = &self.pass_through {
            return Err(FormatError::refused(self.format.name(), reason.clone()));
        }
        match &self.details {
            Details::Safetensors(header) => header.present(&wanted, alignment),
            Details::Npy(header) => header.present(self, &wanted, alignment),
            Details::LlmC => llmc::present(&wanted),
            Details::Gguf(header) => header.present(&wanted),
            Details::Mds(shard) => shard.present(source, self, &wanted),
            Details::None => presentation::raw(self.file_bytes, &wanted),
        }
    }
}
