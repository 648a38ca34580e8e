//! The plan as one JSON object.

use dataset::{Outline, document};
use serde_json::{Value, json};

use super::places::Place;
use super::{Part, Planned, advice};
use crate::chosen;
use crate::cli;
use crate::disk::{notes, partition_json};

/// All of it: every file, every group.
pub fn to_json(planned: &Planned<'_>, arguments: &cli::Plan) -> Value {
    let (stored_bytes, exact) = planned.stored_bytes();
    let groups = planned.choices.groups.iter();
    let groups = groups.map(|group| chosen::to_json(group, &planned.wish, arguments.explain));
    let streams = planned.storage.streams.iter().map(|stream| {
        let (stored_bytes, exact) = planned.choices.stream_bytes(stream);
        json!({
            "type": stream.stored.chain.source().name(),
            "stored_chain": stream.stored.chain.to_string(),
            "source_bytes": stream.bytes,
            "stored_bytes": stored_bytes,
            "exact": exact,
        })
    });
    let views = planned.views.iter();
    let views = views.map(|view| notes::view_json(view, planned.catalogue, &planned.names));
    json!({
        "source_bytes": planned.scan.source_bytes(),
        "stored_bytes": stored_bytes,
        "exact": exact,
        "volume_bytes": planned.volume_bytes,
        "files": files(planned),
        "groups": groups.collect::<Vec<_>>(),
        "streams": streams.collect::<Vec<_>>(),
        "views": views.collect::<Vec<_>>(),
        "disk": planned.outline.as_ref().map(disk),
        "placements": placements(planned),
        "malformed": malformed(planned),
        "refused": planned.refused,
        "warnings": advice::warnings(planned, true),
    })
}

fn disk(outline: &Outline) -> Value {
    json!({
        "bytes": outline.bytes,
        "metadata_bytes": outline.metadata_bytes,
        "manifest_on_top": outline.with_manifest,
        "partitions": outline.partitions.iter().map(partition_json).collect::<Vec<_>>(),
    })
}

fn files(planned: &Planned<'_>) -> Vec<Value> {
    let files = planned.scan.files();
    files
        .map(|(id, file)| {
            let format = planned.catalogue.get(id).map(|it| it.description.format);
            let parts = planned.parts(id);
            json!({
                "path": planned.name(id),
                "format": format.map(|it| it.name()),
                "bytes": file.bytes,
                "parts": parts.iter().map(part).collect::<Vec<_>>(),
            })
        })
        .collect()
}

fn part(part: &Part<'_>) -> Value {
    let group = part.group;
    json!({
        "type": chosen::type_name(group),
        "elements": part.bytes / group.element.bytes() as u64,
        "range": document::range(part.range),
        "source_bytes": part.bytes,
        "stored_bytes": part.stored_bytes,
        "exact": group.is_exact(),
        "stored_chain": group.chosen().map(|it| it.chain.to_string()),
        "frame_bytes": group.chosen().map(|it| it.frame_bytes),
    })
}

fn placements(planned: &Planned<'_>) -> Vec<Value> {
    let source = planned.scan.source_bytes();
    let stored = planned.on_store();
    let row = |place: Place, presented_as: &str, presented| {
        let moved = place.moved(source, stored, presented);
        json!({
            "where": place.key(),
            "presented_as": presented_as,
            "store_bytes": moved.store,
            "wire_bytes": moved.wire,
            "pcie_bytes": moved.pcie,
            "host_memory_bytes": moved.memory,
        })
    };
    let mut rows = vec![row(Place::Plain, "source", source)];
    for view in planned.views {
        let presented = planned.presented_bytes(view);
        let places = Place::ALL.into_iter().skip(1);
        rows.extend(places.map(|place| row(place, &view.name, presented)));
    }
    rows
}

fn malformed(planned: &Planned<'_>) -> Vec<Value> {
    let malformed = planned.catalogue.malformed.iter();
    malformed
        .map(|(id, error)| json!({"path": planned.name(*id), "why": error.to_string()}))
        .collect()
}
