//! `snapctl`, the admin tool of snap-target.

#![deny(unsafe_code)]

mod cli;
mod connection;
mod context;
mod ensure;
mod failure;
mod json;
mod pages;
mod text;

mod announce;
mod controller;
mod doctor;
mod events;
mod function;
mod host;
mod listener;
mod namespace;
mod rates;
mod recorder;
mod referral;
mod stat;
mod subsystem;
mod target;
mod tls;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use context::Context;
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(status) => status,
        Err(failure) => failure.report(json),
    }
}

/// Help, a version, or what is wrong with the command line. Whether it is a program that reads this is not known but by looking.
fn not_understood(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !std::env::args_os().any(|word| word == "--json") {
        error.exit();
    }
    let said = error.to_string();
    // The rest is usage and hints.
    let (why, _) = said.split_once("\n\n").unwrap_or((&said, ""));
    Failure::usage(why.trim_start_matches("error: ")).report(true)
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let context = Context::new(cli.global);
    match cli.command {
        Command::Completions(arguments) => {
            let mut script = Vec::new();
            clap_complete::generate(arguments.shell, &mut Cli::command(), "snapctl", &mut script);
            context.print(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Doctor(arguments) => doctor::run(&arguments, &context),
        command => {
            let runtime = runtime()?;
            let ended = runtime.block_on(run_with_daemon(command, &context));
            // A thread may wait for what nobody types on standard input.
            runtime.shutdown_background();
            ended
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::here(format!("starting the tool's own runtime: {error}")))
}

async fn run_with_daemon(command: Command, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        Command::Subsystem(command) => subsystem::run(command, context).await?,
        Command::Namespace(command) => return namespace::run(command, context).await,
        Command::Host(command) => host::run(command, context).await?,
        Command::Listener(command) => listener::run(command, context).await?,
        Command::Referral(command) => referral::run(command, context).await?,
        Command::Function(command) => function::run(command, context).await?,
        Command::Controller(command) => controller::run(command, context).await?,
        Command::Target(command) => target::run(command, context).await?,
        Command::Stat(arguments) => stat::run(arguments, context).await?,
        Command::Top(arguments) => top::run(arguments, context).await?,
        Command::Events(arguments) => events::run(arguments, context).await?,
        Command::Recorder(command) => recorder::run(command, context).await?,
        Command::Announce(arguments) => announce::run(arguments, context).await?,
        Command::Announcement(command) => announce::show(command, context).await?,
        // These need no daemon.
        Command::Doctor(_) | Command::Completions(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}
