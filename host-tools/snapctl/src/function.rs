//! `snapctl function`.

use admin_proto::v1;
use clap::{Args, Subcommand, ValueEnum};
use printout::text_table::{Align, TextTable};

use crate::connection::Daemon;
use crate::context::Context;
use crate::controller::CLOSING_TELLS;
use crate::ensure::{Comparison, Ensure};
use crate::failure::Failure;
use crate::text;

/// What to do with functions.
#[derive(Debug, Subcommand)]
pub enum Function {
    /// Make a function: a PCIe NVMe controller or a virtio disk for a virtual machine, or a block device of the daemon's machine
    Create(Create),
    /// Delete a function, and let its client go
    Delete(Delete),
    /// List the functions
    List(List),
    /// Show one function
    Show(Show),
}

const CREATE_HELP: &str = "\
The virtual machine's monitor opens the socket, at its start or by device_add while the guest runs: of a PCIe NVMe controller QEMU 10.1 or later with a
vfio-user-pci device, of a virtio disk any QEMU with a vhost-user-blk-pci device. A block device of the daemon's own machine (/dev/ublkbN) is there at once; it
needs the daemon to be root, and the driver ublk_drv when the daemon starts.

Examples:
  snapctl function create --name pf0vf1 \\
      --nqn nqn.2026-11.org.example:data --path /run/xio/pf0vf1
  snapctl function create --name pf0 --nqn nqn.2026-11.org.example:data \\
      --path /run/xio/pf0 --ensure
  snapctl function create --name pf1 --nqn nqn.2026-11.org.example:data \\
      --path /run/xio/pf1/cntrl --poll
  snapctl function create --name pf2 --nqn nqn.2026-11.org.example:data \\
      --path /run/xio/pf2 --protocol vhost-user-blk --nsid 2
  snapctl function create --name pf3 --nqn nqn.2026-11.org.example:data \\
      --protocol ublk --nsid 2 --number 7";

/// `snapctl function create`.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub struct Create {
    /// pfN, pfNvfM or pfNsfM
    #[arg(long)]
    pub name: String,

    /// The subsystem whose controller it is
    #[arg(long)]
    pub nqn: String,

    /// Path of its Unix socket on the daemon's machine, from the root on (--socket is the daemon's own); of ublk none
    #[arg(long)]
    pub path: Option<String>,

    /// Let its client map the doorbells, and look at them all the time while its controller is enabled: that takes cores, and SPDK's client needs it; of vfio-user only
    #[arg(long)]
    pub poll: bool,

    /// How its client reaches it
    #[arg(long, value_enum, default_value_t = Protocol::VfioUser)]
    pub protocol: Protocol,

    /// The namespace that a disk is
    #[arg(long, required_if_eq_any([("protocol", "vhost-user-blk"), ("protocol", "ublk")]))]
    pub nsid: Option<u32>,

    /// N of /dev/ublkbN, of ublk only; without it the lowest that is free
    #[arg(long)]
    pub number: Option<u32>,

    /// Whether it may be there.
    #[command(flatten)]
    pub ensure: Ensure,
}

/// How a client reaches a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// A PCIe NVMe controller over vfio-user.
    VfioUser,
    /// A virtio disk over vhost-user.
    VhostUserBlk,
    /// A block device of the daemon's machine.
    Ublk,
}

impl From<Protocol> for v1::FunctionProtocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::VfioUser => Self::VfioUser,
            Protocol::VhostUserBlk => Self::VhostUserBlk,
            Protocol::Ublk => Self::Ublk,
        }
    }
}

/// `snapctl function delete`.
#[derive(Debug, Args)]
#[command(
    after_help = "A guest that uses the function loses its disks, and QEMU 11.1 may end with it: have the guest remove the PCI device first\n(echo 1 > /sys/bus/pci/devices/ADDRESS/remove). A block device of the daemon's machine goes whoever has it open: unmount it first.\n\nExample:\n  snapctl function delete pf0vf1"
)]
pub struct Delete {
    /// pfN, pfNvfM or pfNsfM
    pub name: String,
}

/// `snapctl function list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl function list")]
pub struct List {}

