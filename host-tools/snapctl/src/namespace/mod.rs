//! `snapctl namespace`.

use admin_proto::v1;
use admin_proto::v1::resize_namespace_request::Size as NewSize;
use clap::{Args, Subcommand};
use printout::size::{Size, grouped, rounded};
use printout::text_table::{Align, TextTable};

use crate::cli::{self, HostChoice};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What to do with namespaces.
#[derive(Debug, Subcommand)]
pub enum Namespace {
    /// Attach a volume or a raw store; hosts see a new disk
    Attach(Attach),
    /// Take a namespace away; its store keeps the data
    Detach(Detach),
    /// Give a raw namespace another size
    Resize(Resize),
    /// Say which hosts see a namespace
    Visibility(Visibility),
    /// List namespaces
    List(List),
    /// Show one namespace
    Show(Show),
}

/// A namespace by its subsystem and number.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// Its subsystem
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: String,

    /// Its number
    #[arg(value_name = "NSID", value_parser = clap::value_parser!(u32).range(1..=0xFFFF_FFFE))]
    pub nsid: u32,
}

const ATTACH_HELP: &str = "\
Paths are those of the daemon's machine. A bare path is a volume made by `xio pack`, served decoded and read-only; file:PATH is a file or block device,
byte for byte; mem:SIZE is memory that ends with the daemon; null:SIZE reads zeros.

Examples:
  snapctl namespace attach nqn.2026-11.org.example:data /srv/tokens.xio
  snapctl namespace attach nqn.2026-11.org.example:data file:/dev/sdb --lba 512 --nsid 7
  snapctl namespace attach nqn.2026-11.org.example:data mem:512MiB --host nqn.2026-11.org.example:trainer1";

/// `snapctl namespace attach`.
#[derive(Debug, Args)]
#[command(after_help = ATTACH_HELP)]
pub struct Attach {
    /// To which subsystem
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: String,

    /// A volume's path, file:PATH, mem:SIZE or null:SIZE
    pub source: String,

    /// Its number; otherwise the lowest free one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=0xFFFF_FFFE))]
    pub nsid: Option<u32>,

    /// Logical block size, 512 or 4096; a volume has its own
    #[arg(long, value_name = "BYTES", value_parser = lba_bytes)]
    pub lba: Option<u32>,

    /// No host may write
    #[arg(long)]
    pub read_only: bool,

    /// Who sees it; otherwise every host that may connect to the subsystem
    #[command(flatten)]
    pub hosts: HostChoice,
}

fn lba_bytes(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" | "4KiB" => Ok(4096),
        _ => Err("it is 512 or 4096".to_owned()),
    }
}

const DETACH_HELP: &str = "\
Commands in flight end first, then hosts are told, then the store is closed.

Example:
  snapctl namespace detach nqn.2026-11.org.example:data 3";

/// `snapctl namespace detach`.
#[derive(Debug, Args)]
#[command(after_help = DETACH_HELP)]
pub struct Detach {
    /// Which.
    #[command(flatten)]
    pub which: Which,
}

const RESIZE_HELP: &str = "\
--size grows a file or memory to that many bytes; a block device must have them. --rescan takes the size that the file or device has by now.

Examples:
  snapctl namespace resize nqn.2026-11.org.example:data 3 --size 20GiB
  snapctl namespace resize nqn.2026-11.org.example:data 3 --rescan
  snapctl namespace resize nqn.2026-11.org.example:data 3 --size 1GiB --force";

/// `snapctl namespace resize`.
#[derive(Debug, Args)]
#[command(after_help = RESIZE_HELP)]
#[command(group = clap::ArgGroup::new("new_size").required(true).args(["size", "rescan"]))]
pub struct Resize {
    /// Which.
    #[command(flatten)]
    pub which: Which,

    /// Its new size, a multiple of its logical block size
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,

    /// The size that its file or block device has now
    #[arg(long)]
    pub rescan: bool,

    /// Also where it becomes smaller: what was beyond the new end is lost to hosts, and cut off a file
    #[arg(long)]
    pub force: bool,
}

const VISIBILITY_HELP: &str = "\
Hosts that gain or lose the namespace are told. Only hosts that may connect to the subsystem can see it (`snapctl host allow`).

Examples:
  snapctl namespace visibility nqn.2026-11.org.example:data 3 --host nqn.2026-11.org.example:trainer1
  snapctl namespace visibility nqn.2026-11.org.example:data 3 --any-host
  snapctl namespace visibility nqn.2026-11.org.example:data 3 --no-host";

