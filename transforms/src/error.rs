//! What can go wrong, told so that a person knows where and what to do.

use std::ops::Range;

use thiserror::Error;

use crate::element::{ElementType, Packing, ValueRange};
use crate::registry::TransformId;

/// An error of this crate. Indices count elements from the start of the frame (or of `src`) that the call was about.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransformError {
    /// A value does not fit the type it would be narrowed to. Nothing is ever truncated.
    #[error(
        "element {index} is {value}, which does not fit {target}{}; choose a wider type",
        .target.range().map(|r| format!(" ({r})")).unwrap_or_default()
    )]
    OutOfRange {
        /// The first such element.
        index: u64,
        /// Its value.
        value: i128,
        /// What it was to fit.
        target: Packing,
    },

    /// A stored value lies outside the range that the packer proved: the store does not hold what was packed.
    #[error(
        "element {index} is {value}, outside the proven range {range}: the stored bytes are not what was packed"
    )]
    OutsideProven {
        /// The first such element.
        index: u64,
        /// Its value.
        value: i128,
        /// What the packer proved.
        range: ValueRange,
    },

    /// A number whose group would need a scale that an f16 does not hold: infinite, no number, or of 8,321,040 or more.
    #[error(
        "element {index} is {}, and q8_0 takes finite numbers below {}; store it as it is, or as bf16 where it is f32",
        f32::from_bits(*.bits), crate::kernels::q8::UNSCALABLE_FROM
    )]
    Unscalable {
        /// The first such element.
        index: u64,
        /// Its bits, as f32.
        bits: u32,
    },

    /// A number that no row has a scale for: infinite, or none.
    #[error(
        "element {index} is {}, and int8 takes finite numbers; store it as it is, or as bf16 where it is f32",
        f32::from_bits(*.bits)
    )]
    NotFinite {
        /// The first such element.
        index: u64,
        /// Its bits, as f32.
        bits: u32,
    },

    /// A number that is too large for the scale of its row.
    #[error(
        "element {index} is {}, and the scale of its row is too small for it: it was made of other elements",
        f32::from_bits(*.bits)
    )]
    BeyondScale {
        /// The first such element.
        index: u64,
        /// Its bits, as f32.
        bits: u32,
    },

    /// Bytes that are no scales, or the scales of other rows.
    #[error("not the scales of int8: {why}")]
    Scales {
        /// The rule.
        why: String,
    },

    /// A stored scale that is infinite or no number: the store does not hold what was packed.
    #[error(
        "the elements from {index} on have a scale that is no finite number ({bits:#06x}): the stored bytes are not what was packed"
    )]
    BadScale {
        /// The first element of its group.
        index: u64,
        /// Its bits, as f16.
        bits: u16,
    },

    /// Bytes that are no dictionary.
    #[error("not a dictionary of zstd-dict: {why}")]
    Dictionary {
        /// The rule.
        why: String,
    },

    /// What is too little, or too unlike, to train a dictionary on.
    #[error("no dictionary is trained: {why}; {instead} needs none")]
    Untrained {
        /// The rule.
        why: String,
        /// The chain without it.
        instead: String,
    },

    /// Stored bytes that the step cannot have written.
    #[error("{step}: corrupt frame: {why}")]
    Corrupt {
        /// The step that refused them.
        step: &'static str,
        /// What is wrong with them.
        why: String,
    },

    /// No transform has this name.
    #[error(
        "no transform is named {name:?}; known are {}",
        crate::registry::names()
    )]
    Unknown {
        /// The name asked for.
        name: String,
    },

    /// No transform has this number: the volume was written by a newer version.
    #[error("transform number {} is unknown to this version; known are {}", .id.0, crate::registry::names())]
    UnknownId {
        /// The number found.
        id: TransformId,
    },

    /// The transform is known, this version of it is not.
    #[error("{name} version {found} is unknown; this program knows version {supported}")]
    Version {
        /// The transform.
        name: &'static str,
        /// The version found.
        found: u16,
        /// The version implemented here.
        supported: u16,
    },

    /// No element type has this name.
    #[error(
        "{name:?} is no element type; known are u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64"
    )]
    ElementName {
        /// The name asked for.
        name: String,
    },

    /// A parameter that the transform does not take.
    #[error("{name} does not take {found:?}: expected {expected}")]
    Parameter {
        /// The transform.
        name: &'static str,
        /// What was given.
        found: String,
        /// What it takes.
        expected: &'static str,
    },

    /// Steps that cannot follow each other.
    #[error("{step} cannot stand there: {why}")]
    Order {
        /// The step.
        step: String,
        /// The rule.
        why: &'static str,
    },

    /// A step that cannot take elements of this kind.
    #[error("{step} cannot take {input}: {why}")]
    Input {
        /// The step.
        step: String,
        /// What it met.
        input: Packing,
        /// The rule.
        why: &'static str,
    },

    /// More steps than a chain may have.
    #[error("a chain of {steps} steps; at most {max} are allowed")]
    TooManySteps {
        /// Steps given.
        steps: usize,
        /// The limit.
        max: usize,
    },

    /// Source bytes that end inside an element.
    #[error("{bytes} bytes are not a whole number of {element} elements")]
    PartialElement {
        /// Bytes given.
        bytes: usize,
        /// The element type.
        element: ElementType,
    },

    /// A frame over the limit of framed chains.
    #[error("a frame of {bytes} bytes; at most {max} are allowed")]
    FrameTooLarge {
        /// Packed bytes.
        bytes: u64,
        /// The limit.
        max: u64,
    },

    /// The destination holds less than the result may need.
    #[error("the destination has {available} bytes, {needed} are needed")]
    DestinationTooSmall {
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        available: u64,
    },

    /// The window of packed bytes does not cover what was asked for.
    #[error(
        "packed bytes {}..{} are needed, the window holds {}..{}",
        needed.start, needed.end, held.start, held.end
    )]
    WindowTooSmall {
        /// Packed bytes needed.
        needed: Range<u64>,
        /// Packed bytes there are.
        held: Range<u64>,
    },

    /// A proven range that no value of this chain can satisfy, or one given for floating point.
    #[error("proven range {range} does not belong to {packing} from {stored}")]
    ProvenRange {
        /// The range given.
        range: ValueRange,
        /// The stored packing.
        packing: Packing,
        /// The source type.
        stored: ElementType,
    },

    /// A view made for another source type.
    #[error("a view of {view} cannot be laid over a stream of {stored}")]
    ViewSource {
        /// What the view was made for, or presents.
        view: Packing,
        /// The type of the stream.
        stored: ElementType,
    },

    /// Bytes that are no rank table, or a table for other elements.
    #[error("not a rank table: {why}")]
    Table {
        /// The rule.
        why: String,
    },

    /// A chain that has a step with a table was used without it, or one that has none was given one.
    #[error("{chain}: {why}")]
    TableNeeded {
        /// The chain.
        chain: String,
        /// Which of both.
        why: &'static str,
    },

    /// A value that the table of the chain has not: it was made of other elements.
    #[error(
        "element {index} is {value}, which the rank table has not: it was made of other elements"
    )]
    NotInTable {
        /// The first such element.
        index: u64,
        /// Its value.
        value: i128,
    },

    /// Values that cannot be ranked.
    #[error("element {index} is {value}, {}", no_id(*.value, *.end))]
    LargeId {
        /// The first such element.
        index: u64,
        /// Its value.
        value: i128,
        /// Ids are less.
        end: u32,
    },

    /// A codec could not have its work memory.
    #[error("{step}: no memory for its context")]
    Memory {
        /// The step.
        step: &'static str,
    },
}

/// Why a value has no rank, and what to do: for messages that name its place themselves.
#[must_use]
pub fn no_id(value: i128, end: u32) -> String {
    let advice = match value < 0 {
        true => "i16+zstd:3, or i32+zstd:3",
        false => "bitpack:K, or a narrower type, before lz4 or zstd",
    };
    let last = end - 1;
    format!("which is no token id that rank takes: ids are 0 to {last}; store them by {advice}")
}
