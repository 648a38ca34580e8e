//! The ring against sockets, files, clocks and other threads, at each level of kernel features.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod files;
mod levels;
mod lifetime;
mod network;
mod waiting;
