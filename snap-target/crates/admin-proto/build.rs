//! Compiles the proto files, without protoc.

use std::error::Error;
use std::path::Path;

use protox::prost::Message;

/// The files of the package; a test holds the list against the folder.
const FILES: [&str; 11] = [
    "announcement",
    "common",
    "controller",
    "event",
    "function",
    "host",
    "listener",
    "namespace",
    "stats",
    "subsystem",
    "target",
];

fn main() -> Result<(), Box<dyn Error>> {
    // Asked when it runs: clones that share a target folder share this program, and not its sources.
    let include = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", include.display());
    let files = FILES.map(|name| format!("xio/admin/v1/{name}.proto"));
    let descriptors = protox::compile(files, [&include])?;
    let out = Path::new(&std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(out, descriptors.encode_to_vec())?;
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        .build_transport(false)
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
