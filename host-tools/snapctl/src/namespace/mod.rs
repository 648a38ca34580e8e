//! `snapctl namespace`.

mod attach;
mod prefetch;
mod shown;
mod visibility;

use std::process::ExitCode;

use admin_proto::v1;
use admin_proto::v1::resize_namespace_request::Size as NewSize;
use clap::{Args, Subcommand};
use printout::size::Size;

use crate::connection::Daemon;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;
pub use shown::CLOSING_TELLS;

/// What to do with namespaces.
#[derive(Debug, Subcommand)]
pub enum Namespace {
    /// Attach a volume or a raw store; hosts see a new disk
    Attach(attach::Attach),
    /// Take a namespace away; its store keeps the data
    Detach(Detach),
    /// Give a raw namespace another size
    Resize(Resize),
    /// Say which hosts see a namespace
    Visibility(visibility::Visibility),
    /// Let more hosts see a namespace
    ShowTo(visibility::Hosts),
    /// Let hosts see a namespace no longer
    HideFrom(visibility::Hosts),
    /// Say what will be read, so that it is fetched in advance, and show how far that came
    Prefetch(prefetch::Prefetch),
    /// List namespaces
    List(shown::List),
    /// Show one namespace and who uses it
    Show(shown::Show),
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

/// A namespace that is to be changed.
#[derive(Clone, Debug, Args)]
pub struct Changed {
    /// Which.
    #[command(flatten)]
    pub which: Which,

    /// Only where it is this disk: a number may name another one by now
    #[arg(long, value_name = "UUID")]
    pub expect_uuid: Option<String>,
}

/// The revision of the contract that knows expected_uuid.
const EXPECTED_UUID_REVISION: u32 = 1;

impl Changed {
    /// The UUID for the request, once it is certain that the daemon looks at it.
    async fn expected_uuid(&self, daemon: &Daemon) -> Result<String, Failure> {
        let Some(uuid) = &self.expect_uuid else {
            return Ok(String::new());
        };
        daemon
            .needs(EXPECTED_UUID_REVISION, "--expect-uuid")
            .await?;
        Ok(uuid.clone())
    }
}

const DETACH_HELP: &str = "\
Hosts are told, commands in flight end, then the store is closed. Where it does not end at once, the namespace is listed as closing until then.

Examples:
  snapctl namespace detach nqn.2026-11.org.example:data 3
  snapctl namespace detach nqn.2026-11.org.example:data 3 \\
      --expect-uuid 5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4";

/// `snapctl namespace detach`.
#[derive(Debug, Args)]
#[command(after_help = DETACH_HELP)]
pub struct Detach {
    /// Which.
    #[command(flatten)]
    pub changed: Changed,
}

const RESIZE_HELP: &str = "\
--size grows a file to that many bytes; a block device must have them, and memory keeps its size. --rescan takes the size that the file or device has by now.

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
    pub changed: Changed,

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

/// Runs one of them.
pub async fn run(command: Namespace, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        Namespace::Prefetch(arguments) => prefetch::run(arguments, context).await,
        command => change_or_show(command, context)
            .await
            .map(|()| ExitCode::SUCCESS),
    }
}

async fn change_or_show(command: Namespace, context: &Context) -> Result<(), Failure> {
    match command {
        Namespace::Attach(arguments) => attach::run(arguments, context).await,
        Namespace::Detach(arguments) => detach(arguments.changed, context).await,
        Namespace::Resize(arguments) => resize(arguments, context).await,
        Namespace::Visibility(arguments) => visibility::set(arguments, context).await,
        Namespace::ShowTo(arguments) => visibility::show_to(arguments, context).await,
        Namespace::HideFrom(arguments) => visibility::hide_from(arguments, context).await,
        // It has an exit status of its own.
        Namespace::Prefetch(_) => Ok(()),
        Namespace::List(arguments) => shown::list(arguments, context).await,
        Namespace::Show(arguments) => shown::show(arguments.which, context).await,
    }
}

async fn detach(changed: Changed, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let expected_uuid = changed.expected_uuid(&daemon).await?;
    let Which {
        subsystem_nqn,
        nsid,
    } = changed.which;
    let request = v1::DetachNamespaceRequest {
        subsystem_nqn: subsystem_nqn.clone(),
        nsid,
        expected_uuid,
    };
    let answer = daemon
        .answer(daemon.namespace().detach_namespace(request))
        .await?;
    context.show(&answer, |answer| {
        format!("detached nsid {nsid} of {subsystem_nqn}\n")
            + &text::still_closing(answer.closing, &answer.closing_reason, CLOSING_TELLS)
    })
}

async fn resize(arguments: Resize, context: &Context) -> Result<(), Failure> {
    let size = match arguments.size {
        Some(Size(bytes)) => NewSize::Bytes(bytes),
        None => NewSize::Rescan(v1::Rescan {}),
    };
    let daemon = context.daemon().await?;
    let expected_uuid = arguments.changed.expected_uuid(&daemon).await?;
    let request = v1::ResizeNamespaceRequest {
        subsystem_nqn: arguments.changed.which.subsystem_nqn,
        nsid: arguments.changed.which.nsid,
        size: Some(size),
        force: arguments.force,
        expected_uuid,
    };
    let answer = daemon
        .answer(daemon.namespace().resize_namespace(request))
        .await?;
    context.show(&answer, resized)
}

fn resized(answer: &v1::ResizeNamespaceResponse) -> String {
    let namespace = answer.namespace.clone().unwrap_or_default();
    let (before, now) = (Size(answer.bytes_before), Size(namespace.bytes));
    let name = format!("nsid {} of {}", namespace.nsid, namespace.subsystem_nqn);
    let done = if before == now {
        format!("{name} has its size already: {now}\n")
    } else {
        format!("resized {name} from {before} to {now}\n")
    };
    let tells = "they go to the store as it was before";
    done + &text::still_closing(answer.closing, &answer.closing_reason, tells)
}
