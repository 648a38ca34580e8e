//! The registry: every transform by name and number, and the two contracts that a transform can meet.
//!
//! Adding one takes its file in `codecs/`, its line in [`REGISTRY`], golden vectors, and a call of the conformance suite
//! (docs/transforms.md).

use std::fmt;
use std::ops::RangeInclusive;

use crate::TransformError;
use crate::codecs;
use crate::dictionary::Dictionary;
use crate::element::{Packing, ValueRange};
use crate::kernels::Isa;
use crate::rank_table::RankTable;
use crate::scratch::Contexts;
use crate::table::TableKind;

/// The number that a volume stores for a transform. It never changes and is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransformId(pub u16);

impl TransformId {
    /// Which table a step of it takes.
    #[must_use]
    pub fn table_kind(self) -> Option<TableKind> {
        match self {
            codecs::rank::ID => Some(TableKind::Ranks),
            codecs::int8::ID => Some(TableKind::Scales),
            codecs::zstd_dict::ID => Some(TableKind::Dictionary),
            _ => None,
        }
    }
}

/// One step of a chain, as a volume stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Which transform.
    pub id: TransformId,
    /// Which version of it wrote the bytes.
    pub version: u16,
    /// Its parameter: see the transform's page in docs/transforms.md. 0 where it takes none.
    pub parameter: u32,
}

/// Every transform of this program.
pub(crate) static REGISTRY: &[Kind] = &[
    Kind::Element(&codecs::integer::INTEGER),
    Kind::Element(&codecs::bitpack::Bitpack),
    Kind::Element(&codecs::float::FLOAT),
    Kind::Element(&codecs::q8_0::Q8_0),
    Kind::Element(&codecs::int8::Int8),
    Kind::Table(&codecs::rank::Rank),
    Kind::Block(&codecs::shuffle::Shuffle),
    Kind::Block(&codecs::lz4::LZ4),
    Kind::Block(&codecs::lz4::LZ4HC),
    Kind::Block(&codecs::zstd::Zstd),
    Kind::Block(&codecs::zstd_dict::ZstdDict),
    Kind::Block(&codecs::floatsplit::FloatSplit),
];

/// What a transform says of itself.
#[derive(Debug)]
pub struct Descriptor {
    /// Its number on the volume.
    pub id: TransformId,
    /// The one version that is read and written here.
    pub version: u16,
    /// Its name, also in errors.
    pub name: &'static str,
    /// What stands behind the name in a chain.
    pub parameter: Parameter,
    /// How it is written in a chain, for people.
    pub grammar: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
}

/// What stands behind a transform's name in a chain.
#[derive(Debug)]
pub enum Parameter {
    /// Nothing; the parameter is 0.
    None,
    /// `NAME:NUMBER`, or the name alone where there is a default.
    Number {
        /// The numbers that are taken.
        range: RangeInclusive<u32>,
        /// What a missing number stands for.
        default: Option<u32>,
    },
    /// The parameter is written in a way of its own: the transform reads and writes it itself.
    Own,
}

/// A transform, by the kind of its geometry.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Fixed bits to bits, each element alone.
    Element(&'static dyn ElementTransform),
    /// A frame to a frame.
    Block(&'static dyn BlockTransform),
    /// A frame to a run of bytes, by a table.
    Table(&'static dyn TableTransform),
}

impl Kind {
    pub(crate) fn transform(self) -> &'static dyn Transform {
        match self {
            Kind::Element(t) => t,
            Kind::Block(t) => t,
            Kind::Table(t) => t,
        }
    }
}

/// What every transform can do: name itself, and read and write its parameter.
pub trait Transform: Sync {
    /// Name, number, version.
    fn descriptor(&self) -> &'static Descriptor;

    /// The parameter in `text` (`zstd:3`), or `None` when the text does not name this transform.
    fn parse(&self, text: &str) -> Option<Result<u32, TransformError>> {
        self.descriptor().parse(text)
    }

    /// The canonical text of the step with this parameter: what [`parse`](Self::parse) reads back.
    fn format(&self, parameter: u32) -> String {
        self.descriptor().format(parameter)
    }
}

/// How elements lie after a step, and which values can still be among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Where the bits are.
    pub packing: Packing,
    /// The integers that passed every step so far; `None` for floating point.
    pub range: Option<ValueRange>,
}

/// An element-wise transform that keeps values: each element is checked against the new packing, and stored in it.
///
/// The kernels that move the bits are chosen by source type and final [`Packing`], so that several steps cost one pass.
pub trait ElementTransform: Transform {
    /// The layout after the step, or why it cannot follow `input`. (Whether the parameter is one of its own was asked before, unless it is
    /// written in a way of its own.)
    fn output(&self, input: &Layout, parameter: u32) -> Result<Layout, TransformError>;
}

/// A transform of a whole frame, in private contiguous memory. Stateless: work memory comes from `contexts`.
pub trait BlockTransform: Transform {
    /// Whether elements that lie so can go through it, `reordered` by a step before it or not. (Whether the parameter is one of its own was
    /// asked before.)
    fn check(&self, _input: Packing, _reordered: bool) -> Result<(), TransformError> {
        Ok(())
    }

    /// Whether the output may be shorter than the input. A transform that does not shrink reorders: its output is as long as
    /// its input.
    fn shrinks(&self) -> bool {
        true
    }

    /// Encodes `src` into `dst`; returns the bytes written, or `None` when they would be more than `dst` holds.
    ///
    /// # Errors
    /// [`TransformError::Memory`] when the context cannot be made.
    fn encode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError>;

