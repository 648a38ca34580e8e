//! `snapctl subsystem`.

use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::size::Size;
use printout::text_table::{Align, TextTable};

use crate::cli::{self, HostChoice};
use crate::connection::Daemon;
use crate::context::Context;
use crate::ensure::{Comparison, Ensure};
use crate::failure::Failure;
use crate::{namespace, text};

/// What to do with subsystems.
#[derive(Debug, Subcommand)]
pub enum Subsystem {
    /// Make a subsystem without namespaces
    Create(Box<Create>),
    /// End its controllers, detach its namespaces and delete it; stores keep their data
    Delete(Delete),
    /// List all subsystems
    List(List),
}

const CREATE_HELP: &str = "\
Nobody may connect until hosts are named, here or by `snapctl host allow`; any host has to be written out.

Examples:
  snapctl subsystem create nqn.2026-11.org.example:data
  snapctl subsystem create nqn.2026-11.org.example:data \\
      --host nqn.2026-11.org.example:trainer1 --io-queues 8
  snapctl subsystem create nqn.2026-11.org.example:open --any-host
  snapctl subsystem create nqn.2026-11.org.example:data --serial S1 --ensure";

/// `snapctl subsystem create`.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub struct Create {
    /// Its name (SUBNQN)
    pub nqn: String,

    /// Serial number, at most 20 characters; otherwise one that is made from the NQN
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String>,

    /// Model number, at most 40 characters
    #[arg(long, value_name = "TEXT")]
    pub model: Option<String>,

    /// Who may connect.
    #[command(flatten)]
    pub hosts: HostChoice,

    /// Controllers, all hosts together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub controllers: Option<u32>,

    /// Controllers of one host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub controllers_per_host: Option<u32>,

    /// Connections of one host, of all its controllers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections_per_host: Option<u32>,

    /// I/O queues of one host, of all its controllers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub io_queues_per_host: Option<u32>,

    /// I/O queues of one controller
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub io_queues: Option<u32>,

    /// Entries of a queue
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue_entries: Option<u32>,

    /// Data of one command: a power of two from 8KiB to 1MiB
    #[arg(long, value_name = "SIZE")]
    pub transfer: Option<Size>,

    /// Memory that the commands of one host may hold
    #[arg(long, value_name = "SIZE")]
    pub memory_per_host: Option<Size>,

    /// Whether it may be there.
    #[command(flatten)]
    pub ensure: Ensure,
}

const DELETE_HELP: &str = "\
Examples:
  snapctl subsystem delete nqn.2026-11.org.example:data
  snapctl subsystem delete nqn.2026-11.org.example:data --force";

/// `snapctl subsystem delete`.
#[derive(Debug, Args)]
#[command(after_help = DELETE_HELP)]
pub struct Delete {
    /// Its name
    pub nqn: String,

    /// Also where it has namespaces or connected hosts
    #[arg(long)]
    pub force: bool,
}

/// `snapctl subsystem list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl subsystem list\n  snapctl subsystem list --json | jq -r '.subsystems[].nqn'"
)]
pub struct List {}

/// Runs one of them.
pub async fn run(command: Subsystem, context: &Context) -> Result<(), Failure> {
    match command {
        Subsystem::Create(arguments) => create(*arguments, context).await,
        Subsystem::Delete(arguments) => delete(arguments, context).await,
        Subsystem::List(List {}) => list(context).await,
    }
}

/// The revision of the contract that knows the limits of a host's connections and I/O queues.
const LIMITS_PER_HOST_REVISION: u32 = 2;

async fn create(arguments: Create, context: &Context) -> Result<(), Failure> {
    let ensure = arguments.ensure.ensure;
    let request = request_of(arguments)?;
    let daemon = context.daemon().await?;
    let limits = request.limits.unwrap_or_default();
    let new = [
        ("--connections-per-host", limits.connections_per_host_max),
        ("--io-queues-per-host", limits.io_queues_per_host_max),
    ];
    if let Some((flag, _)) = new.into_iter().find(|(_, limit)| *limit != 0) {
        daemon.needs(LIMITS_PER_HOST_REVISION, flag).await?;
    }
    let created = daemon
        .answer(daemon.subsystem().create_subsystem(request.clone()))
        .await;
    match created {
        Ok(answer) => context.show(&answer, created_line),
        Err(refused) if ensure && refused.reason() == v1::Reason::SubsystemExists => {
            let answer = get(&daemon, &request.nqn).await?;
            let subsystem = answer.subsystem.clone().unwrap_or_default();
            compare(&request, &subsystem).verdict(&request.nqn, refused.detail().clone())?;
            context.show(&answer, |_| format!("{} is there already\n", request.nqn))
        }
        Err(refused) => Err(refused),
    }
}

fn created_line(answer: &v1::CreateSubsystemResponse) -> String {
    let subsystem = answer.subsystem.clone().unwrap_or_default();
    let hosts = match text::hosts(subsystem.hosts.as_ref()).as_str() {
        "nobody" => format!(
            "nobody may connect yet: snapctl host allow {} HOST",
            subsystem.nqn
        ),
        "any" => "any host may connect".to_owned(),
        hosts => format!("{hosts} may connect"),
    };
    format!("created {}; {hosts}\n", subsystem.nqn)
}

