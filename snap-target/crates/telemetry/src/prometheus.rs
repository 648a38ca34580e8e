//! A snapshot in Prometheus' text exposition format, version 0.0.4.
//!
//! Times are in seconds, amounts in bytes. Histograms have one bucket an octave, from 1.024 us to 68.7 s: their counts are exact.

use std::fmt::{Arguments, Write};

use crate::histogram::HistogramSnapshot;
use crate::metrics::{self, Metric};
use crate::namespace_row::NamespaceCounters;
use crate::snapshot::{
    DecodeSnapshot, HostSnapshot, NamespaceSnapshot, PoolSnapshot, ReactorSnapshot, Snapshot,
    TransformSnapshot,
};

/// What an HTTP answer with this text says of it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the daemon knows beside the counters.
#[derive(Clone, Debug, Default)]
pub struct Daemon {
    /// What is attached where.
    pub namespaces: Vec<Attached>,
    /// Each kind of problem, and whether there is one of it.
    pub health: Vec<(String, bool)>,
    /// Connects that were refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Clients that TLS of the admin service did not let in, by reason.
    pub refused_clients: Vec<(&'static str, u64)>,
    /// When the admin service's certificate expires, in seconds since 1970; none without TLS.
    pub certificate_expiry: Option<i64>,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// The subsystem's NQN.
    pub subsystem: String,
    /// NSID.
    pub nsid: u32,
    /// UUID, as RFC 9562 writes it.
    pub uuid: String,
    /// As it was given.
    pub source: String,
    /// "raw", "view" or "mixed".
    pub kind: &'static str,
}

/// Whether the histograms of hosts are written: thirty lines each, for each host and namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// All of them.
    Whole,
    /// None.
    LeftOut,
}

/// The text of a snapshot.
#[must_use]
pub fn render(snapshot: &Snapshot, daemon: &Daemon, latency: Latency) -> String {
    let mut page = Page::default();
    page.family(metrics::UPTIME);
    page.sample("", &[], &seconds(snapshot.uptime_ns));
    hosts(&mut page, &snapshot.hosts);
    if latency == Latency::Whole {
        latencies(&mut page, &snapshot.hosts);
    }
    namespaces(&mut page, &snapshot.namespaces);
    of_daemon(&mut page, daemon);
    reactors(&mut page, &snapshot.reactors);
    page.text
}

fn hosts(page: &mut Page, hosts: &[HostSnapshot]) {
    page.family(metrics::COMMANDS);
    for host in hosts {
        for (kind, commands) in &host.commands {
            page.of_host(host, &[("kind", kind)], commands);
        }
    }
    page.family(metrics::ERRORS);
    for host in hosts {
        for (class, errors) in &host.errors {
            page.of_host(host, &[("class", class)], errors);
        }
    }
    let plain: [(Metric, Number<HostSnapshot>); 6] = [
        (metrics::READ_BYTES, |host| host.bytes_read),
        (metrics::WRITTEN_BYTES, |host| host.bytes_written),
        (metrics::HOST_WIRE_SENT, |host| host.wire_sent_bytes),
        (metrics::HOST_WIRE_RECEIVED, |host| host.wire_received_bytes),
        (metrics::IN_FLIGHT, |host| host.in_flight),
        (metrics::ABANDONED, |host| host.abandoned),
    ];
    for (metric, value) in plain {
        page.family(metric);
        for host in hosts {
            page.of_host(host, &[], &value(host));
        }
    }
}

fn latencies(page: &mut Page, hosts: &[HostSnapshot]) {
    let latencies: [(Metric, HistogramOf); 2] = [
        (metrics::READ_LATENCY, |host| &host.read_latency),
        (metrics::WRITE_LATENCY, |host| &host.write_latency),
    ];
    for (metric, histogram) in latencies {
        page.family(metric);
        for host in hosts {
            page.histogram(&host_labels(host, &host.nsid.to_string()), histogram(host));
        }
    }
}

