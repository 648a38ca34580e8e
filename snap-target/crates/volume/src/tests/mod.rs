//! Tests of the whole crate: volumes are assembled, opened, read and damaged.

#![allow(clippy::cast_possible_truncation)]

mod arbitrary;
mod crowded;
mod damage;
mod dictionaries;
mod document;
mod driver;
mod edit;
mod extents;
mod fetches;
mod floats;
mod floatsplit;
mod golden;
mod hostile;
mod independent;
mod int8;
mod lossy;
mod mapped;
mod q8_0;
mod ranks;
mod sample;
mod shapes;
mod superblocks;
mod wants;