/// `snapctl namespace visibility`.
#[derive(Debug, Args)]
#[command(after_help = VISIBILITY_HELP)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["hosts", "any_host", "no_host"]))]
pub struct Visibility {
    /// Which.
    #[command(flatten)]
    pub which: Which,

    /// Who sees it.
    #[command(flatten)]
    pub hosts: HostChoice,

    /// No host
    #[arg(long)]
    pub no_host: bool,
}

/// `snapctl namespace list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl namespace list\n  snapctl namespace list nqn.2026-11.org.example:data --json | jq '.namespaces[].bytes'"
)]
pub struct List {
    /// Of this subsystem only
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: Option<String>,
}

/// `snapctl namespace show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl namespace show nqn.2026-11.org.example:data 3")]
pub struct Show {
    /// Which.
    #[command(flatten)]
    pub which: Which,
}

/// Runs one of them.
pub async fn run(command: Namespace, context: &Context) -> Result<(), Failure> {
    match command {
        Namespace::Attach(arguments) => attach(arguments, context).await,
        Namespace::Detach(arguments) => detach(arguments.which, context).await,
        Namespace::Resize(arguments) => resize(arguments, context).await,
        Namespace::Visibility(arguments) => visibility(arguments, context).await,
        Namespace::List(arguments) => list(arguments, context).await,
        Namespace::Show(arguments) => show(arguments.which, context).await,
    }
}

async fn attach(arguments: Attach, context: &Context) -> Result<(), Failure> {
    let request = v1::AttachNamespaceRequest {
        subsystem_nqn: arguments.subsystem_nqn,
        nsid: arguments.nsid.unwrap_or(0),
        source: Some(v1::Source {
            kind: Some(v1::source::Kind::Text(arguments.source)),
        }),
        lba_bytes: arguments.lba.unwrap_or(0),
        read_only: arguments.read_only,
        visible_to: arguments.hosts.visibility(),
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.namespace().attach_namespace(request))
        .await?;
    context.show(&answer, |answer| {
        let namespace = answer.namespace.clone().unwrap_or_default();
        format!(
            "attached {} as nsid {} of {}: {}, uuid {}\n",
            namespace.source_text,
            namespace.nsid,
            namespace.subsystem_nqn,
            Size(namespace.bytes),
            namespace.uuid
        )
    })?;
    Ok(())
}

async fn detach(which: Which, context: &Context) -> Result<(), Failure> {
    let request = v1::DetachNamespaceRequest {
        subsystem_nqn: which.subsystem_nqn.clone(),
        nsid: which.nsid,
        expected_uuid: String::new(),
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.namespace().detach_namespace(request))
        .await?;
    context.show(&answer, |_| {
        format!("detached nsid {} of {}\n", which.nsid, which.subsystem_nqn)
    })?;
    Ok(())
}

async fn resize(arguments: Resize, context: &Context) -> Result<(), Failure> {
    let size = match arguments.size {
        Some(Size(bytes)) => NewSize::Bytes(bytes),
        None => NewSize::Rescan(v1::Rescan {}),
    };
    let request = v1::ResizeNamespaceRequest {
        subsystem_nqn: arguments.which.subsystem_nqn,
        nsid: arguments.which.nsid,
        size: Some(size),
        force: arguments.force,
        expected_uuid: String::new(),
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.namespace().resize_namespace(request))
        .await?;
    context.show(&answer, |answer| {
        let namespace = answer.namespace.clone().unwrap_or_default();
        let (name, now) = (
            format!("nsid {} of {}", namespace.nsid, namespace.subsystem_nqn),
            Size(namespace.bytes),
        );
        if answer.bytes_before == namespace.bytes {
            format!("{name} has its size already: {now}\n")
        } else {
            format!(
                "resized {name} from {} to {now}\n",
                Size(answer.bytes_before)
            )
        }
    })?;
    Ok(())
}

async fn visibility(arguments: Visibility, context: &Context) -> Result<(), Failure> {
    let visible_to = arguments
        .hosts
        .visibility()
        .unwrap_or_else(|| cli::seen_only_by(Vec::new()));
    let request = v1::SetVisibilityRequest {
        subsystem_nqn: arguments.which.subsystem_nqn,
        nsid: arguments.which.nsid,
        visible_to: Some(visible_to),
        expected_uuid: String::new(),
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.namespace().set_visibility(request))
        .await?;
    context.show(&answer, |answer| {
        let namespace = answer.namespace.clone().unwrap_or_default();
        format!(
            "nsid {} of {} is seen by: {}\n",
            namespace.nsid,
            namespace.subsystem_nqn,
            text::hosts(Some(&text::seen_by(namespace.visible_to.as_ref())))
        )
    })?;
    Ok(())
}

