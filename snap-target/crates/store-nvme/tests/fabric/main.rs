//! A remote store on a simulated fabric: paths to several ports of one subsystem, over links that cut, delay, hold back and garble, with targets
//! that die, fall silent and apply late what they were sent. One thread, one clock, everything from a seed.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod ahead;
mod ghosts;
mod host;
mod lending;
mod links;
mod network;
mod plan;
mod scripts;
mod seeds;
mod transport;
mod wire;
mod world;
