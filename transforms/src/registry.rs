//! The registry: every transform by name and number, and the two contracts that a transform can meet.
//!
//! Adding one takes its file in `codecs/`, its line in [`REGISTRY`], golden vectors, and a call of the conformance suite
//! (docs/transforms.md).

use std::fmt;

use crate::TransformError;
use crate::codecs;
use crate::element::{Packing, ValueRange};
use crate::kernels::Isa;
use crate::scratch::Contexts;

/// The number that a volume stores for a transform. It never changes and is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransformId(pub u16);

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
    Kind::Element(&codecs::integer::Integer),
    Kind::Element(&codecs::bitpack::Bitpack),
    Kind::Block(&codecs::shuffle::Shuffle),
    Kind::Block(&codecs::lz4::Lz4),
    Kind::Block(&codecs::lz4::Lz4Hc),
    Kind::Block(&codecs::zstd::Zstd),
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
    /// How it is written in a chain, for people.
    pub grammar: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
}

/// A transform, by the kind of its geometry.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Fixed bits to bits, each element alone.
    Element(&'static dyn ElementTransform),
    /// A frame to a frame.
    Block(&'static dyn BlockTransform),
}

impl Kind {
    pub(crate) fn transform(self) -> &'static dyn Transform {
        match self {
            Kind::Element(t) => t,
            Kind::Block(t) => t,
        }
    }
}

/// What every transform can do: name itself, and read and write its parameter.
pub trait Transform: Sync {
    /// Name, number, version.
    fn descriptor(&self) -> &'static Descriptor;

    /// The parameter in `text` (`zstd:3`), or `None` when the text does not name this transform.
    fn parse(&self, text: &str) -> Option<Result<u32, TransformError>>;

    /// The canonical text of the step with this parameter: what [`parse`](Self::parse) reads back.
    fn format(&self, parameter: u32) -> String;
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
    /// The layout after the step, or why it cannot follow `input`.
    fn output(&self, input: &Layout, parameter: u32) -> Result<Layout, TransformError>;
}

/// A transform of a whole frame, in private contiguous memory. Stateless: work memory comes from `contexts`.
pub trait BlockTransform: Transform {
    /// Whether the parameter is one of this transform's, and elements of `packed_bits` bits can go through it.
    fn check(&self, parameter: u32, packed_bits: u32) -> Result<(), TransformError>;

    /// Whether the output may be shorter than the input. A transform that does not shrink reorders: its output is as long as
    /// its input.
    fn shrinks(&self) -> bool;

    /// Encodes `src` into `dst`; returns the bytes written, or `None` when they would be more than `dst` holds.
    ///
    /// # Errors
    /// [`TransformError::Memory`] when the context cannot be made.
    fn encode(
        &self,
        geometry: Geometry,
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
        geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError>;
}

/// What a block step is told beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    /// The step's parameter.
    pub parameter: u32,
    /// Bits of one packed element.
    pub packed_bits: u32,
    /// Whose kernels to run.
    pub isa: Isa,
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

/// Reads `NAME` or `NAME:NUMBER`. `None` when `text` names something else; `default` stands for a missing number.
pub(crate) fn parse_numbered(
    descriptor: &'static Descriptor,
    text: &str,
    default: Option<u32>,
) -> Option<Result<u32, TransformError>> {
    let rest = text.strip_prefix(descriptor.name)?;
    let number = match rest.strip_prefix(':') {
        Some(number) => number.parse().ok(),
        None if rest.is_empty() => default,
        None => return None,
    };
    Some(number.ok_or_else(|| bad_parameter(descriptor, text)))
}

/// The error for a parameter that `descriptor` does not take.
pub(crate) fn bad_parameter(
    descriptor: &'static Descriptor,
    found: impl fmt::Display,
) -> TransformError {
    TransformError::Parameter {
        name: descriptor.name,
        found: found.to_string(),
        expected: descriptor.grammar,
    }
}
