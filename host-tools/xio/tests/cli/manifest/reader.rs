//! A strict reader of manifests: it knows docs/format.md, and nothing of the writers.

use serde_json::{Map, Value};

const LIST: fn(&Value) -> bool = Value::is_array;
const WORD: fn(&Value) -> bool = Value::is_string;
const COUNT: fn(&Value) -> bool = Value::is_u64;
const TRUTH: fn(&Value) -> bool = Value::is_boolean;

type Kind = fn(&Value) -> bool;

/// An object with exactly these members, each of its kind, and besides perhaps the bytes of a name that is no text.
fn object<'a>(value: &'a Value, members: &[(&str, Kind)]) -> &'a Map<String, Value> {
    let object = value
        .as_object()
        .unwrap_or_else(|| panic!("no object: {value}"));
    for (name, is_kind) in members {
        let member = object
            .get(*name)
            .unwrap_or_else(|| panic!("no {name}: {value}"));
        assert!(is_kind(member), "{name}: {member}");
    }
    for (name, member) in object {
        let of = name.strip_suffix("_bytes");
        let is_bytes = of.is_some_and(|of| matches!(of, "path" | "file"));
        assert!(
            is_bytes || members.iter().any(|(known, _)| known == name),
            "{name} is unknown: {value}"
        );
        if is_bytes {
            let text = String::from_utf8_lossy(&unhex(member)).into_owned();
            assert!(text.contains('\u{fffd}'), "{value}");
            assert_eq!(object[of.unwrap()], text);
        }
    }
    object
}

fn unhex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap().as_bytes();
    assert!(
        digits
            .iter()
            .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')),
        "{value}"
    );
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

pub fn name_of(value: &Value, name: &str) -> Vec<u8> {
    match value.get(format!("{name}_bytes")) {
        Some(bytes) => unhex(bytes),
        None => value[name].as_str().unwrap().as_bytes().to_vec(),
    }
}

fn is_digest(value: &Value) -> bool {
    value.is_string() && unhex(value).len() == 32
}

fn is_uuid(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 36)
}

fn is_type(value: &Value) -> bool {
    let types = [
        "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64",
    ];
    types.iter().any(|name| value == name)
}

fn or_null<const KIND: u8>(value: &Value) -> bool {
    value.is_null()
        || match KIND {
            b'd' => is_digest(value),
            b'n' => value.is_number(),
            _ => value.is_object(),
        }
}

