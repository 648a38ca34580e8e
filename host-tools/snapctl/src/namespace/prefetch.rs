//! `snapctl namespace prefetch`.

mod asked;
mod shown;

use std::path::PathBuf;
use std::process::ExitCode;

use admin_proto::v1;
use admin_proto::v1::prefetch_request::What;
use clap::Args;
use printout::stdout::Reader;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use self::asked::Batches;
use self::shown::Shown;
use super::{Changed, Which};
use crate::connection::Daemon;
use crate::context::Context;
use crate::failure::Failure;

/// What a shell says of a program that Ctrl-C ended: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;
/// Batches that are read before the daemon has taken them.
const BATCHES_AHEAD: usize = 4;

const HELP: &str = "\
FILE has a line for each range, in the order in which they will be read: the first byte and the number of bytes, as the disk has them, with a space between;
'xio ranges' writes such lines. The daemon stays ahead of the reader by the quota, or by its own budget (prefetch in its configuration) where that is less.
'fetched' counts bytes of the disk; the quota, and what is 'in the cache' and not read, count bytes as the cache keeps them: frames decoded, and what has
no frames as it is stored. At a terminal a bar shows how far it came, else a line each second does, and with --json each message.

It ends when all ranges are fetched: what is in the cache by then waits for its reader. Interrupted (Ctrl-C), it ends the order with exit status 130; what
was fetched stays.

Example:
  snapctl namespace prefetch nqn.2026-11.org.example:data 3 \\
      --ranges epoch-7.txt --epoch 7
  snapctl namespace prefetch nqn.2026-11.org.example:data 3 \\
      --ranges - --epoch 7 < epoch-7.txt";

/// `snapctl namespace prefetch`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Prefetch {
    /// Which.
    #[command(flatten)]
    pub changed: Changed,

    /// The ranges; '-' is standard input
    #[arg(long, value_name = "FILE")]
    pub ranges: PathBuf,

    /// What the order is called
    #[arg(long, value_name = "ID", default_value = "")]
    pub epoch: String,

    /// What the cache may hold of it that nobody has read, in MiB as they are kept
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub quota_mib: u32,
}

/// Runs it; the exit status of one that was interrupted.
pub async fn run(arguments: Prefetch, context: &Context) -> Result<ExitCode, Failure> {
    let daemon = context.daemon().await?;
    let expected_uuid = arguments.changed.expected_uuid(&daemon).await?;
    let Which {
        subsystem_nqn,
        nsid,
    } = arguments.changed.which;
    let disk_bytes = disk_bytes(&daemon, &subsystem_nqn, nsid).await?;
    let begin = What::Begin(v1::PrefetchBegin {
        subsystem_nqn,
        nsid,
        expected_uuid,
        epoch_id: arguments.epoch,
        quota_bytes: u64::from(arguments.quota_mib) << 20,
    });
    let batches = Batches::open(&arguments.ranges, disk_bytes)?;
    let shown = Shown::new(context, batches.asked());
    tokio::select! {
        ended = order(&daemon, begin, batches, &shown) => ended.map(|()| ExitCode::SUCCESS),
        _ = tokio::signal::ctrl_c() => {
            shown.interrupted()?;
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// The bytes of the disk: a range beyond them is told with its line, before the daemon is asked.
async fn disk_bytes(daemon: &Daemon, subsystem_nqn: &str, nsid: u32) -> Result<u64, Failure> {
    let request = v1::GetNamespaceRequest {
        subsystem_nqn: subsystem_nqn.to_owned(),
        nsid,
    };
    let answer = daemon
        .answer(daemon.namespace().get_namespace(request))
        .await?;
    Ok(answer.namespace.unwrap_or_default().bytes)
}

/// Gives the order, and shows how far it came until it is through.
async fn order(
    daemon: &Daemon,
    begin: What,
    mut batches: Batches,
    shown: &Shown<'_>,
) -> Result<(), Failure> {
    let message = |what| v1::PrefetchRequest { what: Some(what) };
    let ranges = |ranges| What::Ranges(v1::PrefetchRanges { ranges });
    // What is wrong at once begins no order, which would end another one.
    let (first, mut batches) = tokio::task::spawn_blocking(move || (batches.next(), batches))
        .await
        .map_err(|error| Failure::here(error.to_string()))?;
    let first = first?.ok_or_else(|| batches.none())?;
    let (requests, stream) = mpsc::channel(BATCHES_AHEAD);
    let mut reading = tokio::task::spawn_blocking(move || {
        // Where the daemon has refused it, its answer says why.
        let give = |what| requests.blocking_send(message(what)).is_ok();
        let mut read = Ok(());
        if give(begin) && give(ranges(first)) {
            read = loop {
                let is_taken = match batches.next() {
                    Ok(Some(more)) => give(ranges(more)),
                    Ok(None) => false,
                    Err(failure) => break Err(failure),
                };
                if !is_taken {
                    break Ok(());
                }
            };
        }
        // Where something is wrong the order has no end, so that nobody takes it for whole.
        let unended = read.is_err().then_some(requests);
        (read, unended)
    });
    let request = ReceiverStream::new(stream);
    let mut progress = daemon.answer(daemon.namespace().prefetch(request)).await?;
    let mut is_reading = true;
    loop {
        tokio::select! {
            biased;
            read = &mut reading, if is_reading => {
                is_reading = false;
                let (read, _unended) = read.map_err(|error| Failure::here(error.to_string()))?;
                read.inspect_err(|_| shown.cleared())?;
            }
            told = daemon.message(&mut progress) => {
                let told = told.inspect_err(|_| shown.cleared())?;
                let Some(told) = told else {
                    shown.cleared();
                    return Err(Failure::unreachable("snap-target ended the order before it was through: it drains, or was ended"));
                };
                if shown.told(&told)? == Reader::Gone || told.complete {
                    return Ok(());
                }
            }
        }
    }
}