/// `snapctl function show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl function show pf0vf1")]
pub struct Show {
    /// pfN, pfNvfM or pfNsfM
    pub name: String,
}

/// Runs one of them.
pub async fn run(command: Function, context: &Context) -> Result<(), Failure> {
    match command {
        Function::Create(arguments) => create(arguments, context).await,
        Function::Delete(arguments) => delete(arguments.name, context).await,
        Function::List(List {}) => list(context).await,
        Function::Show(arguments) => show(arguments.name, context).await,
    }
}

async fn create(arguments: Create, context: &Context) -> Result<(), Failure> {
    if arguments.path.is_none() && arguments.protocol != Protocol::Ublk {
        return Err(Failure::usage(
            "--path is missing: the socket at which the function's client finds it, for example --path /run/xio/pf0vf1",
        ));
    }
    let request = v1::CreateFunctionRequest {
        name: arguments.name.clone(),
        protocol: v1::FunctionProtocol::from(arguments.protocol).into(),
        subsystem_nqn: arguments.nqn.clone(),
        socket: arguments.path.clone().unwrap_or_default(),
        poll: arguments.poll,
        nsid: arguments.nsid.unwrap_or(0),
        number: arguments.number,
    };
    let daemon = context.daemon().await?;
    let made = daemon
        .answer(daemon.function().create_function(request))
        .await;
    let (answer, already) = match made {
        Ok(answer) => (answer, ""),
        Err(refused) if arguments.ensure.ensure => {
            (there(&arguments, &daemon, refused).await?, " already")
        }
        Err(refused) => return Err(refused),
    };
    context.show(&answer, |answer| {
        let function = answer.function.clone().unwrap_or_default();
        let v1::Function {
            name,
            socket,
            subsystem_nqn,
            ..
        } = function;
        format!("function {name} of {subsystem_nqn} is{already} at {socket}\n")
    })
}

/// The function that is in the way, where it is the one that was asked for.
async fn there(
    asked: &Create,
    daemon: &Daemon,
    refused: Failure,
) -> Result<v1::CreateFunctionResponse, Failure> {
    if refused.reason() != v1::Reason::FunctionExists {
        return Err(refused);
    }
    let found = get(daemon, asked.name.clone()).await?;
    let function = found.function.unwrap_or_default();
    let mut comparison = Comparison::default();
    let (nqn, socket) = (&function.subsystem_nqn, &function.socket);
    comparison.property("its subsystem", Some(&asked.nqn), nqn);
    let numbered = |number| format!("/dev/ublkb{number}");
    let place = asked.path.clone().or_else(|| asked.number.map(numbered));
    comparison.property("its socket", place.as_ref(), socket);
    let (wanted, is) = (polling(asked.poll), polling(function.poll));
    comparison.property("its polling", Some(wanted), is);
    let protocol = v1::FunctionProtocol::from(asked.protocol).into();
    comparison.property(
        "its protocol",
        Some(text::protocol(protocol)),
        text::protocol(function.protocol),
    );
    let nsid = asked.nsid.unwrap_or(0).to_string();
    comparison.property("its namespace", Some(&nsid), &function.nsid.to_string());
    comparison.verdict(
        format!("function {}", function.name),
        refused.detail().clone(),
    )?;
    if function.state() == v1::FunctionState::Failed {
        let (name, why) = (&function.name, &function.state_detail);
        let message = format!("function {name} is there as asked for, and is not served: {why}");
        return Err(Failure::of(tonic::Code::FailedPrecondition, message)
            .detailed(refused.detail().clone()));
    }
    Ok(v1::CreateFunctionResponse {
        function: Some(function),
        as_of: found.as_of,
    })
}

async fn delete(name: String, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let request = v1::DeleteFunctionRequest { name: name.clone() };
    let answer = daemon
        .answer(daemon.function().delete_function(request))
        .await?;
    context.show(&answer, |answer| {
        format!("deleted function {name}\n")
            + &text::still_closing(answer.closing, &answer.closing_reason, CLOSING_TELLS)
    })
}

