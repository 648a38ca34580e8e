//! `snapctl namespace prefetch`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use admin_proto::limits::PREFETCH_RANGES_MAX;
use admin_proto::v1;
use admin_proto::v1::prefetch_request::What;
use clap::Args;
use printout::ranges::{self, ReadRange};
use printout::stdout::Reader;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Changed, Which};
use crate::context::Context;
use crate::failure::Failure;
use crate::json;

/// What standard input is called.
const STDIN: &str = "-";

const HELP: &str = "\
FILE has a line for each range, in the order in which they will be read: the first byte and the number of bytes, as the disk has them, with a space between;
'xio ranges' writes such lines. The daemon stays ahead of the reader by the quota, or by its own budget (prefetch in its configuration) where that is less. A line for each 250 ms says how far it came;
interrupted, the order ends, and what was fetched stays.

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

    /// What may be fetched and not read yet, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub quota_mib: u32,
}

/// Runs it.
pub async fn run(arguments: Prefetch, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let expected_uuid = arguments.changed.expected_uuid(&daemon).await?;
    let Which {
        subsystem_nqn,
        nsid,
    } = arguments.changed.which;
    let begin = What::Begin(v1::PrefetchBegin {
        subsystem_nqn,
        nsid,
        expected_uuid,
        epoch_id: arguments.epoch,
        quota_bytes: u64::from(arguments.quota_mib) << 20,
    });
    let (file, name) = open(&arguments.ranges)?;
    let (requests, stream) = mpsc::channel(4);
    let reading = tokio::task::spawn_blocking(move || {
        let message = |what| v1::PrefetchRequest { what: Some(what) };
        // Where the daemon has refused it, its answer says why.
        let _heard = requests.blocking_send(message(begin));
        each_batch(file, &name, |ranges| {
            let what = What::Ranges(v1::PrefetchRanges { ranges });
            requests.blocking_send(message(what)).is_ok()
        })
    });
    let request = ReceiverStream::new(stream);
    let mut progress = daemon.answer(daemon.namespace().prefetch(request)).await?;
    while let Some(told) = daemon.message(&mut progress).await? {
        let text = match context.json() {
            true => format!("{}\n", json::line(&told)?),
            false => in_words(&told),
        };
        if context.print(&text)? == Reader::Gone {
            break;
        }
    }
    reading
        .await
        .map_err(|error| Failure::here(error.to_string()))?
}

/// A file, or standard input where it is `-`; and what errors call it.
fn open(path: &Path) -> Result<(Box<dyn BufRead + Send>, String), Failure> {
    if path == Path::new(STDIN) {
        let stdin = BufReader::new(std::io::stdin());
        return Ok((Box::new(stdin), "standard input".to_owned()));
    }
    let name = path.display().to_string();
    let file = File::open(path);
    let file = file.map_err(|error| Failure::here(format!("reading {name}: {error}")))?;
    Ok((Box::new(BufReader::new(file)), name))
}

/// Reads the ranges of a text, some at a time, until somebody has enough.
fn each_batch(
    text: impl BufRead,
    name: &str,
    mut take: impl FnMut(Vec<v1::PrefetchRange>) -> bool,
) -> Result<(), Failure> {
    let mut batch = Vec::new();
    for range in ranges::read(text, name.to_owned()) {
        let ReadRange { offset, bytes } =
            range.map_err(|error| Failure::here(error.to_string()))?;
        batch.push(v1::PrefetchRange { offset, bytes });
        if batch.len() == PREFETCH_RANGES_MAX && !take(std::mem::take(&mut batch)) {
            return Ok(());
        }
    }
    if !batch.is_empty() {
        take(batch);
    }
    Ok(())
}

fn in_words(told: &v1::PrefetchResponse) -> String {
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{} MiB of {} MiB fetched, {} MiB ahead of the reader; frames read: {} in time, {} late; {} wasted{}\n",
        mib(told.fetched_bytes),
        mib(told.given_bytes),
        mib(told.ahead_bytes),
        told.hits,
        told.late,
        told.wasted,
        if told.complete { "; complete" } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_in_batches_and_a_wrong_line_is_named() {
        let text: String = (0..PREFETCH_RANGES_MAX + 1)
            .map(|n| format!("{} 4096\n", n * 4096))
            .collect();
        let mut batches = Vec::new();
        let read = each_batch(text.as_bytes(), "f", |ranges| {
            batches.push(ranges.len());
            true
        });
        assert!(read.is_ok());
        assert_eq!(batches, [PREFETCH_RANGES_MAX, 1]);
        let error = each_batch(&b"0 1\n1\n"[..], "f", |_| true).unwrap_err();
        assert!(error.to_string().starts_with("f:2: "), "{error}");
    }
}