async fn list(arguments: List, context: &Context) -> Result<(), Failure> {
    let request = v1::ListNamespacesRequest {
        subsystem_nqn: arguments.subsystem_nqn.unwrap_or_default(),
        ..v1::ListNamespacesRequest::default()
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.namespace().list_namespaces(request))
        .await?;
    context.show(&answer, |answer| {
        let mut table = TextTable::new(&[
            ("subsystem", Align::Left),
            ("nsid", Align::Right),
            ("kind", Align::Left),
            ("size", Align::Right),
            ("block", Align::Right),
            ("writes", Align::Left),
            ("seen by", Align::Left),
            ("state", Align::Left),
            ("source", Align::Left),
        ]);
        for namespace in &answer.namespaces {
            table.row([
                namespace.subsystem_nqn.clone(),
                namespace.nsid.to_string(),
                kind(namespace.kind),
                rounded(namespace.bytes),
                Size(namespace.lba_bytes.into()).to_string(),
                writes(namespace.write_protection),
                text::hosts_in_short(Some(&text::seen_by(namespace.visible_to.as_ref()))),
                state(namespace.state),
                namespace.source_text.clone(),
            ]);
        }
        table.render()
    })?;
    Ok(())
}

async fn show(which: Which, context: &Context) -> Result<(), Failure> {
    let request = v1::GetNamespaceRequest {
        subsystem_nqn: which.subsystem_nqn,
        nsid: which.nsid,
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.namespace().get_namespace(request))
        .await?;
    context.show(&answer, |answer| {
        describe(&answer.namespace.clone().unwrap_or_default())
    })?;
    Ok(())
}

fn describe(namespace: &v1::Namespace) -> String {
    let mut lines = vec![
        ("subsystem", namespace.subsystem_nqn.clone()),
        ("nsid", namespace.nsid.to_string()),
        ("uuid", namespace.uuid.clone()),
        ("nguid", namespace.nguid.clone()),
        ("source", namespace.source_text.clone()),
        ("kind", kind(namespace.kind)),
        (
            "size",
            format!(
                "{} ({} blocks of {})",
                Size(namespace.bytes),
                grouped(namespace.block_count),
                Size(namespace.lba_bytes.into())
            ),
        ),
        ("writes", writes(namespace.write_protection)),
        (
            "seen by",
            text::hosts(Some(&text::seen_by(namespace.visible_to.as_ref()))),
        ),
        ("controllers", namespace.controllers.to_string()),
        ("state", state(namespace.state)),
        ("made by", text::origin(namespace.origin)),
    ];
    if !namespace.state_detail.is_empty() {
        lines.push(("why", namespace.state_detail.clone()));
    }
    if let Some(view) = &namespace.view {
        lines.push((
            "volume",
            format!("{}, generation {}", view.volume_uuid, view.generation),
        ));
        lines.push(("view", view.name.clone()));
        lines.push(("presented", rounded(view.presented_bytes)));
        lines.push(("stored", rounded(view.stored_bytes)));
    }
    text::description(&lines)
}

fn kind(number: i32) -> String {
    match v1::NamespaceKind::try_from(number) {
        Ok(v1::NamespaceKind::Raw) => "raw".to_owned(),
        Ok(v1::NamespaceKind::View) => "view".to_owned(),
        Ok(v1::NamespaceKind::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}

fn state(number: i32) -> String {
    match v1::NamespaceState::try_from(number) {
        Ok(v1::NamespaceState::Ready) => "ready".to_owned(),
        Ok(v1::NamespaceState::Failed) => "failed".to_owned(),
        Ok(v1::NamespaceState::Closing) => "closing".to_owned(),
        Ok(v1::NamespaceState::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}

fn writes(number: i32) -> String {
    match v1::WriteProtection::try_from(number) {
        Ok(v1::WriteProtection::None) => "yes".to_owned(),
        Ok(v1::WriteProtection::ReadOnly) => "no".to_owned(),
        Ok(v1::WriteProtection::ByHost) => "no (a host said so)".to_owned(),
        Ok(v1::WriteProtection::UntilRestart) => "no (until restart)".to_owned(),
        Ok(v1::WriteProtection::Permanent) => "no (permanent)".to_owned(),
        Ok(v1::WriteProtection::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}
