//! The text is read back by a parser of its own, written from the format's description.

use std::collections::{BTreeMap, BTreeSet};

use super::{Attached, Daemon, Latency};
use crate::metrics::{self, MetricKind};
use crate::{CommandKind, Ended, StatusClass, Telemetry, TelemetryConfig};

/// What a page holds, by metric: its type, and its samples by name and labels.
type Page = BTreeMap<String, (String, BTreeMap<Series, String>)>;
type Series = (String, BTreeMap<String, String>);

fn parse(text: &str) -> Page {
    let mut page = Page::new();
    let mut helped = BTreeSet::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(
                !words.is_empty() && helped.insert(name.to_owned()),
                "{line}"
            );
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(helped.contains(name), "help comes before the type: {line}");
            let new = page.insert(name.to_owned(), (kind.to_owned(), BTreeMap::new()));
            assert!(new.is_none(), "a metric's samples stand together: {line}");
            family = name.to_owned();
        } else {
            let (series, value) = sample(line);
            assert!(series.0.starts_with(&family), "{line}");
            let samples = &mut page.get_mut(&family).unwrap().1;
            assert!(samples.insert(series, value).is_none(), "twice: {line}");
        }
    }
    page
}

fn sample(line: &str) -> (Series, String) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    while let Some(inside) = rest.strip_prefix(['{', ',']) {
        let (label, after) = inside.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().unwrap() {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
        rest = after[end..].strip_prefix('}').unwrap_or(&after[end..]);
    }
    let value = rest.strip_prefix(' ').unwrap();
    assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
    ((name.to_owned(), labels), value.to_owned())
}

const ODD_HOST: &str = "nqn.\"odd\"\\\nhost";

fn daemon() -> Daemon {
    Daemon {
        namespaces: vec![Attached {
            subsystem: "nqn.s".to_owned(),
            nsid: 3,
            uuid: "07070707-0707-0707-0707-070707070707".to_owned(),
            source: "file:/a".to_owned(),
            kind: "raw",
        }],
        health: vec![("listener".to_owned(), true)],
        refused: vec![("limit", 4)],
        refused_clients: vec![("expired", 5)],
        certificate_expiry: Some(4_948_880_868),
    }
}

#[test]
fn what_the_daemon_knows_joins_the_counters() {
    let page = page();
    let disk = [
        ("subsystem", "nqn.s"),
        ("nsid", "3"),
        ("uuid", "07070707-0707-0707-0707-070707070707"),
        ("source", "file:/a"),
        ("kind", "raw"),
    ];
    assert_eq!(value(&page, "xio_namespace_info", "", &disk), "1");
    assert_eq!(value(&page, "xio_health", "", &[("code", "listener")]), "1");
    let limit = [("reason", "limit")];
    assert_eq!(value(&page, "xio_hosts_refused_total", "", &limit), "4");
    let expired = [("reason", "expired")];
    assert_eq!(
        value(&page, "xio_admin_clients_refused_total", "", &expired),
        "5"
    );
    let expiry = "xio_admin_certificate_expiry_timestamp_seconds";
    assert_eq!(value(&page, expiry, "", &[]), "4948880868");
    let telemetry = Telemetry::new(&TelemetryConfig::default());
    let plain = super::render(&telemetry.snapshot(), &Daemon::default(), Latency::Whole);
    assert!(!plain.contains(expiry), "without TLS there is none");
    let lines = |latency| super::render(&telemetry.snapshot(), &daemon(), latency);
    assert!(lines(Latency::Whole).contains("_latency_seconds"));
    assert!(!lines(Latency::LeftOut).contains("_latency_seconds"));
}

fn page() -> Page {
    let telemetry = Telemetry::new(&TelemetryConfig::default());
    let reactor = telemetry.reactor(0).unwrap();
    let row = reactor.host("nqn.s", ODD_HOST, 3, [7; 16]);
    for ns in [1_000, 1_024, 1_025, 5_000_000, u64::from(u32::MAX) * 32] {
        row.begun();
        row.ended(&Ended {
            kind: CommandKind::Read,
            error: None,
            bytes: 512,
            ns,
            at_ns: 1,
        });
    }
    row.begun();
    row.ended(&Ended {
        kind: CommandKind::Compare,
        error: Some(StatusClass::Media),
        bytes: 0,
        ns: 1,
        at_ns: 1,
    });
    let namespace = reactor.namespace([0xAB; 16], "file:/a");
    namespace.stored_bytes.add(7);
    namespace.decoder("u16+lz4").decoded(65_536, 1_500_000_001);
    namespace.transform("lz4").undone(65_536, 250_000_001);
    reactor.counters.busy_ns.set(2_000_000_003);
    reactor.counters.staging.used_bytes.set(11);
    parse(&super::render(
        &telemetry.snapshot(),
        &daemon(),
        Latency::Whole,
    ))
}

