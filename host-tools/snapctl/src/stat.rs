//! `snapctl stat`, and the tables that `snapctl top` shows too.

mod hops;
mod prefetch;
mod transforms;

use std::time::Duration;

use admin_proto::v1;
use clap::Args;
use printout::size::{grouped, rounded, whole};
use printout::stdout::Reader;
use printout::text_table::{Align, TextTable};
use tonic::Streaming;

use crate::connection::Daemon;
use crate::context::Context;
use crate::failure::Failure;
use crate::rates::{self, Rates};
use crate::text;

const HELP: &str = "\
Rates are of one interval; latencies are from a command's arrival to its answer, and a percentile is the upper end of the bucket that it lies in.
'disk' begins the UUID: another disk under the same number has rows of its own. 'stored' is what was fetched from stores, 'copies' how often a delivered
byte was copied, 'parked' how often a request waited for memory or a place in a store's queue. '(others)' are hosts and disks together that found no row
of their own; it is shown whatever is asked for. Rates are of hosts that have a queue and namespaces that are attached, unless --all is given. With --transforms: 'made' is what undoing a transform made,
'cores' how many that kept busy, and 'each core' what one makes in a second of that work; checksums are not in it. With --hops: 'stored' and 'tables' are what was fetched of a store, 'from store' and 'to
store' what that was on the network (0 of a local one), 'to host' and 'from host' what the hosts' commands were there, headers and digests included. With --prefetch: what was fetched before anybody asked for it, as it is kept; 'in time' was
there when it was first read, 'late' was on its way, 'wasted' left the cache before, and 'in the cache' waits for its reader: the four are 'fetched'.

Examples:
  snapctl stat
  snapctl stat --interval 5 --count 12 \\
      --subsystem nqn.2026-11.org.example:data
  snapctl stat --count 0 --json | jq '.hosts[].reads_per_second'
  snapctl stat --totals
  snapctl stat --transforms --interval 10
  snapctl stat --hops --totals
  snapctl stat --prefetch --totals";

/// `snapctl stat`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Stat {
    /// What is looked at.
    #[command(flatten)]
    pub choice: Choice,

    /// Intervals to show; 0: until it is interrupted
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u64,

    /// The counters since the daemon's start, at once, instead of rates
    #[arg(long, conflicts_with = "count")]
    pub totals: bool,

    /// Show what decoding took instead, by namespace and transform
    #[arg(long)]
    pub transforms: bool,

    /// Show the bytes of each hop instead, by namespace: stored, over the network, delivered
    #[arg(long, conflicts_with = "transforms")]
    pub hops: bool,

    /// Show what was fetched ahead of its readers instead, by namespace, and what became of it
    #[arg(long, conflicts_with_all = ["transforms", "hops"])]
    pub prefetch: bool,
}

/// Which counters, how often.
#[derive(Debug, Args)]
pub struct Choice {
    /// Length of an interval, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,

    /// Of this subsystem only
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<String>,

    /// Of this host only
    #[arg(long, value_name = "NQN")]
    pub host: Option<String>,

    /// Of this namespace only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=0xFFFF_FFFE))]
    pub nsid: Option<u32>,

    /// Also hosts that are gone and namespaces that are detached, where rates are shown
    #[arg(long)]
    pub all: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().unwrap_or(f64::NAN);
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("it is a number of seconds from 0.1 to 3600".to_owned())
    }
}

impl Choice {
    fn filter(&self) -> v1::StatsFilter {
        v1::StatsFilter {
            subsystem_nqn: self.subsystem.clone().unwrap_or_default(),
            host_nqn: self.host.clone().unwrap_or_default(),
            nsid: self.nsid.unwrap_or(0),
            without_latency: false,
        }
    }

    /// Asks for a snapshot every interval.
    pub async fn watch(&self, daemon: &Daemon) -> Result<Snapshots, Failure> {
        let request = v1::WatchStatsRequest {
            filter: Some(self.filter()),
            interval_ms: u32::try_from(self.interval.as_millis()).unwrap_or(u32::MAX),
        };
        let stream = daemon.answer(daemon.stats().watch_stats(request)).await?;
        Ok(Snapshots {
            daemon: daemon.clone(),
            stream,
            all: self.all,
            patience: self.interval + daemon.patience(),
            last: None,
        })
    }
}

/// A stream of snapshots, taken as rates.
pub struct Snapshots {
    daemon: Daemon,
    stream: Streaming<v1::StatsSnapshot>,
    /// Whether rows of those that are gone are wanted.
    all: bool,
    /// How long the next one may take.
    patience: Duration,
    last: Option<v1::StatsSnapshot>,
}

