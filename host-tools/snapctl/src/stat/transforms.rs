//! `snapctl stat --transforms`: what decoding took.

use admin_proto::v1;
use printout::size::rounded;
use printout::text_table::{Align, TextTable};

use super::{bytes, dash, decimal, disk, head, latency};
use crate::rates::Rates;
use crate::text;

/// By namespace and transform, after a heading.
pub fn tables(rates: &Rates) -> String {
    let mut table = begun(["made/s", "cores", "each core"]);
    for namespace in &rates.namespaces {
        for row in &namespace.transforms {
            table.row([
                text::or_dash(&namespace.subsystem_nqn),
                namespace.nsid.to_string(),
                disk(&namespace.namespace_uuid),
                row.transform.clone(),
                bytes(row.bytes_per_second),
                decimal(row.cores),
                row.bytes_per_core_second.map_or_else(dash, each_core),
            ]);
        }
    }
    [head(rates), table.render()].join("\n")
}

/// By namespace and transform, since the daemon's start.
pub fn totals_table(snapshot: &v1::StatsSnapshot) -> String {
    let mut table = begun(["made", "time", "each core"]);
    for namespace in &snapshot.namespaces {
        for row in &namespace.transforms {
            let a_second = u128::from(row.bytes) * 1_000_000_000;
            let each = a_second.checked_div(row.undo_ns.into());
            let each = each.map(|each| u64::try_from(each).unwrap_or(u64::MAX));
            table.row([
                text::or_dash(&namespace.subsystem_nqn),
                namespace.nsid.to_string(),
                disk(&namespace.namespace_uuid),
                row.transform.clone(),
                rounded(row.bytes),
                latency(Some(row.undo_ns)),
                each.map_or_else(dash, |each| format!("{}/s", rounded(each))),
            ]);
        }
    }
    table.render()
}

fn each_core(rate: f64) -> String {
    format!("{}/s", bytes(rate))
}

fn begun([made, time, each_core]: [&'static str; 3]) -> TextTable {
    TextTable::new(&[
        ("subsystem", Align::Left),
        ("nsid", Align::Right),
        ("disk", Align::Left),
        ("transform", Align::Left),
        (made, Align::Right),
        (time, Align::Right),
        (each_core, Align::Right),
    ])
}
