//! The daemon: serves volumes and raw stores as NVMe namespaces.

fn main() {}
