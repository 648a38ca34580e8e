//! Measures a namespace over NVMe/TCP: one queue, one polling thread, a closed loop.
//!
//! ```text
//! cargo run --release -p initiator --example bench -- --addr 127.0.0.1:4420 --nqn NQN --bs 4096 --depth 32 --rw randread
//! ```

use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use initiator::load::{Access, Load, Pattern, Verify};
use initiator::{Initiator, Options};

/// Prints IOPS, GB/s and latency of one closed loop of reads or writes.
#[derive(Parser)]
struct Arguments {
    /// Where the target listens.
    #[arg(long, default_value = "127.0.0.1:4420")]
    addr: String,
    /// The subsystem's NQN.
    #[arg(long)]
    nqn: String,
    /// The namespace.
    #[arg(long, default_value_t = 1)]
    nsid: u32,
    /// Bytes of one command.
    #[arg(long, default_value_t = 4096)]
    bs: u32,
    /// Commands outstanding.
    #[arg(long, default_value_t = 32)]
    depth: u16,
    /// How long each run takes.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Runs, one after the other on the same connection.
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// Order and direction.
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    rw: Rw,
    /// How the data are checked: `pattern` first writes the region, `crc` first reads it.
    #[arg(long, value_enum, default_value_t = Check::None)]
    verify: Check,
    /// The first so many MiB of the namespace are used.
    #[arg(long, default_value_t = 256)]
    region_mib: u64,
    /// TCP congestion control of this end, "reno" for one; the system's where not given.
    #[arg(long)]
    congestion: Option<String>,
    /// Header and data digests.
    #[arg(long)]
    digests: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Rw {
    Read,
    Randread,
    Write,
    Randwrite,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Check {
    None,
    Pattern,
    Crc,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let options = Options {
        depth: arguments.depth,
        header_digest: arguments.digests,
        data_digest: arguments.digests,
        congestion: arguments.congestion,
        ..Options::default()
    };
    let mut disk = Initiator::connect(&arguments.addr, &arguments.nqn, &options)?;
    let pattern = Pattern { seed: 1 };
    let load = Load {
        nsid: arguments.nsid,
        access: match arguments.rw {
            Rw::Read => Access::SequentialRead,
            Rw::Randread => Access::RandomRead,
            Rw::Write => Access::SequentialWrite,
            Rw::Randwrite => Access::RandomWrite,
        },
        block_bytes: arguments.bs,
        depth: usize::from(arguments.depth),
        duration: Duration::try_from_secs_f64(arguments.seconds).context("--seconds")?,
        region_bytes: arguments.region_mib << 20,
        verify: match arguments.verify {
            Check::None => Verify::None,
            Check::Pattern => Verify::Pattern(pattern),
            Check::Crc => Verify::Crc,
        },
        seed: 1,
    };
    if arguments.verify == Check::Pattern {
        load.fill(&mut disk, pattern)
            .context("writing the pattern")?;
    }
    for _ in 0..arguments.runs {
        let report = load.run(&mut disk)?;
        println!(
            "{:>9.0} IOPS  {:>7.3} GB/s  p50 {:>8.1?}  p99 {:>8.1?}  max {:>8.1?}  {} commands",
            report.iops(),
            report.gigabytes_per_second(),
            report.latency.quantile(0.50),
            report.latency.quantile(0.99),
            report.latency.max(),
            report.commands,
        );
    }
    disk.shutdown()?;
    Ok(())
}
