//! `xio`, the dataset tool: packs files into volumes, shows and checks them, and demonstrates the whole way to a host.

#![forbid(unsafe_code)]

mod bench;
mod chosen;
mod chosen_elements;
mod chunks;
mod cli;
mod contents;
mod cp;
mod demo;
mod diff;
mod disk;
mod elements;
mod failure;
mod figures;
mod files;
mod format;
mod inspect;
mod layout;
mod local;
mod map;
mod medium;
mod metered;
mod mount;
mod pack;
mod places;
mod plan;
mod progress;
mod ranges;
mod room;
mod signals;
mod sparse;
mod spool;
mod stdout;
mod tables;
mod tag;
mod unpack;
mod unzip;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match signals::outlive_file_limit().and_then(|()| run(command)) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}

/// Does it; the exit status is 0 but for a command that has more to say by it.
fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        // These end in ways of their own.
        Command::Mount(_) | Command::Demo(_) | Command::Bench(_) => {}
        _ => signals::end_in_order()?,
    }
    match command {
        Command::Diff(arguments) => return diff::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Pack(arguments) => pack::run(&arguments),
        Command::Map(arguments) => map::run(&arguments),
        Command::Format(arguments) => format::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Ranges(arguments) => ranges::run(&arguments),
        Command::Unpack(arguments) => unpack::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Tag(arguments) => tag::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => {
            let mut script = Vec::new();
            clap_complete::generate(arguments.shell, &mut Cli::command(), "xio", &mut script);
            stdout::print(&String::from_utf8_lossy(&script))
        }
    }?;
    Ok(ExitCode::SUCCESS)
}
