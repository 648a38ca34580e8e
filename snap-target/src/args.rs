//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use reactor::Features;
use volume::SourcePolicy;

/// Serves volumes and raw stores as the namespaces of an NVMe/TCP subsystem.
///
/// Each STORE becomes a namespace, in the order given: NSID 1, 2, and so on.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Args {
    /// A volume made by `xio pack` (a path), or a raw store: mem:SIZE, null:SIZE, file:PATH
    ///
    /// A bare path must be a volume; it is served read-only, decoded. `file:PATH` serves a file or block device as it is, byte for byte,
    /// and takes writes where the file can be written. `mem:SIZE` is memory that ends with the daemon.
    #[arg(value_name = "STORE", required = true, num_args = 1..=limits::NAMESPACES_MAX)]
    pub stores: Vec<String>,

    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:4420", value_name = "ADDR:PORT")]
    pub listen: SocketAddr,

    /// NQN of the subsystem
    #[arg(long, default_value = "nqn.2026-11.io.xio:snap", value_name = "NQN")]
    pub nqn: String,

    /// Reactor threads; each has one io_uring, and a queue stays on one of them for life
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=limits::REACTORS_MAX))]
    pub reactors: u16,

    /// Threads that decode what takes a reactor too long (zstd, as a rule); 0 = the reactors do it themselves [default: cores less reactors, 1 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=limits::WORKERS_MAX))]
    pub workers: Option<u16>,

    /// Logical block size of raw stores; a volume has its own
    #[arg(long, default_value = "4096", value_name = "BYTES")]
    pub lba: LbaBytes,

    /// Also open what volumes map in this directory; a volume's own directory is always allowed
    #[arg(long, value_name = "DIR")]
    pub allow_sources: Vec<PathBuf>,

    /// Frame and table cache of each reactor
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = parse_size)]
    pub cache: usize,

    /// When read data stand for their own completion (the SUCCESS flag of C2HData)
    #[arg(long, default_value = "always", value_name = "WHEN")]
    pub success_flag: SuccessFlag,

    /// io_uring features to do without although the kernel has them, to narrow a problem down; `all` is the level of Linux 5.15
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub without: Vec<Features>,

    /// What to log, as of tracing-subscriber's filters
    #[arg(
        long,
        env = "SNAP_TARGET_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log: String,
}

impl Args {
    /// Which files volumes may be mapped on.
    pub fn source_policy(&self) -> SourcePolicy {
        SourcePolicy {
            allowed: self.allow_sources.clone(),
        }
    }
}

const EXAMPLES: &str = "Examples:
  snap-target tokens.xio                             one packed dataset, read-only, on 127.0.0.1:4420
  snap-target a.xio b.xio mem:512MiB --listen 0.0.0.0:4420
  snap-target file:disk.raw --lba 512 --reactors 2

A host connects with (the address is the target's):
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-11.io.xio:snap

Stop it with SIGINT or SIGTERM.";

/// Named limits of the command line.
pub mod limits {
    /// Namespaces of the subsystem.
    pub const NAMESPACES_MAX: usize = 1024;
    /// Reactor threads.
    pub const REACTORS_MAX: i64 = 64;
    /// Decoding threads.
    pub const WORKERS_MAX: i64 = namespace::limits::WORKERS_MAX as i64;
}

impl Args {
    /// Decoding threads: what was asked for, or the cores that reactors leave.
    pub fn workers(&self) -> usize {
        if let Some(workers) = self.workers {
            return usize::from(workers);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores
            .saturating_sub(usize::from(self.reactors))
            .clamp(1, namespace::limits::WORKERS_MAX)
    }
}

/// Logical block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LbaBytes {
    /// 512 bytes.
    #[value(name = "512")]
    B512,
    /// 4096 bytes.
    #[value(name = "4096")]
    B4096,
}

impl LbaBytes {
    /// In bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// When the last data PDU of a read carries SUCCESS and no response follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SuccessFlag {
    /// On every queue: Linux and SPDK hosts count their commands and do not look at SQHD.
    Always,
    /// On queues whose host disabled SQ flow control: to the letter of the specification.
    WithoutFlowControl,
    /// Never.
    Never,
}

fn parse_size(text: &str) -> Result<usize, String> {
    match store::StoreSpec::parse(&format!("null:{text}")) {
        Ok(store::StoreSpec::Null { bytes }) => {
            usize::try_from(bytes).map_err(|error| error.to_string())
        }
        _ => Err("a size is a whole number and a unit, such as 64MiB".to_owned()),
    }
}
