//! `snap-target`: serves volumes and raw stores as the namespaces of an NVMe/TCP subsystem.

mod admin;
mod args;
mod array;
mod catalogue;
mod config;
mod daemon;
mod desired;
mod events;
mod guests;
mod health;
mod identity;
mod limits;
mod lives;
mod locals;
mod lodging;
mod logging;
mod manage;
mod metrics;
mod notify;
mod open;
mod open_files;
mod ports;
mod refusals;
mod remote;
mod report;
mod ring;
mod serve;
mod signal;
mod state;
mod text;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use args::Args;
use config::Config;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snap-target: {}", line_of(&error));
            ExitCode::FAILURE
        }
    }
}

/// What failed and its causes, in one line. Many errors say their cause themselves: it is not said again.
pub(crate) fn line_of(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

fn run(args: &Args) -> Result<()> {
    if let Some(file) = &args.check_config {
        ports::check(&Config::load(file)?)?;
        println!("{}: it can be used", file.display());
        return Ok(());
    }
    if let Some(number) = args.delete_ublk {
        frontend_ublk::delete(number)?;
        println!("/dev/ublkb{number} is deleted");
        return Ok(());
    }
    let config = args.config()?;
    let log = logging::start(&config.target.log)?;
    // Before the first thread: every thread inherits the mask, and the signals wait for us.
    let signals = signal::hold()?;
    logging::report(log.clone())?;
    open_files::raise_limit();
    let ended = daemon::start(&config, args.config.as_deref())?.run_until(&signals);
    log.report();
    ended
}
