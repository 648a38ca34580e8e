//! Dataset tools: pack, inspect, verify, unpack, demo.

fn main() {}
