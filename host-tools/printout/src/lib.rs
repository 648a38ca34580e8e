//! What the command-line tools print and read alike: aligned tables, byte sizes, ranges, standard output and error.

#![forbid(unsafe_code)]

pub mod ranges;
pub mod size;
pub mod stderr;
pub mod stdout;
pub mod text_table;
