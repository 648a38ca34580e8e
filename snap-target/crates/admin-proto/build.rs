//! Compiles the proto files, without protoc.

use std::error::Error;
use std::path::Path;

/// The files of the package; a test holds the list against the folder.
const FILES: [&str; 9] = [
    "common",
    "controller",
    "event",
    "host",
    "listener",
    "namespace",
    "stats",
    "subsystem",
    "target",
];

fn main() -> Result<(), Box<dyn Error>> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", include.display());
    let files = FILES.map(|name| format!("xio/admin/v1/{name}.proto"));
    let descriptors = protox::compile(files, [&include])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
