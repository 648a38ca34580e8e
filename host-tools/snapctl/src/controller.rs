//! `snapctl controller`.

use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::text_table::{Align, TextTable};

use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What to do with controllers.
#[derive(Debug, Subcommand)]
pub enum Controller {
    /// List the controllers that hosts have connected to
    List(List),
    /// End a controller as a lost connection does; its host connects again where it may
    End(End),
}

/// `snapctl controller list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl controller list\n  snapctl controller list --subsystem nqn.2026-11.org.example:data --json"
)]
pub struct List {
    /// Of this subsystem only
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<String>,

    /// Of this host only
    #[arg(long, value_name = "NQN")]
    pub host: Option<String>,
}

/// `snapctl controller end`.
#[derive(Debug, Args)]
#[command(
    after_help = "To keep the host away, deny it instead: snapctl host deny.\n\nExample:\n  snapctl controller end 3"
)]
pub struct End {
    /// Its number, as `controller list` says
    #[arg(value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub cntlid: u32,
}

/// Runs one of them.
pub async fn run(command: Controller, context: &Context) -> Result<(), Failure> {
    match command {
        Controller::List(arguments) => list(arguments, context).await,
        Controller::End(arguments) => end(arguments.cntlid, context).await,
    }
}

async fn list(arguments: List, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let answer = daemon
        .all(|page| {
            let mut client = daemon.controller();
            let request = v1::ListControllersRequest {
                subsystem_nqn: arguments.subsystem.clone().unwrap_or_default(),
                host_nqn: arguments.host.clone().unwrap_or_default(),
                page_size: page.size,
                page_token: page.token,
            };
            async move { client.list_controllers(request).await }
        })
        .await?;
    context.show(&answer, |answer: &v1::ListControllersResponse| {
        let mut table = TextTable::new(&[
            ("cntlid", Align::Right),
            ("subsystem", Align::Left),
            ("host", Align::Left),
            ("peer", Align::Left),
            ("I/O queues", Align::Right),
            ("keep alive", Align::Right),
            ("connected since", Align::Left),
        ]);
        for controller in &answer.controllers {
            let subsystem = if controller.is_discovery {
                "(discovery)"
            } else {
                &controller.subsystem_nqn
            };
            table.row([
                controller.cntlid.to_string(),
                subsystem.to_owned(),
                controller.host_nqn.clone(),
                peer(controller),
                controller.io_queues.to_string(),
                keep_alive(controller.kato_ms),
                text::when(controller.connected_since.as_ref()),
            ]);
        }
        table.render()
    })
}

/// A host's address, or the function that a virtual machine has.
fn peer(controller: &v1::Controller) -> String {
    if controller.function.is_empty() {
        let transport = text::transport(controller.transport);
        return format!("{transport} {}", controller.peer_address);
    }
    format!("function {}", controller.function)
}

fn keep_alive(kato_ms: u32) -> String {
    match kato_ms {
        0 => "none".to_owned(),
        ms if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

/// What says that the last command of an ended controller has ended too.
pub const CLOSING_TELLS: &str =
    "snapctl events --topic controller --follow tells when the controller is gone";

async fn end(cntlid: u32, context: &Context) -> Result<(), Failure> {
    let request = v1::EndControllerRequest { cntlid };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.controller().end_controller(request))
        .await?;
    context.show(&answer, |answer| {
        format!("ended controller {cntlid}\n")
            + &text::still_closing(answer.closing, &answer.closing_reason, CLOSING_TELLS)
    })
}