    /// Decodes `src`, hostile input, into `dst`, which it must fill exactly. Never writes outside `dst`, never panics.
    ///
    /// # Errors
    /// [`TransformError::Corrupt`] for anything that is not the encoding of `dst.len()` bytes.
    fn decode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError>;

    /// Decodes `src`, hostile input, into the front of `dst`; returns how much of it that is. For what comes behind a step whose output is as long as
    /// it happens to be. Never writes outside `dst`, never panics.
    ///
    /// # Errors
    /// [`TransformError::Corrupt`] for anything that is not the encoding of at most `dst.len()` bytes; [`TransformError::Order`] of a step that cannot
    /// stand there.
    fn decode_some(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<usize, TransformError> {
        let front = self.front(src, dst)?;
        self.decode(geometry, src, front, contexts)?;
        Ok(front.len())
    }

    /// The front of `dst` that `src` says it decodes to; the default: of a step whose encoding does not say it.
    ///
    /// # Errors
    /// As [`decode_some`](Self::decode_some).
    fn front<'a>(&self, _src: &[u8], _dst: &'a mut [u8]) -> Result<&'a mut [u8], TransformError> {
        Err(TransformError::Order {
            step: self.descriptor().name.into(),
            why: "it does not say how long its input was",
        })
    }

    /// Whether it can be asked for that: it has [`decode_some`](Self::decode_some), or [`front`](Self::front).
    fn tells_length(&self) -> bool {
        false
    }
}

/// A transform of a whole frame of packed elements by a table of the volume: the first block step. Its output is as long as it happens to be; what
/// comes behind it is a compressor, or nothing.
pub trait TableTransform: Transform {
    /// Whether elements of this layout can go through it.
    fn check(&self, input: &Layout) -> Result<(), TransformError>;

    /// The most bytes that so many elements become.
    fn encoded_bytes_max(&self, elements: usize) -> usize;

    /// Encodes `src`, whole elements, into `dst`; returns the bytes written, or `None` when they would be more than `dst` holds.
    ///
    /// # Errors
    /// [`TransformError::NotInTable`].
    fn encode(
        &self,
        table: &RankTable,
        packed: Packing,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Option<usize>, TransformError>;

    /// Decodes `src`, hostile input, into `dst`, which it must fill exactly. Never writes outside `dst`, never panics.
    ///
    /// # Errors
    /// [`TransformError::Corrupt`] for anything that is not the encoding of `dst.len()` bytes.
    fn decode(
        &self,
        isa: Isa,
        table: &RankTable,
        packed: Packing,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), TransformError>;
}

/// What a block step is told beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Geometry<'a> {
    /// The step's parameter.
    pub parameter: u32,
    /// Bits of one packed element.
    pub packed_bits: u32,
    /// Whose kernels to run.
    pub isa: Isa,
    /// The chain's dictionary, where it has one.
    pub dictionary: Option<&'a Dictionary>,
}

/// The transform that `text` names, and its parameter.
pub(crate) fn by_text(text: &str) -> Result<(Kind, u32), TransformError> {
    for kind in REGISTRY {
        if let Some(parameter) = kind.transform().parse(text) {
            return Ok((*kind, parameter?));
        }
    }
    Err(TransformError::Unknown { name: text.into() })
}

/// The transform of a stored step; refuses unknown numbers and versions by name.
pub(crate) fn by_step(step: &Step) -> Result<Kind, TransformError> {
    let kind = REGISTRY
        .iter()
        .find(|kind| kind.transform().descriptor().id == step.id)
        .ok_or(TransformError::UnknownId { id: step.id })?;
    let known = kind.transform().descriptor();
    if step.version != known.version {
        return Err(TransformError::Version {
            name: known.name,
            found: step.version,
            supported: known.version,
        });
    }
    Ok(*kind)
}

/// Every transform's description, in the order of the registry.
pub fn descriptors() -> impl Iterator<Item = &'static Descriptor> {
    REGISTRY.iter().map(|kind| kind.transform().descriptor())
}

/// The names of all transforms, for errors.
pub(crate) fn names() -> String {
    let grammars: Vec<_> = descriptors().map(|d| d.grammar).collect();
    format!("none, {}", grammars.join(", "))
}

impl Descriptor {
    /// See [`Transform::parse`].
    fn parse(&'static self, text: &str) -> Option<Result<u32, TransformError>> {
        let rest = text.strip_prefix(self.name)?;
        let number = match (rest.strip_prefix(':'), &self.parameter) {
            (None, Parameter::None) if rest.is_empty() => Some(0),
            (None, Parameter::Number { default, .. }) if rest.is_empty() => *default,
            (Some(number), Parameter::Number { .. }) => number.parse().ok(),
            _ => return None,
        };
        Some(number.ok_or_else(|| self.bad_parameter(text)))
    }

    /// See [`Transform::format`].
    fn format(&self, parameter: u32) -> String {
        match self.parameter {
            Parameter::None => self.name.into(),
            _ => format!("{}:{parameter}", self.name),
        }
    }

    /// Whether `parameter` is one that it takes. What is written in a way of its own is checked by the transform.
    pub(crate) fn check(&'static self, parameter: u32) -> Result<(), TransformError> {
        let taken = match &self.parameter {
            Parameter::None => parameter == 0,
            Parameter::Number { range, .. } => range.contains(&parameter),
            Parameter::Own => true,
        };
        taken
            .then_some(())
            .ok_or_else(|| self.bad_parameter(parameter))
    }

    /// The error for a parameter that it does not take.
    pub(crate) fn bad_parameter(&'static self, found: impl fmt::Display) -> TransformError {
        TransformError::Parameter {
            name: self.name,
            found: found.to_string(),
            expected: self.grammar,
        }
    }
}
