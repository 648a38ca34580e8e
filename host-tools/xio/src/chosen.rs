//! What was tried and chosen, for people and as JSON.

use dataset::choose::rule;
use dataset::choose::{Access, Group, Trial, Wish};
use dataset::document;
use printout::size::{Size, grouped, rounded};
use printout::text_table::{Align, TextTable};
use serde_json::{Value, json};
use transforms::{ElementType, ValueRange};

use crate::figures::{bits_per_value, ratio, share};
use crate::pack::rounded_rate;

/// So many candidates are shown where not all are asked for.
const SHOWN: usize = 3;

/// What a group's elements are called: bytes that are no values have no type.
pub fn type_name(group: &Group) -> &'static str {
    if group.element == ElementType::U8 && !group.has_values {
        return "bytes";
    }
    group.element.name()
}

/// The smallest and the largest value, if they are values.
pub fn range(group: &Group) -> Option<ValueRange> {
    group.range.filter(|_| group.has_values)
}

/// `0..50,256`; nothing for floats and bytes.
pub fn range_text(range: Option<ValueRange>) -> String {
    range.map_or_else(String::new, |range| {
        format!("{}..{}", signed(range.min), signed(range.max))
    })
}

fn signed(value: i128) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let size = u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", grouped(size))
}

/// `u16+zstd:3, 64KiB`: the chain, with its frame where it has one.
pub fn chain_text(group: &Group) -> String {
    let Some(chosen) = group.chosen() else {
        return "none".to_owned();
    };
    match chosen.frame_bytes {
        0 => chosen.chain.to_string(),
        frame_bytes => format!("{}, {}", chosen.chain, Size(frame_bytes)),
    }
}

/// Bytes, marked where they are scaled from a sample.
pub fn about(bytes: u64, is_exact: bool) -> String {
    let mark = if is_exact { "" } else { "~" };
    format!("{mark}{}", grouped(bytes))
}

/// What was tried on a group, the best first, and why that it is: all of it, or the best of it.
pub fn explained(group: &Group, wish: &Wish, all: bool) -> String {
    let mut columns = vec![
        ("chain", Align::Left),
        ("frame", Align::Right),
        ("ratio", Align::Right),
        ("bits/value", Align::Right),
        ("read cost", Align::Right),
        ("weighed", Align::Right),
        ("encode/s", Align::Right),
        ("decode/s", Align::Right),
    ];
    let sample = match wish.access {
        Access::Random { sample_bytes } => Some(sample_bytes),
        Access::Sequential => None,
    };
    let heading = sample.map(|bytes| format!("fetched for {}", Size(bytes)));
    if let Some(heading) = &heading {
        columns.push((heading, Align::Right));
    }
    let mut table = TextTable::new(&columns);
    let shown = if all { usize::MAX } else { SHOWN };
    for trial in group.trials.iter().take(shown) {
        table.row(row(group, trial, wish, sample));
    }
    let more = match group.trials.len().saturating_sub(shown) {
        0 => String::new(),
        more => format!("{more} more were tried: --explain shows all\n"),
    };
    let many = if group.runs.len() == 1 { "run" } else { "runs" };
    let values = match range_text(range(group)) {
        text if text.is_empty() => String::new(),
        text => format!(", {text}"),
    };
    format!(
        "{}: {} {many} of {}, {} bytes{values}; tried on {} of them ({})\n{}{more}{}{}\n",
        group.kind,
        grouped(group.runs.len() as u64),
        type_name(group),
        grouped(group.bytes),
        grouped(group.sampled_bytes),
        share(group.sampled_bytes, group.bytes),
        table.render(),
        why(group, wish),
        outlier(group),
    )
}

fn row(group: &Group, trial: &Trial, wish: &Wish, sample: Option<u64>) -> Vec<String> {
    let elements = trial.source_bytes / group.element.bytes() as u64;
    let stored_bytes = trial.stored_bytes + trial.table_bytes;
    let frame = match trial.frame_bytes {
        0 => "-".to_owned(),
        bytes => Size(bytes).to_string(),
    };
    let mut row = vec![
        trial.chain.to_string(),
        frame,
        ratio(trial.source_bytes, stored_bytes),
        bits_per_value(stored_bytes, elements),
        hundredths(trial.read_hundredths()),
        hundredths(rule::hundredths(trial, wish)),
        rounded_rate(trial.source_bytes, trial.encode_seconds),
        rounded_rate(trial.source_bytes, trial.decode_seconds),
    ];
    row.extend(sample.map(|bytes| rounded(trial.fetched_bytes(bytes))));
    row
}

fn hundredths(value: u64) -> String {
    format!("{}.{:02}", value / 100, value % 100)
}

/// What a value has kept from being tried; nothing where there is no such value, or a chain was named.
fn outlier(group: &Group) -> String {
    let Some(outlier) = group.outlier.filter(|_| !group.is_said) else {
        return String::new();
    };
    let text = range_text(Some(outlier.others));
    format!(
        "\nbut for the value {}, narrower chains could be tried (of what was tried the others are {text}): where it stands for none, as padding does, another one that is near them makes the data smaller",
        signed(outlier.value)
    )
}

fn why(group: &Group, wish: &Wish) -> String {
    let Some(chosen) = group.chosen() else {
        return String::new();
    };
    if group.is_said {
        return format!("{} because --store-as or --store says so", chosen.chain);
    }
    let weight = wish.prefer.weight();
    format!(
        "{} because it weighs least: stored bytes count {} times a copied one (--prefer {}), work to read and to pack as --help says",
        chosen.chain,
        grouped(weight.into()),
        wish.prefer.name(),
    )
}

/// A group, and with `explain` all that was tried.
pub fn to_json(group: &Group, wish: &Wish, explain: bool) -> Value {
    let mut json = json!({
        "kind": group.kind,
        "type": type_name(group),
        "runs": group.runs.len(),
        "elements": group.bytes / group.element.bytes() as u64,
        "range": document::range(range(group)),
        "source_bytes": group.bytes,
        "stored_bytes": group.stored_bytes(group.bytes),
        "exact": group.is_exact(),
        "stored_chain": group.chosen().map(|it| it.chain.to_string()),
        "frame_bytes": group.chosen().map(|it| it.frame_bytes),
        "chosen": !group.is_said,
        "sampled_bytes": group.sampled_bytes,
        "outlier": group.outlier.map(|it| json!({
            "value": it.value.to_string(),
            "others": document::range(Some(it.others)),
        })),
    });
    if let (true, Some(members)) = (explain, json.as_object_mut()) {
        let trials = group.trials.iter().map(|trial| trial_json(trial, wish));
        members.insert("tried".to_owned(), trials.collect());
    }
    json
}

fn trial_json(trial: &Trial, wish: &Wish) -> Value {
    let fetched = match wish.access {
        Access::Random { sample_bytes } => Some(trial.fetched_bytes(sample_bytes)),
        Access::Sequential => None,
    };
    json!({
        "stored_chain": trial.chain.to_string(),
        "frame_bytes": trial.frame_bytes,
        "source_bytes": trial.source_bytes,
        "stored_bytes": trial.stored_bytes,
        "tables_bytes": trial.table_bytes,
        "read_cost_hundredths": trial.read_hundredths(),
        "weighed_hundredths": rule::hundredths(trial, wish),
        "encode_seconds": trial.encode_seconds,
        "decode_seconds": trial.decode_seconds,
        "fetched_bytes_per_sample": fetched,
    })
}