fn namespaces(page: &mut Page, namespaces: &[NamespaceSnapshot]) {
    let plain: [(Metric, Number<NamespaceCounters>); 20] = [
        (metrics::STORED, |counters| counters.stored_bytes),
        (metrics::TABLES, |counters| counters.table_bytes),
        (metrics::STORE_WIRE_SENT, |counters| {
            counters.store_wire_sent_bytes
        }),
        (metrics::STORE_WIRE_RECEIVED, |counters| {
            counters.store_wire_received_bytes
        }),
        (metrics::DELIVERED, |counters| counters.delivered_bytes),
        (metrics::COPIED, |counters| counters.copied_bytes),
        (metrics::STORE_WRITTEN, |counters| counters.written_bytes),
        (metrics::PARKED, |counters| counters.parked),
        (metrics::FETCHES, |counters| counters.frame_fetches),
        (metrics::DECODED, |counters| counters.frames_decoded),
        (metrics::DECODED_BY_WORKERS, |counters| {
            counters.frames_decoded_by_workers
        }),
        (metrics::JOINED, |counters| counters.joined_misses),
        (metrics::FRAME_HITS, |counters| counters.frame_hits),
        (metrics::CROSS_WANTS, |counters| {
            counters.cross_reactor_wants
        }),
        (metrics::PREFETCHED, |counters| counters.prefetched_bytes),
        (metrics::PREFETCH_HITS, |counters| {
            counters.prefetch_hit_bytes
        }),
        (metrics::PREFETCH_LATE, |counters| {
            counters.prefetch_late_bytes
        }),
        (metrics::PREFETCH_WASTED, |counters| {
            counters.prefetch_wasted_bytes
        }),
        (metrics::DAMAGED, |counters| counters.damaged_reads),
        (metrics::READ_AGAIN, |counters| counters.reads_again),
    ];
    for (metric, value) in plain {
        page.family(metric);
        for namespace in namespaces {
            page.of_namespace(namespace, &[], &value(&namespace.counters));
        }
    }
    page.family(metrics::STORE_OPERATIONS);
    for namespace in namespaces {
        page.of_namespace(namespace, &[], &namespace.store_operations);
    }
    page.family(metrics::DECODE_SECONDS);
    for (namespace, decoder) in decoders(namespaces) {
        page.of_namespace(
            namespace,
            &[("chain", &decoder.chain)],
            &seconds(decoder.busy_ns),
        );
    }
    page.family(metrics::DECODE_BYTES);
    for (namespace, decoder) in decoders(namespaces) {
        page.of_namespace(
            namespace,
            &[("chain", &decoder.chain)],
            &decoder.packed_bytes,
        );
    }
    page.family(metrics::DECODE_FRAMES);
    for (namespace, decoder) in decoders(namespaces) {
        page.of_namespace(namespace, &[("chain", &decoder.chain)], &decoder.frames);
    }
    page.family(metrics::TRANSFORM_SECONDS);
    for (namespace, it) in transforms(namespaces) {
        let labels = [("transform", &it.transform[..])];
        page.of_namespace(namespace, &labels, &seconds(it.busy_ns));
    }
    page.family(metrics::TRANSFORM_BYTES);
    for (namespace, it) in transforms(namespaces) {
        let labels = [("transform", &it.transform[..])];
        page.of_namespace(namespace, &labels, &it.bytes);
    }
}

fn of_daemon(page: &mut Page, daemon: &Daemon) {
    page.family(metrics::NAMESPACE);
    for it in &daemon.namespaces {
        let nsid = it.nsid.to_string();
        let labels = [
            ("subsystem", &it.subsystem[..]),
            ("nsid", &nsid[..]),
            ("uuid", &it.uuid[..]),
            ("source", &it.source[..]),
            ("kind", it.kind),
        ];
        page.sample("", &labels, &1);
    }
    page.family(metrics::HEALTH);
    for (code, is_there) in &daemon.health {
        page.sample("", &[("code", &code[..])], &u8::from(*is_there));
    }
    page.family(metrics::REFUSED);
    for (reason, count) in &daemon.refused {
        page.sample("", &[("reason", reason)], count);
    }
    page.family(metrics::REFUSED_CLIENTS);
    for (reason, count) in &daemon.refused_clients {
        page.sample("", &[("reason", reason)], count);
    }
    if let Some(seconds) = daemon.certificate_expiry {
        page.family(metrics::CERTIFICATE);
        page.sample("", &[], &seconds);
    }
}

fn decoders(
    namespaces: &[NamespaceSnapshot],
) -> impl Iterator<Item = (&NamespaceSnapshot, &DecodeSnapshot)> {
    namespaces.iter().flat_map(|namespace| {
        let decoders = namespace.decoders.iter();
        decoders.map(move |decoder| (namespace, decoder))
    })
}

fn transforms(
    namespaces: &[NamespaceSnapshot],
) -> impl Iterator<Item = (&NamespaceSnapshot, &TransformSnapshot)> {
    namespaces.iter().flat_map(|namespace| {
        let transforms = namespace.transforms.iter();
        transforms.map(move |transform| (namespace, transform))
    })
}

