//! `snapctl listener`.

use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::text_table::{Align, TextTable};

use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What to do with listeners.
#[derive(Debug, Subcommand)]
pub enum Listener {
    /// Listen at an address (NVMe/TCP)
    Add(Add),
    /// Listen there no longer; connections that are made stay
    Remove(Remove),
    /// List where the target listens
    List(List),
}

const ADD_HELP: &str = "\
The address appears in the discovery log, and hosts that wait for changes of it are told.

Examples:
  snapctl listener add 192.0.2.7:4420
  snapctl listener add '[2001:db8::7]:4420' --port-id 2";

/// `snapctl listener add`.
#[derive(Debug, Args)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// IP:PORT; port 0 takes a free one
    #[arg(value_name = "ADDR:PORT")]
    pub address: String,

    /// Port id; otherwise the lowest free one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub port_id: Option<u32>,
}

/// `snapctl listener remove`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl listener remove 2")]
pub struct Remove {
    /// Its port id
    pub port_id: u32,
}

/// `snapctl listener list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl listener list")]
pub struct List {}

/// Runs one of them.
pub async fn run(command: Listener, context: &Context) -> Result<(), Failure> {
    match command {
        Listener::Add(arguments) => add(arguments, context).await,
        Listener::Remove(arguments) => remove(arguments.port_id, context).await,
        Listener::List(List {}) => list(context).await,
    }
}

async fn add(arguments: Add, context: &Context) -> Result<(), Failure> {
    let request = v1::AddListenerRequest {
        transport: v1::Transport::Tcp.into(),
        address: arguments.address,
        port_id: arguments.port_id.unwrap_or(0),
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.listener().add_listener(request))
        .await?;
    context.show(&answer, |answer| {
        let listener = answer.listener.clone().unwrap_or_default();
        format!(
            "listening at {} (port id {})\n",
            listener.address, listener.port_id
        )
    })?;
    Ok(())
}

async fn remove(port_id: u32, context: &Context) -> Result<(), Failure> {
    let request = v1::RemoveListenerRequest { port_id };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.listener().remove_listener(request))
        .await?;
    context.show(&answer, |_| format!("removed listener {port_id}\n"))?;
    Ok(())
}

async fn list(context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(
            daemon
                .listener()
                .list_listeners(v1::ListListenersRequest::default()),
        )
        .await?;
    context.show(&answer, |answer| {
        let mut table = TextTable::new(&[
            ("port id", Align::Right),
            ("transport", Align::Left),
            ("address", Align::Left),
            ("connections", Align::Right),
            ("made by", Align::Left),
        ]);
        for listener in &answer.listeners {
            table.row([
                listener.port_id.to_string(),
                text::transport(listener.transport),
                listener.address.clone(),
                listener.connections.to_string(),
                text::origin(listener.origin),
            ]);
        }
        table.render()
    })?;
    Ok(())
}
