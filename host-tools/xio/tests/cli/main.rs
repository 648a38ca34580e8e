//! `xio` as a person runs it: its exit status, its words, its files.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod as_they_are;
mod bad_input;
mod bench;
mod blocks;
mod changing;
mod chosen_elements;
mod collected;
mod counters;
mod damage;
mod demo;
mod dictionaries;
mod differences;
mod disk;

mod help;
mod hosts;
mod interrupted;
mod killed;
mod long_paths;
mod manifest;
mod mapped;
mod memory;
mod mistakes;
mod mounted;
mod mounted_target;
mod mounting;
mod names;
mod opening;
mod outline;
mod partitions;
mod patterns;
mod plan;
mod plan_files;
mod precisions;
mod ranges;
mod ranks;
mod raw_frames;
mod relay;
mod rootless;
mod round_trip;
mod rounded;
mod rows_in_8_bits;
mod served;
mod silent;
mod sizes;
mod support;
mod tags;
mod unpacked;