pub fn width(element: &Value) -> u64 {
    match element.as_str().unwrap() {
        "u8" | "i8" => 1,
        "u16" | "i16" | "f16" | "bf16" => 2,
        "u32" | "i32" | "f32" => 4,
        _ => 8,
    }
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Every member of a document is there and of its type, and the members agree with each other.
pub fn check(document: &Value) {
    object(
        document,
        &[
            ("xio_manifest", COUNT),
            ("writer", WORD),
            ("lossy", TRUTH),
            ("sources", LIST),
            ("streams", LIST),
            ("views", LIST),
            ("volumes", LIST),
            ("on_disk", Value::is_null),
        ],
    );
    assert_eq!(document["xio_manifest"], 1);
    let (sources, streams) = (list(&document["sources"]), list(&document["streams"]));
    for source in sources {
        check_source(source, streams.len() as u64);
    }
    for (index, stream) in streams.iter().enumerate() {
        check_stream(stream);
        assert!(
            sources
                .iter()
                .any(|it| list(&it["streams"]).contains(&index.into()))
        );
    }
    for view in list(&document["views"]) {
        check_view(view, sources.len());
    }
    list(&document["volumes"]).iter().for_each(check_volume);
}

fn check_source(source: &Value, streams: u64) {
    let members: [(&str, Kind); 6] = [
        ("path", WORD),
        ("bytes", COUNT),
        ("sha256", is_digest),
        ("format", WORD),
        ("streams", LIST),
        ("unzipped_from", or_null::<b'o'>),
    ];
    object(source, &members);
    if source["unzipped_from"].is_object() {
        let members: [(&str, Kind); 3] = [("path", WORD), ("bytes", COUNT), ("sha256", is_digest)];
        object(&source["unzipped_from"], &members);
    }
    let of_source: Vec<u64> = list(&source["streams"]).iter().map(number).collect();
    assert!(of_source.is_sorted_by(|a, b| a < b), "{source}");
    assert!(of_source.iter().all(|it| *it < streams), "{source}");
    assert_eq!(of_source.is_empty(), source["bytes"] == 0, "{source}");
}

fn check_volume(volume: &Value) {
    let members: [(&str, Kind); 4] = [
        ("file", WORD),
        ("volume_uuid", is_uuid),
        ("generation", COUNT),
        ("views", LIST),
    ];
    object(volume, &members);
    for view in list(&volume["views"]) {
        let members: [(&str, Kind); 7] = [
            ("name", WORD),
            ("path", WORD),
            ("is_filesystem", TRUTH),
            ("namespace_uuid", is_uuid),
            ("lossy", TRUTH),
            ("manifest_sha256", or_null::<b'd'>),
            ("manifest", or_null::<b'o'>),
        ];
        object(view, &members);
        if view["manifest"].is_object() {
            check(&view["manifest"]);
            assert_eq!(view["manifest"]["lossy"], view["lossy"]);
        }
    }
}

fn check_step(step: &Value) {
    let members: [(&str, Kind); 4] = [
        ("transform", COUNT),
        ("version", COUNT),
        ("parameter", COUNT),
        ("table", is_digest),
    ];
    // Those of rank and zstd-dict have a table; int8 is not in these.
    let has_table = [0x200, 0x105].iter().any(|it| step["transform"] == *it);
    let members = if has_table {
        &members[..]
    } else {
        &members[..3]
    };
    object(step, members);
}

fn check_stream(stream: &Value) {
    let members: [(&str, Kind); 8] = [
        ("elements", COUNT),
        ("type", is_type),
        ("stored_chain", WORD),
        ("steps", LIST),
        ("stored_bytes", COUNT),
        ("sha256", is_digest),
        ("range", or_null::<b'o'>),
        ("loss", or_null::<b'o'>),
    ];
    object(stream, &members);
    list(&stream["steps"]).iter().for_each(check_step);
    let steps = stream["stored_chain"].as_str().unwrap().split('+');
    let steps = steps.filter(|step| *step != "none").count();
    assert_eq!(steps, list(&stream["steps"]).len(), "{stream}");
    if stream["range"].is_object() {
        object(&stream["range"], &[("min", WORD), ("max", WORD)]);
        let bound = |name: &str| {
            stream["range"][name]
                .as_str()
                .unwrap()
                .parse::<i128>()
                .unwrap()
        };
        assert!(bound("min") <= bound("max"), "{stream}");
    }
    if stream["loss"].is_object() {
        check_loss(&stream["loss"]);
        assert_eq!(stream["loss"]["elements"], stream["elements"]);
    }
}

fn check_loss(loss: &Value) {
    let members: [(&str, Kind); 8] = [
        ("elements", COUNT),
        ("largest_error", or_null::<b'n'>),
        ("rms_error", or_null::<b'n'>),
        ("worst", or_null::<b'o'>),
        ("saturated", COUNT),
        ("vanished", COUNT),
        ("nans", COUNT),
        ("infinities", COUNT),
    ];
    object(loss, &members);
    if loss["worst"].is_object() {
        let kind: Kind = Value::is_number;
        object(&loss["worst"], &[("source", kind), ("presented", kind)]);
        let of = |name: &str| loss["worst"][name].as_f64().unwrap();
        assert_eq!(
            loss["largest_error"],
            (of("presented") - of("source")).abs()
        );
    }
    let others = ["saturated", "nans", "infinities"].map(|name| number(&loss[name]));
    let has_errors = number(&loss["elements"]) > others.iter().sum();
    assert_eq!(loss["largest_error"].is_number(), has_errors, "{loss}");
    assert_eq!(loss["rms_error"].is_number(), has_errors, "{loss}");
}

fn check_view(view: &Value, sources: usize) {
    object(
        view,
        &[("name", WORD), ("changes", LIST), ("changed_files", LIST)],
    );
    for change in list(&view["changes"]) {
        let members: [(&str, Kind); 6] = [
            ("from", is_type),
            ("to", is_type),
            ("presented_as", is_type),
            ("step", Value::is_object),
            ("source_bytes", COUNT),
            ("loss", or_null::<b'o'>),
        ];
        object(change, &members);
        check_step(&change["step"]);
        if change["loss"].is_object() {
            check_loss(&change["loss"]);
            let bytes = number(&change["loss"]["elements"]) * width(&change["from"]);
            assert_eq!(number(&change["source_bytes"]), bytes, "{change}");
        }
    }
    for file in list(&view["changed_files"]) {
        let members: [(&str, Kind); 5] = [
            ("path", WORD),
            ("source", COUNT),
            ("bytes", COUNT),
            ("sha256", is_digest),
            ("losses", LIST),
        ];
        object(file, &members);
        assert!(number(&file["source"]) < sources as u64, "{file}");
        for lost in list(&file["losses"]) {
            let members: [(&str, Kind); 3] = [
                ("from", is_type),
                ("to", is_type),
                ("loss", Value::is_object),
            ];
            object(lost, &members);
            check_loss(&lost["loss"]);
        }
    }
}
