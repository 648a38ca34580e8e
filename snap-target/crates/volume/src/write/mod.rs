//! Writing volumes: sources are streamed through all cores into a new file, which appears whole or not at all. Files may also stay where
//! they are and be mapped ([`Writer::map_file`]): then the volume holds their checksums, and not their bytes. So may the streams of volumes that exist
//! ([`Writer::borrow_streams`]).
//!
//! ```no_run
//! use std::fs::File;
//! use std::path::Path;
//! use transforms::{Chain, ElementType, ViewChain};
//! use volume::write::{ExtentSpec, FileOutput, Options, StreamSpec, Writer};
//!
//! let output = FileOutput::create(Path::new("tokens.xio"), false)?;
//! let options = Options { lba_bytes: 4096, threads: 8, volume_uuid: None, writer: "example".into() };
//! let mut writer = Writer::new(output, options)?;
//! let spec = StreamSpec::new(Chain::parse("u16+lz4", ElementType::U32)?);
//! let stream = writer.add_stream(&spec, &mut File::open("tokens.bin")?, &mut |_| {})?;
//! let whole = ExtentSpec::Linear {
//!     stream: stream.stream,
//!     first_element: 0,
//!     elements: stream.elements,
//!     view: ViewChain::identity(),
//! };
//! writer.add_view("tokens.bin", [whole])?;
//! writer.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contract: the bytes of the volume are a function of the inputs and of [`Options`] and [`StreamSpec`], not of the number of
//! threads. Every value is checked, and the range that it was checked to be in is recorded. Memory is bounded whatever the
//! input's length. Killed at any point, a writer leaves nothing that a reader takes for a volume: no file at all where the
//! filesystem has nameless files, otherwise one under another name, without a superblock until all else is durable.
//!
//! What it does not do: it does not change a volume that exists, write generations after the first, write to block devices, or choose a
//! chain or frame size.

mod appender;
mod batch;
mod borrow;
mod error;
mod finish;
mod forecast;
mod map;
mod output;
mod pipeline;
mod spec;
mod spool;
mod table;
mod writer;

pub use borrow::Lender;
pub use error::WriteError;
pub use finish::Finished;
pub use forecast::Nowhere;
pub use map::{Mapped, Region};
pub use output::{FileOutput, Output};
pub use spec::{
    ExtentSpec, FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX, Integrity, Options, StreamSpec, ViewSpec,
};
pub use writer::{Progress, Writer, Written};

#[cfg(test)]
mod tests;
