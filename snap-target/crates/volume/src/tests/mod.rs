//! Tests of the whole crate: volumes are assembled, opened, read and damaged.

#![allow(clippy::cast_possible_truncation)]

mod driver;
mod extents;
mod mapped;
mod sample;
