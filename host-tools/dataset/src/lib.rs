//! Datasets: from files and folders to what a volume stores and what its disk presents.
//!
//! ```text
//!  paths --Scan--> names, files --Catalogue--> what each file is --Views--> what each precision presents of it
//!                                     |                                            |
//!                                     +--Storage--> runs of elements in streams <--+-- extents of the disk
//! ```
//!
//! * A [`Scan`] is what was found: folders, files, symbolic links. A file that has two names is one file.
//! * A [`Catalogue`] says what each file is, by its content (crate `formats`), and which belong together.
//! * A [`View`] is what one precision presents: for each name the parts that its file consists of there.
//! * [`Storage`] cuts files into runs of one element type and puts runs that are stored alike into one stream, whatever the number of files; or leaves
//!   them where they are (mapped).
//! * [`choose`] finds the chain of each kind of run where nobody names one; [`guess`] says what files without a header may be.
//! * A [`Plan`] makes the volume: its disk has the views as one filesystem, or each file as a partition.
//!
//! * A [`Collection`] is the other way to a disk: what volumes present that exist already.
//!
//! Contract: the same files and options give the same volume, byte for byte. A file that changes between two readings is an error with its name: by its
//! length and time, and by the bytes themselves, which are compared with what was read first. Memory grows with the number of names and parts, and by 16
//! bytes for each MiB of the files.
//!
//! What it does not do: no conversion and no compression of its own (crates `transforms`, `volume`), no printing.

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod choose;
pub mod collect;
pub mod dictionary;
mod disk;
pub mod document;
mod error;
mod forecast;
pub mod guess;
mod hash;
mod identity;
mod items;
pub mod make;
mod manifest;
pub mod measure;
mod names;
mod outline;
pub mod own;
mod parallel;
mod paths;
mod pattern;
mod presented;
mod reread;
mod runs_reader;
mod scan;
pub mod storage;
pub mod survey;
mod tables;
mod unzip;
pub mod view;
mod zstd;

pub use catalogue::{Catalogue, Hints, Recognised};
pub use collect::{Collection, MadeCollection, is_volume};
pub use disk::{BLOCK_BYTES, Partition};
pub use error::{Cut, DatasetError};
pub use gpt::PARTITIONS_MAX;
pub use make::{Made, Plan, Shape};
pub use names::Names;
pub use outline::{Form, Outline};
pub use pattern::{Pattern, keep_options};
pub use scan::{
    Entry, FileId, Kind, OpenFile, Origin, PATH_BYTES_MAX, Roots, Scan, SourceFile, shortened,
};
pub use storage::{Run, Runs, Storage, Stored};
pub use survey::Surveyed;
pub use unzip::{Unzipped, unzip};
pub use view::{Precision, Precisions, View};
