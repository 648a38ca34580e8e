//! `snapctl stat --prefetch`: what was fetched before anybody asked for it, and what became of it.

use admin_proto::v1;
use printout::size::grouped;
use printout::text_table::{Align, TextTable};

use super::{attached, bytes, dash, head, names};
use crate::rates::Rates;

/// By namespace, after a heading.
pub fn tables(rates: &Rates) -> String {
    let mut table = begun([
        "fetched/s",
        "in time/s",
        "late/s",
        "wasted/s",
        "in the cache",
    ]);
    for row in &rates.namespaces {
        let cells = match &row.prefetch {
            Some(ahead) => [
                bytes(ahead.fetched_bytes_per_second),
                bytes(ahead.hit_bytes_per_second),
                bytes(ahead.late_bytes_per_second),
                bytes(ahead.wasted_bytes_per_second),
                grouped(ahead.kept_bytes),
            ],
            None => [(); 5].map(|()| dash()),
        };
        let names = names(&row.subsystem_nqn, row.nsid, &row.namespace_uuid);
        table.row(names.into_iter().chain(cells));
    }
    [head(rates), table.render()].join("\n")
}

/// By namespace, since the daemon's start, to the byte.
pub fn totals_table(snapshot: &v1::StatsSnapshot) -> String {
    let mut table = begun(["fetched", "in time", "late", "wasted", "in the cache"]);
    for row in attached(snapshot) {
        let cells = match &row.prefetch {
            Some(ahead) => [
                ahead.fetched_bytes,
                ahead.hit_bytes,
                ahead.late_bytes,
                ahead.wasted_bytes,
                ahead.kept_bytes,
            ]
            .map(grouped),
            None => [(); 5].map(|()| dash()),
        };
        let names = names(&row.subsystem_nqn, row.nsid, &row.namespace_uuid);
        table.row(names.into_iter().chain(cells));
    }
    table.render()
}

fn begun(cells: [&'static str; 5]) -> TextTable {
    let names = [
        ("subsystem", Align::Left),
        ("nsid", Align::Right),
        ("disk", Align::Left),
    ];
    let cells = cells.map(|cell| (cell, Align::Right));
    TextTable::new(&[&names[..], &cells[..]].concat())
}
