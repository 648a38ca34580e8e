//! The table of the folder's files.

use serde_json::{Value, json};
use transforms::ElementType;

use super::{DISKS, Outcome, Row, SAMPLE_BYTES, SAMPLES, Way};
use crate::figures::ratio;
use printout::size::{grouped, rounded};
use printout::text_table::{Align, TextTable};

/// The table, and what each of its rows shows.
pub fn to_text(outcome: &Outcome) -> String {
    let mut table = TextTable::new(&[
        ("disk", Align::Left),
        ("file", Align::Left),
        ("presents", Align::Left),
        ("bytes", Align::Right),
        ("stored as", Align::Left),
        ("stored", Align::Right),
        ("ratio", Align::Right),
        ("read", Align::Left),
        ("plain file", Align::Right),
        ("fetched", Align::Right),
        ("", Align::Left),
        ("wire", Align::Right),
        ("compared", Align::Left),
    ]);
    for row in &outcome.rows {
        table.row(cells(row));
    }
    let [dataset, samples] = DISKS.each_ref().map(|disk| disk.command());
    let rounding = &outcome.rounding;
    format!(
        "\
A folder as a disk. fixtures/dataset has what a trainer has: o200k token ids as a Megatron pair, weights in bf16, embeddings in f32. Its files are found through
the disk's file system and read over NVMe/TCP; what is stored how, xio chose.
  {dataset}
  {samples}

{table}
bytes: of the file. stored: of its values. wire: what the host received for one reading. fetched: what was read of the volume file for it, with nothing cached; plain file:
      the blocks of 4 KiB that the same reading takes of a plain file; loses: more is fetched than that.
tokens/o200k.bin and .idx, whole: Megatron gets the int32 that it wrote, index and all; the store holds less than half of it.
{SAMPLES} samples: sequences of 4,096 ids, anywhere in the file. Compressed frames are fetched whole, so a small reading fetches more than it uses. The disk samples was packed
      for such readings (--access random): 18 bits an id and no frames, larger as a whole, less for each reading.
model.safetensors: every bit of the weights is kept. Their exponents compress, the rest is noise.
embeddings.npy: f32 is noise in so many bits that no chain saves enough to be worth its work: stored as it is, nothing saved. The directory f16 presents the same stored
      values as f16: half of the bytes on the wire and in the host's memory, rounded. Of {elements} values the largest error is {largest:.2e}, the RMS error {rms:.2e}; {saturated} became infinite, {nans} are
      NaN. Each value is the nearest that f16 has, and the disk's /.xio/manifest.json says the same of the errors.
",
        table = table.render(),
        elements = grouped(rounding.elements),
        largest = rounding.largest_error,
        rms = rounding.rms_error,
        saturated = rounding.saturated,
        nans = rounding.nans,
    )
}

fn cells(row: &Row) -> [String; 13] {
    let stored = row.stored_bytes;
    [
        row.plan.volume().trim_end_matches(".xio").to_owned(),
        row.plan.path.to_owned(),
        presents(row).to_string(),
        grouped(row.presented_bytes),
        row.stored_chain.clone(),
        stored.map_or_else(dash, grouped),
        stored.map_or_else(dash, |bytes| ratio(row.presented_bytes, bytes)),
        match row.plan.way {
            Way::Samples => format!("{SAMPLES} x {}", rounded(SAMPLE_BYTES as u64)),
            Way::Whole | Way::Rounded => "whole".to_owned(),
        },
        grouped(row.plain_bytes),
        grouped(row.fetched_bytes),
        (if row.loses() { "loses" } else { "" }).to_owned(),
        grouped(row.wire_bytes),
        match (row.first_difference, row.plan.way) {
            (Some(at), _) => format!("DIFFERS at {at}"),
            (None, Way::Rounded) => "nearest f16".to_owned(),
            (None, Way::Whole | Way::Samples) => "same bytes".to_owned(),
        },
    ]
}

fn dash() -> String {
    "-".to_owned()
}

fn presents(row: &Row) -> ElementType {
    match row.plan.way {
        Way::Rounded => ElementType::F16,
        Way::Whole | Way::Samples => row.plan.stored,
    }
}

/// All of it, for programs.
pub fn to_json(outcome: &Outcome) -> Value {
    let reads = outcome.rows.iter().map(|row| {
        let (readings, reading_bytes) = match row.plan.way {
            Way::Samples => (SAMPLES, SAMPLE_BYTES as u64),
            Way::Whole | Way::Rounded => (1, row.presented_bytes),
        };
        json!({
            "disk": row.plan.volume(),
            "file": row.plan.path,
            "presented_type": presents(row).name(),
            "presented_bytes": row.presented_bytes,
            "stored_type": row.plan.stored.name(),
            "stored_chain": row.stored_chain,
            "stored_bytes": row.stored_bytes,
            "readings": readings,
            "reading_bytes": reading_bytes,
            "plain_bytes": row.plain_bytes,
            "fetched_bytes": row.fetched_bytes,
            "wire_bytes": row.wire_bytes,
            "first_difference": row.first_difference,
        })
    });
    json!({
        "commands": DISKS.each_ref().map(|disk| disk.command()),
        "reads": reads.collect::<Vec<_>>(),
        "rounding": outcome.rounding.to_json(),
    })
}
