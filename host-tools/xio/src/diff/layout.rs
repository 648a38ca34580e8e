//! How two volumes store what they present.

use anyhow::anyhow;
use printout::size::grouped;
use printout::text_table::{Align, TextTable};
use serde_json::{Value, json};
use volume::Volume;
use volume::format::Stream;

use super::side::Side;
use crate::failure::Failure;
use crate::medium::Source;

/// The streams of both, by their numbers.
pub struct Layouts {
    volumes: [Total; 2],
    streams: Vec<[Option<Stored>; 2]>,
}

#[derive(PartialEq, Eq)]
struct Total {
    lba_bytes: u32,
    volume_bytes: u64,
}

#[derive(PartialEq, Eq)]
struct Stored {
    element: &'static str,
    chain: String,
    elements: u64,
    stored_bytes: u64,
    is_covered: bool,
}

impl Stored {
    fn of(stream: &Stream) -> Stored {
        Stored {
            element: stream.element_type().name(),
            chain: stream.chain.to_string(),
            elements: stream.elements,
            stored_bytes: stream.stored_bytes,
            is_covered: stream.is_covered(),
        }
    }

    fn integrity(&self) -> &'static str {
        if self.is_covered { "crc32c" } else { "none" }
    }

    fn to_json(&self) -> Value {
        json!({
            "type": self.element,
            "stored_chain": self.chain,
            "elements": self.elements,
            "stored_bytes": self.stored_bytes,
            "integrity": self.integrity(),
        })
    }
}

/// Compares the streams of two volumes.
pub fn compare(a: &Side, b: &Side) -> Result<Layouts, Failure> {
    let volume_of = |side: &Side| match side {
        Side::Source(_, Source::Volume(volume)) => Ok(volume.volume().clone()),
        _ => {
            let name = side.name();
            let why = "--layout is for volumes in files";
            Err(Failure::usage(anyhow!(
                "{name} does not say how it is stored: {why}"
            )))
        }
    };
    let (a, b) = (volume_of(a)?, volume_of(b)?);
    let total = |volume: &Volume| Total {
        lba_bytes: volume.lba_bytes(),
        volume_bytes: volume.superblock().volume_bytes,
    };
    let (in_a, in_b) = (a.streams(), b.streams());
    let streams = (0..in_a.len().max(in_b.len())).map(|index| {
        [
            in_a.get(index).map(Stored::of),
            in_b.get(index).map(Stored::of),
        ]
    });
    Ok(Layouts {
        volumes: [total(&a), total(&b)],
        streams: streams.collect(),
    })
}

impl Layouts {
    /// Whether anything is stored in another way.
    pub fn differ(&self) -> bool {
        let [a, b] = &self.volumes;
        a != b || self.streams.iter().any(|[a, b]| a != b)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let side = |index: usize| {
            let streams = self.streams.iter().filter_map(|pair| pair.get(index));
            let streams = streams.flatten().map(Stored::to_json);
            self.volumes.get(index).map(|total| {
                json!({
                    "lba_bytes": total.lba_bytes,
                    "volume_bytes": total.volume_bytes,
                    "streams": streams.collect::<Vec<_>>(),
                })
            })
        };
        json!({ "same": !self.differ(), "a": side(0), "b": side(1) })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut table = TextTable::new(&[
            ("stream", Align::Right),
            ("in", Align::Left),
            ("type", Align::Left),
            ("stored as", Align::Left),
            ("elements", Align::Right),
            ("stored bytes", Align::Right),
            ("integrity", Align::Left),
        ]);
        let mut row = |index: usize, place: &str, stored: &Option<Stored>| {
            if let Some(stored) = stored {
                table.row([
                    index.to_string(),
                    place.to_owned(),
                    stored.element.to_owned(),
                    stored.chain.clone(),
                    grouped(stored.elements),
                    grouped(stored.stored_bytes),
                    stored.integrity().to_owned(),
                ]);
            }
        };
        for (index, [a, b]) in self.streams.iter().enumerate() {
            if a == b {
                row(index, "both", a);
            } else {
                row(index, "A", a);
                row(index, "B", b);
            }
        }
        let [a, b] = &self.volumes;
        format!(
            "{}A has {} bytes in blocks of {}, B {} in blocks of {}\n",
            table.render(),
            grouped(a.volume_bytes),
            a.lba_bytes,
            grouped(b.volume_bytes),
            b.lba_bytes,
        )
    }
}
