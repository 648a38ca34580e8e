//! The transforms, one file each (`lz4` and `lz4hc` share a format, so a file).

pub mod bitpack;
pub mod float;
pub mod floatsplit;
pub mod int8;
pub mod integer;
pub mod lz4;
mod lz4_ffi;
pub mod q8_0;
pub mod rank;
pub mod shuffle;
mod typed;
pub mod zstd;
pub mod zstd_dict;
pub(crate) mod zstd_frame;
