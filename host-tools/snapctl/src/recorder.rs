//! `snapctl recorder`.

use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::stdout::Reader;

use crate::context::Context;
use crate::failure::Failure;
use crate::json;
use crate::text;

/// What to do with the flight recorders.
#[derive(Debug, Subcommand)]
pub enum Recorder {
    /// Print the last events that each reactor noted, oldest first
    Dump(Dump),
}

/// `snapctl recorder dump`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl recorder dump\n  snapctl recorder dump --last 100\n  snapctl recorder dump --json | jq 'select(.kind == \"command failed\")'"
)]
pub struct Dump {
    /// Only the newest N of each reactor; otherwise all that is kept
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
}

/// Runs one of them.
pub async fn run(command: Recorder, context: &Context) -> Result<(), Failure> {
    let Recorder::Dump(arguments) = command;
    let request = v1::DumpRecorderRequest {
        last: arguments.last.unwrap_or(0),
    };
    let daemon = context.daemon().await?;
    let mut stream = daemon
        .answer(daemon.target().dump_recorder(request))
        .await?;
    while let Some(piece) = daemon.message(&mut stream).await? {
        let mut lines = String::new();
        for event in &piece.events {
            lines += &line(event, context.json())?;
        }
        if context.print(&lines)? == Reader::Gone {
            break;
        }
    }
    Ok(())
}

fn line(event: &v1::RecorderEvent, as_json: bool) -> Result<String, Failure> {
    if as_json {
        return Ok(format!("{}\n", json::line(event)?));
    }
    let (at, said) = (text::when(event.at.as_ref()), text::clean(&event.text));
    let thread = match event.reactor {
        Some(reactor) => format!("reactor {reactor}"),
        None => "control".to_owned(),
    };
    Ok(format!("{at}  {thread:<10}  {said}\n"))
}
