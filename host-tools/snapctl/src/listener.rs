//! `snapctl listener`.

use admin_proto::v1;
use clap::{Args, Subcommand, ValueEnum};
use printout::text_table::{Align, TextTable};

use crate::connection::Daemon;
use crate::context::Context;
use crate::ensure::{Comparison, Ensure};
use crate::failure::Failure;
use crate::text;

/// What to do with listeners.
#[derive(Debug, Subcommand)]
pub enum Listener {
    /// Listen at an address, over TCP or RDMA
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
  snapctl listener add '[2001:db8::7]:4420' --port-id 2
  snapctl listener add 192.0.2.7:4420 --transport rdma
  snapctl listener add 192.0.2.7:4420 --ensure";

/// `snapctl listener add`.
#[derive(Debug, Args)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// IP:PORT; port 0 takes a free one
    #[arg(value_name = "ADDR:PORT")]
    pub address: String,

    /// What carries connections there
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    pub transport: Transport,

    /// Port id; otherwise the lowest free one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub port_id: Option<u32>,

    /// Whether it may be there.
    #[command(flatten)]
    pub ensure: Ensure,
}

/// What carries connections to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA: RoCE, InfiniBand.
    Rdma,
}

impl From<Transport> for v1::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Tcp => Self::Tcp,
            Transport::Rdma => Self::Rdma,
        }
    }
}

const REMOVE_HELP: &str = "\
Examples:
  snapctl listener remove 2
  snapctl listener remove 1 --force";

/// `snapctl listener remove`.
#[derive(Debug, Args)]
#[command(after_help = REMOVE_HELP)]
pub struct Remove {
    /// Its port id
    pub port_id: u32,

    /// Also the only one: no host can connect any more
    #[arg(long)]
    pub force: bool,
}

/// `snapctl listener list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl listener list")]
pub struct List {}

/// Runs one of them.
pub async fn run(command: Listener, context: &Context) -> Result<(), Failure> {
    match command {
        Listener::Add(arguments) => add(arguments, context).await,
        Listener::Remove(arguments) => remove(arguments, context).await,
        Listener::List(List {}) => list(context).await,
    }
}

async fn add(arguments: Add, context: &Context) -> Result<(), Failure> {
    let request = v1::AddListenerRequest {
        transport: v1::Transport::from(arguments.transport).into(),
        address: arguments.address.clone(),
        port_id: arguments.port_id.unwrap_or(0),
    };
    if arguments.ensure.ensure && arguments.address.ends_with(":0") {
        return Err(Failure::usage(
            "--ensure needs a port: 0 takes a free one, another one each time",
        ));
    }
    let daemon = context.daemon().await?;
    let added = daemon.answer(daemon.listener().add_listener(request)).await;
    match added {
        Ok(answer) => context.show(&answer, |answer| {
            let listener = answer.listener.clone().unwrap_or_default();
            let (place, port_id) = (place(&listener), listener.port_id);
            format!("listening at {place} (port id {port_id})\n")
        }),
        Err(refused) if arguments.ensure.ensure => {
            let answer = there(&arguments, &daemon, refused).await?;
            context.show(&answer, |answer| {
                let listener = answer.listener.clone().unwrap_or_default();
                let (place, port_id) = (place(&listener), listener.port_id);
                format!("listening at {place} already (port id {port_id})\n")
            })
        }
        Err(refused) => Err(refused),
    }
}

/// Its address, and what carries connections there where that is not TCP.
fn place(listener: &v1::Listener) -> String {
    let address = &listener.address;
    match v1::Transport::try_from(listener.transport) {
        Ok(v1::Transport::Tcp | v1::Transport::Unspecified) => address.clone(),
        _ => format!("{address} over {}", text::transport(listener.transport)),
    }
}

/// The listener that is in the way, where it is the one that was asked for.
async fn there(
    asked: &Add,
    daemon: &Daemon,
    refused: Failure,
) -> Result<v1::AddListenerResponse, Failure> {
    let listeners = all(daemon).await?;
    let transport = i32::from(v1::Transport::from(asked.transport));
    let same_address = |listener: &v1::Listener| {
        listener.transport == transport && text::same_address(&listener.address, &asked.address)
    };
    let found = match refused.reason() {
        v1::Reason::AddressTaken => listeners.listeners.iter().find(|l| same_address(l)),
        // A port id that was not asked for is not taken.
        v1::Reason::PortIdTaken => listeners
            .listeners
            .iter()
            .find(|listener| Some(listener.port_id) == asked.port_id),
        _ => None,
    };
    // Another program listens there, or it was removed meanwhile: the daemon's word stands.
    let Some(listener) = found else {
        return Err(refused);
    };
    let mut comparison = Comparison::default();
    comparison.property("its port id", asked.port_id, listener.port_id);
    let is_transport = text::transport(listener.transport);
    let asked_transport = text::transport(transport);
    comparison.property("its transport", Some(asked_transport), is_transport);
    let is_address = if same_address(listener) {
        asked.address.clone()
    } else {
        listener.address.clone()
    };
    comparison.property("its address", Some(asked.address.clone()), is_address);
    let subject = format!("the listener at {}", listener.address);
    comparison.verdict(subject, refused.detail().clone())?;
    Ok(v1::AddListenerResponse {
        listener: Some(listener.clone()),
        as_of: listeners.as_of.clone(),
    })
}

async fn remove(arguments: Remove, context: &Context) -> Result<(), Failure> {
    let Remove { port_id, force } = arguments;
    let request = v1::RemoveListenerRequest { port_id, force };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.listener().remove_listener(request))
        .await?;
    context.show(&answer, |_| format!("removed listener {port_id}\n"))
}

async fn all(daemon: &Daemon) -> Result<v1::ListListenersResponse, Failure> {
    let list = daemon.all(|page| {
        let mut client = daemon.listener();
        let request = v1::ListListenersRequest {
            page_size: page.size,
            page_token: page.token,
        };
        async move { client.list_listeners(request).await }
    });
    list.await
}

async fn list(context: &Context) -> Result<(), Failure> {
    let answer = all(&context.daemon().await?).await?;
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
    })
}
