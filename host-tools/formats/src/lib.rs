//! File formats: what a file of a dataset or a model is, by its content; where its elements lie; and what its header has to say when
//! they are presented in another type (docs/format-views.md).
//!
//! [`describe`] recognises a file and gives a [`Description`]: the payloads with their types and shapes, or the reason why the file is
//! passed through as it is. [`Description::present`] takes a wanted type for each payload and gives a [`Presentation`]: new header bytes,
//! and the ranges of the source in the order in which the view shows them. [`model`] does so for a directory as a model hub lays
//! it out, [`mds`] for a streaming dataset's index.
//!
//! Contract: files are hostile input. Every length is checked before it is used, memory is bounded by [`limits`], and nothing panics.
//! Without a wanted type a view presents the source's exact bytes.
//!
//! What it does not do: no I/O (a [`ByteSource`] is read through), no conversion of elements (the crate `transforms` has it), no names:
//! what a file is called decides nothing ([`named`] only tells what it promises).

#![forbid(unsafe_code)]

mod description;
pub mod dtype;
mod error;
pub mod gguf;
mod json;
pub mod limits;
pub mod llmc;
pub mod mds;
pub mod megatron;
pub mod model;
pub mod named;
pub mod npy;
mod other;
mod presentation;
mod recognise;
pub mod rules;
pub mod safetensors;
mod source;
pub mod wildcard;

pub use description::{Companion, Contents, Description, Format, Payload};
pub use dtype::{Conversion, Dtype};
pub use error::FormatError;
pub use presentation::{Part, Presentation, Targets};
pub use recognise::{describe, describe_as};
pub use source::ByteSource;