fn reactors(page: &mut Page, reactors: &[ReactorSnapshot]) {
    page.family(metrics::REACTOR);
    for reactor in reactors {
        page.of_reactor(reactor, &[("features", &reactor.features)], &1);
    }
    page.each_reactor(metrics::TURNS, reactors, |reactor| reactor.turns);
    for (metric, ns) in [
        (
            metrics::BUSY,
            (|reactor| reactor.busy_ns) as Number<ReactorSnapshot>,
        ),
        (metrics::IDLE, |reactor| reactor.idle_ns),
    ] {
        page.family(metric);
        for reactor in reactors {
            page.of_reactor(reactor, &[], &seconds(ns(reactor)));
        }
    }
    let plain: [(Metric, Number<ReactorSnapshot>); 12] = [
        (metrics::SLEEPS, |reactor| reactor.sleeps),
        (metrics::ENTERS, |reactor| reactor.enters),
        (metrics::SUBMITTED, |reactor| reactor.submitted),
        (metrics::COMPLETIONS, |reactor| reactor.completions),
        (metrics::CONNECTIONS, |reactor| reactor.connections),
        (metrics::WIRE_SENT, |reactor| reactor.wire_sent_bytes),
        (metrics::WIRE_RECEIVED, |reactor| {
            reactor.wire_received_bytes
        }),
        (metrics::WIRE_COPIED, |reactor| reactor.wire_copied_bytes),
        (metrics::CACHE_HITS, |reactor| reactor.cache_hits),
        (metrics::CACHE_MISSES, |reactor| reactor.cache_misses),
        (metrics::CACHE_EVICTIONS, |reactor| reactor.cache_evictions),
        (metrics::CACHE_USED, |reactor| reactor.cache_used_bytes),
    ];
    for (metric, value) in plain {
        page.each_reactor(metric, reactors, value);
    }
    pools(page, reactors);
}

fn pools(page: &mut Page, reactors: &[ReactorSnapshot]) {
    let plain: [(Metric, Number<PoolSnapshot>); 3] = [
        (metrics::POOL_USED, |pool| pool.used_bytes),
        (metrics::POOL_TOTAL, |pool| pool.total_bytes),
        (metrics::POOL_REFUSALS, |pool| pool.refusals),
    ];
    for (metric, value) in plain {
        page.family(metric);
        for reactor in reactors {
            let pools = [
                ("answers", &reactor.answers),
                ("incoming", &reactor.incoming),
                ("staging", &reactor.staging),
            ];
            for (name, pool) in pools {
                page.of_reactor(reactor, &[("pool", name)], &value(pool));
            }
        }
    }
}

/// A number of a row.
type Number<T> = fn(&T) -> u64;
type HistogramOf = fn(&HostSnapshot) -> &HistogramSnapshot;
type Labels<'a> = [(&'a str, &'a str)];

/// The text so far, and the family that is being written.
#[derive(Default)]
struct Page {
    text: String,
    family: &'static str,
}

impl Page {
    fn family(&mut self, metric: Metric) {
        let Metric { name, kind, help } = metric;
        self.family = name;
        // No help text holds a line break or a backslash.
        self.write(format_args!(
            "# HELP {name} {help}\n# TYPE {name} {}\n",
            kind.name()
        ));
    }

    fn sample(&mut self, suffix: &str, labels: &Labels<'_>, value: &dyn std::fmt::Display) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        for (index, (name, label)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.escaped(label);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    fn of_host(&mut self, host: &HostSnapshot, more: &Labels<'_>, value: &dyn std::fmt::Display) {
        let nsid = host.nsid.to_string();
        self.sample("", &[&host_labels(host, &nsid), more].concat(), value);
    }

    fn of_namespace(
        &mut self,
        namespace: &NamespaceSnapshot,
        more: &Labels<'_>,
        value: &dyn std::fmt::Display,
    ) {
        let names = [("uuid", &namespace.uuid[..]), ("name", &namespace.name[..])];
        self.sample("", &[&names, more].concat(), value);
    }

    fn of_reactor(
        &mut self,
        reactor: &ReactorSnapshot,
        more: &Labels<'_>,
        value: &dyn std::fmt::Display,
    ) {
        let number = reactor.reactor.to_string();
        self.sample("", &[&[("reactor", &number[..])], more].concat(), value);
    }

    fn each_reactor(
        &mut self,
        metric: Metric,
        reactors: &[ReactorSnapshot],
        value: impl Fn(&ReactorSnapshot) -> u64,
    ) {
        self.family(metric);
        for reactor in reactors {
            self.of_reactor(reactor, &[], &value(reactor));
        }
    }

    fn histogram(&mut self, labels: &Labels<'_>, histogram: &HistogramSnapshot) {
        for edge_ns in HistogramSnapshot::octave_edges_ns() {
            let edge = seconds(edge_ns);
            let labels = [labels, &[("le", &edge[..])]].concat();
            self.sample("_bucket", &labels, &histogram.at_most(edge_ns));
        }
        let labels_inf = [labels, &[("le", "+Inf")]].concat();
        self.sample("_bucket", &labels_inf, &histogram.count);
        self.sample("_sum", labels, &seconds(histogram.sum_ns));
        self.sample("_count", labels, &histogram.count);
    }

    fn escaped(&mut self, label: &str) {
        for character in label.chars() {
            match character {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                other => self.text.push(other),
            }
        }
    }

    fn write(&mut self, text: Arguments<'_>) {
        // A string takes everything.
        let _written = self.text.write_fmt(text);
    }
}

fn host_labels<'a>(host: &'a HostSnapshot, nsid: &'a str) -> [(&'a str, &'a str); 4] {
    [
        ("subsystem", &host.subsystem),
        ("host", &host.host),
        ("nsid", nsid),
        ("uuid", &host.uuid),
    ]
}

/// Exact: nine places.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests;