async fn list(context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let answer = daemon
        .all(|page| {
            let mut client = daemon.function();
            let request = v1::ListFunctionsRequest {
                page_size: page.size,
                page_token: page.token,
            };
            async move { client.list_functions(request).await }
        })
        .await?;
    context.show(&answer, |answer: &v1::ListFunctionsResponse| {
        let mut table = TextTable::new(&[
            ("name", Align::Left),
            ("protocol", Align::Left),
            ("subsystem", Align::Left),
            ("nsid", Align::Right),
            ("socket", Align::Left),
            ("state", Align::Left),
            ("cntlid", Align::Right),
            ("made by", Align::Left),
        ]);
        for function in &answer.functions {
            table.row([
                function.name.clone(),
                text::protocol(function.protocol),
                function.subsystem_nqn.clone(),
                nsid(function),
                function.socket.clone(),
                state(function.state),
                cntlid(function),
                text::origin(function.origin),
            ]);
        }
        table.render()
    })
}

async fn get(daemon: &Daemon, name: String) -> Result<v1::GetFunctionResponse, Failure> {
    let request = v1::GetFunctionRequest { name };
    daemon.answer(daemon.function().get_function(request)).await
}

async fn show(name: String, context: &Context) -> Result<(), Failure> {
    let answer = get(&context.daemon().await?, name).await?;
    context.show(&answer, |answer| {
        let function = answer.function.clone().unwrap_or_default();
        let mut state = state(function.state);
        if !function.state_detail.is_empty() {
            state = format!("{state}: {}", function.state_detail);
        }
        // A disk has neither doorbells nor a host.
        let controller = (function.nsid == 0).then(|| {
            let polling = ("polling", polling(function.poll).to_owned());
            [polling, ("host", function.host_nqn.clone())]
        });
        let before = [
            ("name", function.name.clone()),
            ("protocol", text::protocol(function.protocol)),
            ("subsystem", function.subsystem_nqn.clone()),
            ("nsid", nsid(&function)),
            ("socket", function.socket.clone()),
        ];
        let behind = [
            ("state", state),
            ("cntlid", cntlid(&function)),
            ("I/O queues", function.io_queues.to_string()),
            (
                "connected since",
                text::when(function.connected_since.as_ref()),
            ),
            ("made by", text::origin(function.origin)),
        ];
        let io = function.io.iter().flat_map(io_rows);
        let rows = before
            .into_iter()
            .chain(controller.into_iter().flatten())
            .chain(behind)
            .chain(io);
        text::description(&rows.collect::<Vec<_>>())
    })
}

/// What a virtio disk has done.
fn io_rows(io: &v1::FunctionIo) -> Vec<(&'static str, String)> {
    let with_bytes = |count: u64, bytes: u64| format!("{count}, {bytes} bytes");
    vec![
        ("reads", with_bytes(io.reads, io.bytes_read)),
        ("writes", with_bytes(io.writes, io.bytes_written)),
        ("flushes", io.flushes.to_string()),
        ("discards", io.discards.to_string()),
        ("write zeroes", io.write_zeroes.to_string()),
        ("errors", io.errors.to_string()),
        ("in flight", io.in_flight.to_string()),
        ("driver's events", io.kicks.to_string()),
        ("events told", io.calls.to_string()),
    ]
}

/// Of a disk.
fn nsid(function: &v1::Function) -> String {
    match function.nsid {
        0 => text::or_dash(""),
        nsid => nsid.to_string(),
    }
}

fn cntlid(function: &v1::Function) -> String {
    function
        .cntlid
        .map_or_else(|| text::or_dash(""), |id| id.to_string())
}

/// Of its doorbells.
fn polling(is_on: bool) -> &'static str {
    match is_on {
        true => "on",
        false => "off",
    }
}

fn state(number: i32) -> String {
    match v1::FunctionState::try_from(number) {
        Ok(v1::FunctionState::Waiting) => "waiting".to_owned(),
        Ok(v1::FunctionState::Connected) => "connected".to_owned(),
        Ok(v1::FunctionState::Failed) => "failed".to_owned(),
        Ok(v1::FunctionState::Unspecified) => text::or_dash(""),
        Err(_) => number.to_string(),
    }
}