impl Snapshots {
    /// The rates up to the next snapshot. A call that is dropped loses nothing.
    pub async fn next(&mut self) -> Result<Rates, Failure> {
        loop {
            let message = self
                .daemon
                .message_within(self.patience, &mut self.stream)
                .await?;
            let mut new = message.ok_or_else(|| {
                Failure::unreachable(
                    "snap-target ended the stream of counters: it drains, or has no time for it; try again",
                )
            })?;
            if !self.all {
                // A daemon that does not know the queues does not leave its hosts out.
                new.hosts.retain(|row| row.others || row.queues != Some(0));
                new.namespaces.retain(|row| !row.subsystem_nqn.is_empty());
            }
            let rates = self.last.as_ref().and_then(|old| Rates::between(old, &new));
            self.last = Some(new);
            if let Some(rates) = rates {
                return Ok(rates);
            }
        }
    }
}

/// Runs it.
pub async fn run(arguments: Stat, context: &Context) -> Result<(), Failure> {
    let Stat {
        transforms,
        hops,
        prefetch,
        ..
    } = arguments;
    if arguments.totals {
        let shown = match (transforms, hops, prefetch) {
            (true, _, _) => transforms::totals_table,
            (_, true, _) => hops::totals_table,
            (_, _, true) => prefetch::totals_table,
            _ => totals_table,
        };
        return totals(&arguments.choice, shown, context).await;
    }
    let count = match arguments.count {
        0 => u64::MAX,
        count => count,
    };
    let shown = match (transforms, hops, prefetch) {
        (true, _, _) => transforms::tables,
        (_, true, _) => hops::tables,
        (_, _, true) => prefetch::tables,
        _ => tables,
    };
    repeat(&arguments.choice, count, shown, context).await
}

/// Prints one set of tables, or one JSON object, for each of `count` intervals.
pub async fn repeat(
    choice: &Choice,
    count: u64,
    tables: fn(&Rates) -> String,
    context: &Context,
) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let mut snapshots = choice.watch(&daemon).await?;
    for shown in 0..count {
        let rates = snapshots.next().await?;
        let text = if context.json() {
            let line = serde_json::to_string(&rates)
                .map_err(|error| Failure::here(format!("printing rates: {error}")))?;
            format!("{line}\n")
        } else if shown == 0 {
            tables(&rates)
        } else {
            format!("\n{}", tables(&rates))
        };
        if context.print(&text)? == Reader::Gone {
            break;
        }
    }
    Ok(())
}

/// All tables, each after its heading, with an empty line between them.
pub fn tables(rates: &Rates) -> String {
    [
        head(rates),
        hosts_table(rates),
        namespaces_table(rates),
        reactors_table(rates),
    ]
    .join("\n")
}

fn head(rates: &Rates) -> String {
    format!("{}, {} s\n", rates.taken_at, decimal(rates.seconds))
}

