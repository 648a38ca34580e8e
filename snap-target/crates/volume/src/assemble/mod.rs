//! An assembler of volumes for tests, apart from the product's writer: stored bytes go in as they are, so that it makes what the
//! writer does not (streams mapped on other sources, blobs, frames that do not decode), and so that reader and writer are each tested
//! against something else than one another.
//!
//! ```text
//! VolumeBuilder::new(out, spill, options)        zeros in the place of both slots are written to `out`
//!   .begin_stream(spec)                          StreamBuilder: append(stored, elements, range) for each frame or piece, finish()
//!   .add_view(spec, runs)                        presented bytes in order; extents are cut and checked here
//!   .finish() -> Sealed { out, tail, slots }    tables are written behind the payload; superblocks are the caller's to place
//! ```

mod builder;
mod stream;
mod tables;

pub(crate) use builder::{ExternalSource, Options, Run, ViewSpec, VolumeBuilder};
pub(crate) use stream::{Home, StreamSpec};
