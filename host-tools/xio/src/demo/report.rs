//! The demo's table.

use std::time::Duration;

use serde_json::{Value, json};

use super::Packed;
use super::measure::Measured;
use super::rows::Data;
use super::target::{CACHE, NQN};
use crate::figures::{bits_per_value, ratio};
use printout::size::grouped;
use printout::text_table::{Align, TextTable};

/// One way to store one file.
pub struct Row {
    /// The file.
    pub data: &'static Data,
    /// How it is stored.
    pub stored_chain: String,
    /// Where the first differing byte was, if there was one in any reading.
    pub first_difference: Option<u64>,
    source_bytes: u64,
    elements: u64,
    stored_bytes: u64,
    volume_bytes: u64,
    wire_bytes: u64,
    delivered_bytes: u64,
    read_time: Duration,
    readings: usize,
    pack_time: Duration,
}

impl Row {
    /// What packing and reading gave.
    pub fn new(data: &'static Data, packed: &Packed, measured: &Measured) -> Row {
        Row {
            data,
            stored_chain: packed.stored_chain.clone(),
            first_difference: measured.differing.first().copied(),
            source_bytes: packed.source_bytes,
            elements: packed.elements,
            stored_bytes: packed.stored_bytes,
            volume_bytes: packed.volume_bytes,
            wire_bytes: measured.wire_bytes,
            delivered_bytes: measured.delivered_bytes,
            read_time: measured.median(),
            readings: measured.times.len(),
            pack_time: packed.took,
        }
    }

    /// What the values need without compression.
    fn baseline_bytes(&self) -> u64 {
        (self.elements * self.data.baseline_bits).div_ceil(8)
    }

    /// The volume file, tables and checksums included, is larger than the baseline.
    fn loses(&self) -> bool {
        self.volume_bytes > self.baseline_bytes()
    }
}

/// The table, what its columns mean, and how a host is given such a disk.
pub fn to_text(rows: &[Row], took: Duration) -> String {
    let mut table = TextTable::new(&[
        ("data", Align::Left),
        ("stored as", Align::Left),
        ("presents", Align::Left),
        ("bits/value", Align::Right),
        ("stored", Align::Right),
        ("wire", Align::Right),
        ("delivered", Align::Right),
        ("vs source", Align::Right),
        ("vs baseline", Align::Right),
        ("", Align::Left),
        ("read GB/s", Align::Right),
        ("bytes", Align::Left),
    ]);
    for row in rows {
        table.row([
            row.data.title.to_owned(),
            row.stored_chain.clone(),
            row.data.element_type.to_string(),
            bits_per_value(row.stored_bytes, row.elements),
            grouped(row.volume_bytes),
            grouped(row.wire_bytes),
            grouped(row.delivered_bytes),
            ratio(row.source_bytes, row.volume_bytes),
            ratio(row.baseline_bytes(), row.volume_bytes),
            (if row.loses() { "loses" } else { "" }).to_owned(),
            gigabytes_per_second(row.delivered_bytes, row.read_time),
            match row.first_difference {
                None => "same".to_owned(),
                Some(at) => format!("DIFFER at {at}"),
            },
        ]);
    }
    let baselines: Vec<String> = super::DATA
        .iter()
        .map(|data| format!("{} bits for {}", data.baseline_bits, data.title))
        .collect();
    let readings: usize = rows.iter().map(|row| row.readings).sum();
    let same = rows
        .iter()
        .filter(|row| row.first_difference.is_none())
        .count();
    format!(
        "
The same kinds of values stored in {count} ways, each a namespace of bare values without a file system.

{table}
{same} of {count} namespaces: every byte the same as the source's, in {readings} readings over NVMe/TCP; all in {seconds:.1} s.
bits/value: of the values alone. stored: bytes of the volume file, its tables and checksums included: here some 70 KB beside the values,
      most of which every volume has, so that it weighs more on these small files than on large ones.
vs source: how many times smaller than the source file the volume file is. vs baseline: than plain packing without compression,
      without tables and checksums, which is {baselines}; loses: larger than that.
wire: bytes that the host received, PDU headers included. Presented bytes travel unpacked: packing saves storage here, not network.
read: median over whole namespaces, under 2 MB and a few milliseconds each, on one loopback connection to one target thread whose
      cache of {CACHE} holds less than all frames, so that they are decoded each time. A first impression, not a benchmark.

To give the folder to a real host, on this machine:
  xio pack fixtures/dataset --present-as source,f16 -o dataset.xio
  snap-target dataset.xio --listen 0.0.0.0:4420 --nqn {NQN}
and on the host, with this machine's address:
  nvme connect -t tcp -a ADDRESS -s 4420 -n {NQN}
  mount -t erofs -o ro /dev/nvme0n1 /mnt
",
        table = table.render(),
        count = rows.len(),
        seconds = took.as_secs_f64(),
        baselines = baselines.join(", "),
    )
}

/// The rows, for programs.
pub fn to_json(rows: &[Row]) -> Value {
    let rows = rows.iter().map(|row| {
        json!({
            "data": row.data.file,
            "presented_type": row.data.element_type.name(),
            "stored_chain": row.stored_chain,
            "elements": row.elements,
            "source_bytes": row.source_bytes,
            "stored_bytes": row.stored_bytes,
            "volume_bytes": row.volume_bytes,
            "wire_bytes": row.wire_bytes,
            "delivered_bytes": row.delivered_bytes,
            "baseline_bits": row.data.baseline_bits,
            "baseline_bytes": row.baseline_bytes(),
            "read_seconds_median": row.read_time.as_secs_f64(),
            "pack_seconds": row.pack_time.as_secs_f64(),
            "readings": row.readings,
            "first_difference": row.first_difference,
        })
    });
    rows.collect()
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn gigabytes_per_second(bytes: u64, time: Duration) -> String {
    if time.is_zero() {
        return "-".to_owned();
    }
    format!("{:.2}", bytes as f64 / time.as_secs_f64() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_volume_file() {
        let row = Row {
            data: &super::super::DATA[0],
            stored_chain: "u16".to_owned(),
            first_difference: None,
            source_bytes: 4_000,
            elements: 1_000,
            stored_bytes: 2_000,
            volume_bytes: 2_500,
            wire_bytes: 4_120,
            delivered_bytes: 4_096,
            read_time: Duration::from_micros(1),
            readings: 1,
            pack_time: Duration::ZERO,
        };
        let text = to_text(&[row], Duration::ZERO);
        let shown = text.lines().find(|line| line.contains(" u16 ")).unwrap();
        let cells: Vec<&str> = shown.split_whitespace().collect();
        // 1,000 values of 16 bits are the baseline: the file's 500 bytes of tables make it lose.
        let end = [
            "u16", "u32", "16.00", "2,500", "4,120", "4,096", "1.60", "0.80", "loses", "4.10",
            "same",
        ];
        assert!(cells.ends_with(&end), "{shown}");
    }
}