fn value<'a>(page: &'a Page, family: &str, suffix: &str, labels: &[(&str, &str)]) -> &'a str {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    &page[family].1[&(format!("{family}{suffix}"), labels)]
}

#[test]
fn every_metric_is_there_with_its_type_and_no_other() {
    let page = page();
    let names: BTreeSet<&str> = page.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        metrics::ALL.iter().map(|metric| metric.name).collect()
    );
    for metric in metrics::ALL {
        let (kind, samples) = &page[metric.name];
        assert_eq!(kind, metric.kind.name());
        assert!(!samples.is_empty(), "{} has no sample", metric.name);
        let is_total = metric.name.ends_with("_total");
        assert_eq!(
            is_total,
            metric.kind == MetricKind::Counter,
            "{}",
            metric.name
        );
    }
}

#[test]
fn values_come_back_under_their_labels() {
    let page = page();
    let host = [
        ("subsystem", "nqn.s"),
        ("host", ODD_HOST),
        ("nsid", "3"),
        ("uuid", "07070707-0707-0707-0707-070707070707"),
    ];
    let of_kind = |kind| [&host[..], &[("kind", kind)]].concat();
    assert_eq!(
        value(&page, "xio_commands_total", "", &of_kind("read")),
        "5"
    );
    assert_eq!(
        value(&page, "xio_commands_total", "", &of_kind("compare")),
        "1"
    );
    assert_eq!(
        value(&page, "xio_commands_total", "", &of_kind("write")),
        "0"
    );
    let media = [&host[..], &[("class", "media")]].concat();
    assert_eq!(value(&page, "xio_command_errors_total", "", &media), "1");
    assert_eq!(value(&page, "xio_read_bytes_total", "", &host), "2560");
    let namespace = [
        ("uuid", "abababab-abab-abab-abab-abababababab"),
        ("name", "file:/a"),
    ];
    let chain = [&namespace[..], &[("chain", "u16+lz4")]].concat();
    assert_eq!(
        value(&page, "xio_decode_seconds_total", "", &chain),
        "1.500000001"
    );
    let transform = [&namespace[..], &[("transform", "lz4")]].concat();
    let of_transform = |metric| value(&page, metric, "", &transform);
    assert_eq!(of_transform("xio_transform_seconds_total"), "0.250000001");
    assert_eq!(of_transform("xio_transform_bytes_total"), "65536");
    assert_eq!(
        value(&page, "xio_namespace_stored_bytes_total", "", &namespace),
        "7"
    );
    let reactor = [("reactor", "0")];
    assert_eq!(
        value(&page, "xio_reactor_busy_seconds_total", "", &reactor),
        "2.000000003"
    );
    let staging = [("reactor", "0"), ("pool", "staging")];
    assert_eq!(
        value(&page, "xio_reactor_pool_used_bytes", "", &staging),
        "11"
    );
}

#[test]
fn a_histogram_is_cumulative_and_ends_with_everything() {
    let page = page();
    let host = [
        ("subsystem", "nqn.s"),
        ("host", ODD_HOST),
        ("nsid", "3"),
        ("uuid", "07070707-0707-0707-0707-070707070707"),
    ];
    let family = "xio_read_latency_seconds";
    let mut buckets: Vec<(f64, u64)> = page[family]
        .1
        .iter()
        .filter(|((name, _), _)| name.ends_with("_bucket"))
        .map(|((_, labels), count)| (labels["le"].parse().unwrap(), count.parse().unwrap()))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets.is_sorted_by_key(|(_, count)| *count));
    assert_eq!(buckets[0], (0.000_001_024, 2));
    assert_eq!(buckets[1], (0.000_002_048, 3));
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, 5)));
    // 5 ms lie below 2^23 ns, and 137 s above every edge but the last.
    assert_eq!(buckets[13], (0.008_388_608, 4));
    assert_eq!(buckets[buckets.len() - 2].1, 4);
    assert_eq!(value(&page, family, "_count", &host), "5");
    assert_eq!(value(&page, family, "_sum", &host), "137.443956489");
}

/// Metrics of the tables of docs/metrics.md: name and type.
fn documented() -> BTreeMap<String, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `xio_")?.split('|').map(str::trim);
        let name = cells.next()?.strip_suffix('`')?;
        Some((format!("xio_{name}"), cells.next()?.to_owned()))
    });
    rows.collect()
}

#[test]
fn the_document_has_the_same_metrics() {
    let coded: BTreeMap<String, String> = metrics::ALL
        .iter()
        .map(|metric| (metric.name.to_owned(), metric.kind.name().to_owned()))
        .collect();
    assert_eq!(documented(), coded);
}
