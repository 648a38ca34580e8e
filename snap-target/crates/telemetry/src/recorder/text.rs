//! Events as lines: for people, and as JSON.

use std::fmt::Write;
use std::time::SystemTime;

use nvme_spec::Status;

use super::event::{Event, Field, Recorded};
use crate::utc::Utc;

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpFormat {
    /// For people: `2026-11-21T16:20:03.123456Z +12.345678 reactor=0 slow command cntlid=1 sqid=2 ...`.
    Text,
    /// One JSON object an event.
    JsonLines,
}

impl Recorded {
    /// The event as a line, without its end. `utc` is when it happened.
    #[must_use]
    pub fn line(&self, format: DumpFormat, utc: SystemTime) -> String {
        match format {
            DumpFormat::Text => self.text(&Utc(utc)),
            DumpFormat::JsonLines => self.json(&Utc(utc)),
        }
    }

    fn text(&self, utc: &Utc) -> String {
        let reactor = match self.reactor {
            Some(number) => format!("reactor={number}"),
            None => "control".to_owned(),
        };
        format!(
            "{utc} +{} {reactor} {}",
            seconds(self.at_ns),
            self.what_happened()
        )
    }

    /// What happened, without when and where: `slow command cntlid=1 sqid=2 ...`.
    #[must_use]
    pub fn what_happened(&self) -> String {
        let kind = self.event.kind;
        let mut line = kind.name().to_owned();
        for field in kind.fields() {
            append_text(&mut line, &self.event, *field);
        }
        line
    }

    fn json(&self, utc: &Utc) -> String {
        let kind = self.event.kind;
        let mut line = format!("{{\"time\":\"{utc}\",\"since_start_ns\":{}", self.at_ns);
        if let Some(number) = self.reactor {
            append(&mut line, format_args!(",\"reactor\":{number}"));
        }
        append(&mut line, format_args!(",\"event\":\"{}\"", kind.name()));
        for field in kind.fields() {
            let Some((name, value)) = number_of(&self.event, *field) else {
                append_json_host(&mut line, &self.event);
                continue;
            };
            append(&mut line, format_args!(",\"{name}\":{value}"));
            if *field == Field::Status
                && let Some(text) = status_of(&self.event).name()
            {
                append(&mut line, format_args!(",\"status_name\":\"{text}\""));
            }
        }
        line.push('}');
        line
    }
}

/// Seconds with microseconds.
fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns / 1_000 % 1_000_000)
}

fn status_of(event: &Event) -> Status {
    Status::from_wire(event.status)
}

fn append(line: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _written = line.write_fmt(text);
}

fn append_text(line: &mut String, event: &Event, field: Field) {
    match (field, number_of(event, field)) {
        (Field::Opcode, Some((name, value))) => append(line, format_args!(" {name}={value:02x}h")),
        (Field::Status, Some((name, _))) => {
            append(line, format_args!(" {name}=\"{}\"", status_of(event)));
        }
        (_, Some((name, value))) => append(line, format_args!(" {name}={value}")),
        // A host chooses its name: it must not look like more of the line.
        (_, None) if !event.host.as_str().is_empty() => {
            append(line, format_args!(" host={:?}", event.host));
        }
        (_, None) => {}
    }
}

fn append_json_host(line: &mut String, event: &Event) {
    if event.host.as_str().is_empty() {
        return;
    }
    line.push_str(",\"host\":\"");
    for letter in event.host.as_str().chars() {
        match letter {
            '"' | '\\' => append(line, format_args!("\\{letter}")),
            letter if letter < ' ' => append(line, format_args!("\\u{:04x}", u32::from(letter))),
            letter => line.push(letter),
        }
    }
    line.push('"');
}

/// A field's name and its number; a status is its code, type in bits 10:8. None of the host, which is no number.
fn number_of(event: &Event, field: Field) -> Option<(&'static str, u64)> {
    Some(match field {
        Field::Cntlid => ("cntlid", u64::from(event.cntlid)),
        Field::Sqid => ("sqid", u64::from(event.sqid)),
        Field::Cid => ("cid", u64::from(event.cid)),
        Field::Opcode => ("opcode", u64::from(event.opcode)),
        Field::Nsid => ("nsid", u64::from(event.nsid)),
        Field::Lba => ("lba", event.lba),
        Field::Blocks => ("blocks", u64::from(event.blocks)),
        Field::Status => {
            let status = status_of(event);
            (
                "status",
                u64::from(status.sct()) << 8 | u64::from(status.sc()),
            )
        }
        Field::LatencyUs => ("latency_us", event.value / 1_000),
        Field::InFlight => ("in_flight", event.value),
        Field::Host => return None,
    })
}