/// By namespace and host.
pub fn hosts_table(rates: &Rates) -> String {
    let mut table = TextTable::new(&[
        ("subsystem", Align::Left),
        ("nsid", Align::Right),
        ("disk", Align::Left),
        ("host", Align::Left),
        ("reads/s", Align::Right),
        ("read/s", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("writes/s", Align::Right),
        ("written/s", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("others/s", Align::Right),
        ("errors/s", Align::Right),
        ("in flight", Align::Right),
    ]);
    for row in &rates.hosts {
        table.row([
            row.subsystem_nqn.clone(),
            row.nsid.to_string(),
            disk(&row.namespace_uuid),
            host_name(&row.host_nqn, row.others),
            count(row.reads_per_second),
            bytes(row.read_bytes_per_second),
            latency(row.read_p50_ns),
            latency(row.read_p99_ns),
            count(row.writes_per_second),
            bytes(row.written_bytes_per_second),
            latency(row.write_p50_ns),
            latency(row.write_p99_ns),
            count(row.other_commands_per_second),
            count(row.errors_per_second),
            row.in_flight.to_string(),
        ]);
    }
    table.render()
}

/// The same for a narrow terminal: what matters most.
pub fn narrow_hosts_table(rates: &Rates) -> String {
    let mut table = TextTable::new(&[
        ("host", Align::Left),
        ("nsid", Align::Right),
        ("r/s", Align::Right),
        ("read/s", Align::Right),
        ("p99", Align::Right),
        ("w/s", Align::Right),
        ("written/s", Align::Right),
        ("p99", Align::Right),
        ("err/s", Align::Right),
    ]);
    for row in &rates.hosts {
        table.row([
            host_name(&row.host_nqn, row.others),
            row.nsid.to_string(),
            count(row.reads_per_second),
            bytes(row.read_bytes_per_second),
            latency(row.read_p99_ns),
            count(row.writes_per_second),
            bytes(row.written_bytes_per_second),
            latency(row.write_p99_ns),
            count(row.errors_per_second),
        ]);
    }
    table.render()
}

/// By namespace: what it took.
pub fn namespaces_table(rates: &Rates) -> String {
    let mut table = TextTable::new(&[
        ("subsystem", Align::Left),
        ("nsid", Align::Right),
        ("disk", Align::Left),
        ("stored/s", Align::Right),
        ("written/s", Align::Right),
        ("delivered/s", Align::Right),
        ("copies", Align::Right),
        ("cache hits", Align::Right),
        ("decoding", Align::Right),
        ("parked/s", Align::Right),
        ("store queue", Align::Right),
    ]);
    for row in &rates.namespaces {
        table.row([
            text::or_dash(&row.subsystem_nqn),
            row.nsid.to_string(),
            disk(&row.namespace_uuid),
            bytes(row.stored_bytes_per_second),
            bytes(row.written_bytes_per_second),
            bytes(row.delivered_bytes_per_second),
            row.copies.map_or_else(dash, decimal),
            percent(row.cache_hit_share),
            format!("{} cores", decimal(row.decoding_cores)),
            count(row.parked_per_second),
            row.store_operations.to_string(),
        ]);
    }
    table.render()
}

/// By reactor.
pub fn reactors_table(rates: &Rates) -> String {
    let mut table = TextTable::new(&[
        ("reactor", Align::Right),
        ("busy", Align::Right),
        ("turns/s", Align::Right),
        ("connections", Align::Right),
        ("staging", Align::Left),
    ]);
    for row in &rates.reactors {
        table.row([
            row.reactor.to_string(),
            percent(Some(row.busy_share)),
            count(row.turns_per_second),
            row.connections.to_string(),
            format!(
                "{} of {}",
                rounded(row.pool_used_bytes),
                rounded(row.pool_bytes)
            ),
        ]);
    }
    table.render()
}

async fn totals(
    choice: &Choice,
    table: fn(&v1::StatsSnapshot) -> String,
    context: &Context,
) -> Result<(), Failure> {
    let request = v1::GetStatsRequest {
        filter: Some(choice.filter()),
    };
    let daemon = context.daemon().await?;
    let answer = daemon.answer(daemon.stats().get_stats(request)).await?;
    context.show(&answer, table)
}

/// The rows of namespaces that are attached, as people count: by number, not by disk.
fn attached(snapshot: &v1::StatsSnapshot) -> Vec<&v1::NamespaceStats> {
    let attached = snapshot.namespaces.iter();
    let mut attached: Vec<_> = attached
        .filter(|row| !row.subsystem_nqn.is_empty())
        .collect();
    attached.sort_by_key(|row| (&row.subsystem_nqn, row.nsid));
    attached
}

/// What tells a namespace from the others, in three cells.
fn names(subsystem: &str, nsid: u32, uuid: &str) -> [String; 3] {
    [text::or_dash(subsystem), nsid.to_string(), disk(uuid)]
}

/// By namespace and host, since the daemon's start.
fn totals_table(snapshot: &v1::StatsSnapshot) -> String {
    let mut table = TextTable::new(&[
        ("subsystem", Align::Left),
        ("nsid", Align::Right),
        ("disk", Align::Left),
        ("host", Align::Left),
        ("reads", Align::Right),
        ("read", Align::Right),
        ("writes", Align::Right),
        ("written", Align::Right),
        ("others", Align::Right),
        ("errors", Align::Right),
    ]);
    for row in &snapshot.hosts {
        table.row([
            row.subsystem_nqn.clone(),
            row.nsid.to_string(),
            disk(&row.namespace_uuid),
            host_name(&row.host_nqn, row.others),
            grouped(rates::commands(row, "read")),
            rounded(row.read_bytes),
            grouped(rates::commands(row, "write")),
            rounded(row.written_bytes),
            grouped(rates::other_commands(row)),
            grouped(rates::errors(row)),
        ]);
    }
    table.render()
}

/// Enough of a UUID to tell disks apart.
fn disk(uuid: &str) -> String {
    text::or_dash(uuid.split('-').next().unwrap_or_default())
}

fn host_name(nqn: &str, others: bool) -> String {
    if others {
        "(others)".to_owned()
    } else {
        text::or_dash(nqn)
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// A rate of things: below 10 with a decimal, so that one in some seconds is not nothing.
fn count(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 {
        format!("{rate:.1}")
    } else {
        grouped(whole(rate))
    }
}

fn bytes(rate: f64) -> String {
    rounded(whole(rate))
}

fn decimal(number: f64) -> String {
    format!("{number:.2}")
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0))
}

/// Nanoseconds to three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn latency(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return dash() };
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        value if value < 9.995 => format!("{value:.2} {unit}"),
        value if value < 99.95 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits_and_their_unit() {
        for (ns, text) in [
            (Some(999), "999 ns"),
            (Some(1_000), "1.00 us"),
            (Some(41_234), "41.2 us"),
            (Some(950_000), "950 us"),
            (Some(2_500_000), "2.50 ms"),
            (Some(30_000_000_000), "30.0 s"),
            (None, "-"),
        ] {
            assert_eq!(latency(ns), text);
        }
    }

    #[test]
    fn small_rates_do_not_vanish() {
        for (rate, text) in [
            (0.0, "0"),
            (0.2, "0.2"),
            (9.94, "9.9"),
            (10.4, "10"),
            (25_000.4, "25,000"),
        ] {
            assert_eq!(count(rate), text);
        }
    }

    #[test]
    fn intervals_are_seconds_within_the_contract() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0.09", "3601", "1s", "-1", "nan", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