async fn get(daemon: &Daemon, nqn: &str) -> Result<v1::GetSubsystemResponse, Failure> {
    let request = v1::GetSubsystemRequest {
        nqn: nqn.to_owned(),
    };
    daemon
        .answer(daemon.subsystem().get_subsystem(request))
        .await
}

/// What was said of it, held against what it is.
fn compare(asked: &v1::CreateSubsystemRequest, is: &v1::Subsystem) -> Comparison {
    let mut comparison = Comparison::default();
    let said = |text: &String| (!text.is_empty()).then(|| text.clone());
    comparison.property("its serial number", said(&asked.serial), is.serial.clone());
    comparison.property("its model number", said(&asked.model), is.model.clone());
    let hosts = |policy: &v1::HostPolicy| text::hosts(Some(&cli::sorted(policy.clone())));
    comparison.property(
        "who may connect",
        asked.hosts.as_ref().map(hosts),
        is.hosts.as_ref().map(hosts).unwrap_or_default(),
    );
    let (asked, is) = (
        asked.limits.unwrap_or_default(),
        is.limits.unwrap_or_default(),
    );
    for (name, asked, is) in [
        ("--controllers", asked.controllers_max, is.controllers_max),
        (
            "--controllers-per-host",
            asked.controllers_per_host_max,
            is.controllers_per_host_max,
        ),
        (
            "--connections-per-host",
            asked.connections_per_host_max,
            is.connections_per_host_max,
        ),
        (
            "--io-queues-per-host",
            asked.io_queues_per_host_max,
            is.io_queues_per_host_max,
        ),
        ("--io-queues", asked.io_queues_max, is.io_queues_max),
        (
            "--queue-entries",
            asked.queue_entries_max,
            is.queue_entries_max,
        ),
        (
            "--transfer",
            asked.transfer_bytes_max,
            is.transfer_bytes_max,
        ),
    ] {
        comparison.property(name, (asked != 0).then_some(asked), is);
    }
    let (asked, is) = (
        asked.memory_per_host_bytes_max,
        is.memory_per_host_bytes_max,
    );
    comparison.property("--memory-per-host", (asked != 0).then_some(asked), is);
    comparison
}

fn request_of(arguments: Create) -> Result<v1::CreateSubsystemRequest, Failure> {
    let transfer_bytes_max = match arguments.transfer {
        Some(Size(bytes)) => {
            u32::try_from(bytes).map_err(|_| Failure::usage("--transfer is at most 1MiB"))?
        }
        None => 0,
    };
    let limits = v1::SubsystemLimits {
        controllers_max: arguments.controllers.unwrap_or(0),
        controllers_per_host_max: arguments.controllers_per_host.unwrap_or(0),
        connections_per_host_max: arguments.connections_per_host.unwrap_or(0),
        io_queues_per_host_max: arguments.io_queues_per_host.unwrap_or(0),
        io_queues_max: arguments.io_queues.unwrap_or(0),
        queue_entries_max: arguments.queue_entries.unwrap_or(0),
        transfer_bytes_max,
        memory_per_host_bytes_max: arguments.memory_per_host.map_or(0, |size| size.0),
    };
    Ok(v1::CreateSubsystemRequest {
        nqn: arguments.nqn,
        serial: arguments.serial.unwrap_or_default(),
        model: arguments.model.unwrap_or_default(),
        hosts: arguments.hosts.policy(),
        limits: (limits != v1::SubsystemLimits::default()).then_some(limits),
    })
}

async fn delete(arguments: Delete, context: &Context) -> Result<(), Failure> {
    let Delete { nqn, force } = arguments;
    let request = v1::DeleteSubsystemRequest {
        nqn: nqn.clone(),
        force,
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.subsystem().delete_subsystem(request))
        .await?;
    context.show(&answer, |answer| {
        let namespaces = text::count(answer.namespaces_detached.into(), "namespace");
        let controllers = text::count(answer.controllers_ended.into(), "controller");
        format!("deleted {nqn}: {namespaces} detached, {controllers} ended\n")
            + &text::still_closing(
                answer.closing,
                &answer.closing_reason,
                namespace::CLOSING_TELLS,
            )
    })
}

async fn list(context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let answer = daemon
        .all(|page| {
            let mut client = daemon.subsystem();
            let request = v1::ListSubsystemsRequest {
                page_size: page.size,
                page_token: page.token,
            };
            async move { client.list_subsystems(request).await }
        })
        .await?;
    context.show(&answer, |answer: &v1::ListSubsystemsResponse| {
        let mut table = TextTable::new(&[
            ("subsystem", Align::Left),
            ("serial", Align::Left),
            ("model", Align::Left),
            ("hosts allowed", Align::Left),
            ("namespaces", Align::Right),
            ("controllers", Align::Right),
            ("made by", Align::Left),
        ]);
        for subsystem in &answer.subsystems {
            table.row([
                subsystem.nqn.clone(),
                subsystem.serial.clone(),
                subsystem.model.clone(),
                text::hosts_in_short(subsystem.hosts.as_ref()),
                subsystem.namespaces.to_string(),
                subsystem.controllers.to_string(),
                text::origin(subsystem.origin),
            ]);
        }
        table.render()
    })
}
