//! `snapctl doctor`: what this machine has that snap-target needs or profits by. It needs no daemon.
//!
//! Each check is a pure function of what was read: the tests give it machines that we do not have.

mod cpu;
mod finding;
mod kernel;
mod network;
mod process;
mod rdma;
mod storage;
mod ublk;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::text;
use finding::{Finding, Verdict};

const HELP: &str = "\
Each line is ok, warn (it works, at a cost) or fail (it does not work), with what it costs and the line that mends it. Limits are those of this shell unless
--pid names the daemon. In a folder that is named, a file is made and removed again.

Exit status: 0 where nothing fails, 1 where something does.

Examples:
  snapctl doctor
  snapctl doctor /srv/data /dev/sdb --listen 192.0.2.7:4420
  snapctl doctor --listen-rdma 192.0.2.7:4420
  snapctl doctor --ublk
  snapctl doctor --pid $(pidof snap-target) --reactors 4 --json";

/// `snapctl doctor`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Doctor {
    /// Folders, files and block devices that stores are to lie on
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Address that the target is to listen on; may be given again for more
    #[arg(long, value_name = "ADDR:PORT", default_values = ["0.0.0.0:4420", "0.0.0.0:8009"])]
    pub listen: Vec<SocketAddr>,

    /// The same for NVMe/RDMA: fails where a library or a device is missing
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen_rdma: Vec<SocketAddr>,

    /// The daemon is to have block devices of this machine (--ublk): fails where the driver is missing
    #[arg(long)]
    pub ublk: bool,

    /// Reactor threads that the daemon is to have
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub reactors: u64,

    /// Look at the limits of this process instead of this shell's
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Report {
    findings: Vec<Finding>,
    warnings: usize,
    failures: usize,
}

/// Runs it.
pub fn run(arguments: &Doctor, context: &Context) -> Result<ExitCode, Failure> {
    let findings = examine(arguments)?;
    let count = |verdict| {
        findings
            .iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    };
    let report = Report {
        warnings: count(Verdict::Warn),
        failures: count(Verdict::Fail),
        findings,
    };
    let text = if context.json() {
        let line = serde_json::to_string(&report)
            .map_err(|error| Failure::here(format!("printing findings: {error}")))?;
        format!("{line}\n")
    } else {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        render(&report, colour)
    };
    context.print(&text)?;
    Ok(match report.failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn examine(arguments: &Doctor) -> Result<Vec<Finding>, Failure> {
    let pid = arguments
        .pid
        .map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let process = process::Process::read(&pid).map_err(Failure::here)?;
    let kernel = kernel::Kernel::read();
    let reactors = arguments.reactors;
    let mut findings = vec![
        kernel::release(&kernel),
        kernel::ring(&kernel::probe_rings(reactors), reactors),
        process::memlock(&process, reactors),
        process::nofile(&process, reactors),
        process::memory(&process, reactors),
        kernel::hugepages(&kernel),
        cpu::cpu(cpu::Cpu::read()),
        rdma::rdma(&rdma::Rdma::read()),
        ublk::ublk(&ublk::probe(), arguments.ublk),
        kernel::nvme_tcp(&kernel),
    ];
    for address in &arguments.listen {
        findings.push(network::port(*address, &network::probe_port(*address)));
    }
    for address in &arguments.listen_rdma {
        findings.push(rdma::port(*address, &rdma::probe_port(*address)));
    }
    for path in &arguments.paths {
        findings.extend(storage::findings(path, &storage::read(path)));
    }
    Ok(findings)
}

fn render(report: &Report, colour: bool) -> String {
    let width = report
        .findings
        .iter()
        .map(|finding| finding.check.chars().count())
        .max()
        .unwrap_or(0);
    let mut lines = String::new();
    for finding in &report.findings {
        let (word, code) = match finding.verdict {
            Verdict::Ok => ("ok  ", "32"),
            Verdict::Warn => ("warn", "33"),
            Verdict::Fail => ("FAIL", "1;31"),
        };
        let word = if colour {
            format!("\x1b[{code}m{word}\x1b[0m")
        } else {
            word.to_owned()
        };
        let (check, found) = (text::clean(&finding.check), text::clean(&finding.found));
        lines += &format!("{word}  {check:<width$}  {found}\n");
        for (name, said) in [("costs", &finding.costs), ("mend", &finding.mend)] {
            if let Some(said) = said {
                lines += &format!("        {name:<5}  {}\n", text::clean(said));
            }
        }
    }
    let warnings = text::count(report.warnings as u64, "warning");
    let failures = text::count(report.failures as u64, "failure");
    lines + &format!("{warnings}, {failures}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            findings: vec![
                Finding::ok("kernel", "Linux 6.12.48"),
                Finding::warn("memlock", "8MiB", "time", "ulimit -l 48128"),
                Finding::fail("io_uring", "refused\nhere", "all", "sysctl"),
            ],
            warnings: 1,
            failures: 1,
        }
    }

    #[test]
    fn findings_are_lines_that_align() {
        assert_eq!(
            render(&report(), false),
            "ok    kernel    Linux 6.12.48\n\
             warn  memlock   8MiB\n        \
                     costs  time\n        \
                     mend   ulimit -l 48128\n\
             FAIL  io_uring  refused here\n        \
                     costs  all\n        \
                     mend   sysctl\n\
             1 warning, 1 failure\n"
        );
    }

    #[test]
    fn colour_is_around_the_verdict_alone() {
        let text = render(&report(), true);
        assert!(text.starts_with("\x1b[32mok  \x1b[0m  kernel "), "{text}");
        assert_eq!(text.matches('\x1b').count(), 6);
    }
}
