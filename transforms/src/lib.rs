//! Transforms: bytes to bytes, checked and segmented.
//!
//! A [`Chain`] says how a stream is stored: element steps that pack each value (`u16`, `bitpack:17`), then block steps on a whole
//! frame (`shuffle`, `lz4`, `zstd:3`; `rank` and `zstd-dict:9`, by a [`RankTable`] and a [`Dictionary`] that are the caller's). A [`ViewChain`] says what is presented of it. [`Chain::encode_frame`] packs;
//! [`Chain::unblock`] undoes the block steps into private memory; [`Decoder::expand`] undoes the element steps and applies the view
//! in one pass, straight into the reader's memory segments.
//!
//! Contract: pure functions, no allocation per frame after warm-up. Narrowing integers is checked, when packing and again when reading:
//! what does not fit is an error with its place, never a truncation. Narrowing floating point rounds, and `q8_0` and `int8` quantize: [`Chain::contract`] says
//! by how much at most, [`LossMeter`] measures it. Decoders take hostile input: they return an error or fill
//! exactly what they were given, and never panic. Destination memory is written once and never read back, except by block
//! codecs, which therefore get private memory.
//!
//! What it does not do: no I/O, no async, no checksums (the volume has them), no threads. It does not choose frame sizes or chains.
//! It knows no file formats.

#![deny(unsafe_code)]

mod chain;
pub mod codecs;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod decoder;
mod dictionary;
mod element;
mod encoder;
mod error;
mod kernels;
mod loss;
mod rank_table;
mod registry;
mod scales;
mod scratch;
mod segments;
mod table;
mod trainer;
mod view;

pub use chain::{CHAIN_STEPS_MAX, Chain, Encoded, FRAME_BYTES_MAX};
pub use contract::{Contract, Quantization, Rounding};
pub use decoder::{Decoder, PackedWindow};
pub use dictionary::Dictionary;
pub use element::{ElementType, Packing, ValueRange};
pub use encoder::range_of;
pub use error::{TransformError, no_id};
pub use kernels::Isa;
pub use loss::{Loss, LossMeter, Worst};
pub use rank_table::{IDS_END, IdCounts, RANKS_MAX, RankTable};
pub use registry::{
    BlockTransform, Descriptor, ElementTransform, Geometry, Layout, Parameter, Step,
    TableTransform, Transform, TransformId, descriptors,
};
pub use scales::{ROWS_MAX, RowMaxima, Scales};
pub use scratch::{BlockTimes, Contexts, Scratch};
pub use segments::{OutSegments, RawSegment};
pub use table::{Table, TableKind};
pub use trainer::DictionaryTrainer;
pub use view::ViewChain;

#[cfg(target_endian = "big")]
compile_error!("elements are little-endian, and the kernels read them in place");
