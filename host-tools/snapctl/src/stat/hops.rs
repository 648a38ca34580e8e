//! `snapctl stat --hops`: bytes from the store to the host, hop by hop.

use admin_proto::v1;
use printout::size::grouped;
use printout::text_table::{Align, TextTable};

use super::{attached, bytes, head, names};
use crate::rates::Rates;

/// By namespace, after a heading.
pub fn tables(rates: &Rates) -> String {
    let mut table = begun([
        "stored/s",
        "tables/s",
        "from store/s",
        "to store/s",
        "delivered/s",
        "to host/s",
        "from host/s",
    ]);
    for row in &rates.namespaces {
        let hops = [
            row.stored_bytes_per_second,
            row.table_bytes_per_second,
            row.store_wire_received_bytes_per_second,
            row.store_wire_sent_bytes_per_second,
            row.delivered_bytes_per_second,
            row.host_wire_sent_bytes_per_second,
            row.host_wire_received_bytes_per_second,
        ];
        let names = names(&row.subsystem_nqn, row.nsid, &row.namespace_uuid);
        table.row(names.into_iter().chain(hops.map(bytes)));
    }
    [head(rates), table.render()].join("\n")
}

/// By namespace, since the daemon's start, to the byte.
pub fn totals_table(snapshot: &v1::StatsSnapshot) -> String {
    let mut table = begun([
        "stored",
        "tables",
        "from store",
        "to store",
        "delivered",
        "to host",
        "from host",
    ]);
    for row in attached(snapshot) {
        let store = row.store_wire.unwrap_or_default();
        let host = row.host_wire.unwrap_or_default();
        let hops = [
            row.stored_bytes,
            row.table_bytes,
            store.received_bytes,
            store.sent_bytes,
            row.delivered_bytes,
            host.sent_bytes,
            host.received_bytes,
        ];
        let names = names(&row.subsystem_nqn, row.nsid, &row.namespace_uuid);
        table.row(names.into_iter().chain(hops.map(grouped)));
    }
    table.render()
}

fn begun(hops: [&'static str; 7]) -> TextTable {
    let names = [
        ("subsystem", Align::Left),
        ("nsid", Align::Right),
        ("disk", Align::Left),
    ];
    let hops = hops.map(|hop| (hop, Align::Right));
    TextTable::new(&[&names[..], &hops[..]].concat())
}
