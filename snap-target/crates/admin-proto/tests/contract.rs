//! The proto files keep their own rules: everything is documented, and what was released keeps its number and type.
//!
//! After an addition, `XIO_WRITE_FIELDS_LOCK=1 cargo test -p admin-proto` writes fields.lock anew; it refuses to drop or change a line.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/xio/admin/v1")
}

fn file_names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".proto"))
        .collect();
    names.sort();
    names
}

fn files() -> Vec<FileDescriptorProto> {
    let names = file_names()
        .into_iter()
        .map(|name| format!("xio/admin/v1/{name}"));
    let set = protox::compile(names, [folder().join("../../..")]).unwrap();
    set.file
        .into_iter()
        .filter(|file| file.package() == "xio.admin.v1")
        .collect()
}

#[test]
fn every_file_is_compiled_into_the_crate() {
    let build =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs")).unwrap();
    let mentioned = |name: &String| {
        let stem = name.trim_end_matches(".proto");
        build.contains(&format!("\"{stem}\""))
    };
    let forgotten: Vec<String> = file_names()
        .into_iter()
        .filter(|name| !mentioned(name))
        .collect();
    assert_eq!(forgotten, [""; 0]);
    assert_eq!(files().len(), 11);
}

/// Paths of descriptor.proto: the field numbers that lead from a file to a declaration.
mod path {
    pub const MESSAGE: i32 = 4;
    pub const ENUM: i32 = 5;
    pub const SERVICE: i32 = 6;
    /// `field` of a message, `value` of an enum, `method` of a service: all are 2.
    pub const MEMBER: i32 = 2;
    pub const ONEOF: i32 = 8;
}

/// Every declaration with its name and the path of its comment.
fn declarations(file: &FileDescriptorProto) -> Vec<(String, Vec<i32>)> {
    let index = |at: usize| i32::try_from(at).unwrap();
    let mut all = Vec::new();
    for (at, message) in file.message_type.iter().enumerate() {
        let base = [path::MESSAGE, index(at)];
        all.push((message.name().to_owned(), base.to_vec()));
        for (member, field) in message.field.iter().enumerate() {
            let name = format!("{}.{}", message.name(), field.name());
            all.push((name, [&base[..], &[path::MEMBER, index(member)]].concat()));
        }
        // The compiler makes a oneof of its own, without a comment, for each `optional`; they come last.
        let synthetic = message
            .field
            .iter()
            .filter(|field| field.proto3_optional())
            .count();
        let written = message.oneof_decl.len() - synthetic;
        for (member, oneof) in message.oneof_decl.iter().take(written).enumerate() {
            let name = format!("{}.{}", message.name(), oneof.name());
            all.push((name, [&base[..], &[path::ONEOF, index(member)]].concat()));
        }
        assert!(message.nested_type.is_empty() && message.enum_type.is_empty());
    }
    for (at, enumeration) in file.enum_type.iter().enumerate() {
        let base = [path::ENUM, index(at)];
        all.push((enumeration.name().to_owned(), base.to_vec()));
        for (member, value) in enumeration.value.iter().enumerate() {
            let path = [&base[..], &[path::MEMBER, index(member)]].concat();
            all.push((value.name().to_owned(), path));
        }
    }
    for (at, service) in file.service.iter().enumerate() {
        let base = [path::SERVICE, index(at)];
        all.push((service.name().to_owned(), base.to_vec()));
        for (member, method) in service.method.iter().enumerate() {
            let path = [&base[..], &[path::MEMBER, index(member)]].concat();
            all.push((format!("{}.{}", service.name(), method.name()), path));
        }
    }
    all
}

#[test]
fn every_message_field_value_and_call_is_documented() {
    let mut seen = 0;
    let mut bare = Vec::new();
    for file in files() {
        let locations = &file.source_code_info.as_ref().unwrap().location;
        let comments: BTreeMap<&[i32], &str> = locations
            .iter()
            .map(|location| (&location.path[..], location.leading_comments()))
            .collect();
        for (name, path) in declarations(&file) {
            seen += 1;
            let comment = comments.get(&path[..]).copied().unwrap_or_default();
            if !comment.trim_end().ends_with(['.', '"', ')']) {
                bare.push(name);
            }
        }
    }
    assert_eq!(bare, [""; 0]);
    assert!(seen > 300, "{seen} declarations were looked at");
}

/// `Namespace.nsid = 2 optional uint32 in kind`, one line for each field, enum value and call, and for what is reserved.
fn lock_lines(files: &[FileDescriptorProto]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in files {
        for message in &file.message_type {
            lines.extend(lines_of_message(message));
        }
        for enumeration in &file.enum_type {
            lines.extend(lines_of_enum(enumeration));
        }
        for service in &file.service {
            for method in &service.method {
                let stream = |streams| if streams { "stream " } else { "" };
                let (from, to) = (
                    stream(method.client_streaming()),
                    stream(method.server_streaming()),
                );
                let (input, output) = (method.input_type(), method.output_type());
                let name = format!("{}.{}", service.name(), method.name());
                lines.insert(format!("{name}({from}{input}) -> {to}{output}"));
            }
        }
    }
    lines
}

fn lines_of_message(message: &DescriptorProto) -> Vec<String> {
    let line = |field: &FieldDescriptorProto| {
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().to_owned(),
            other => other.as_str_name().to_owned(),
        };
        let label = match (field.label(), field.proto3_optional()) {
            (Label::Repeated, _) => "repeated ",
            (_, true) => "optional ",
            _ => "",
        };
        // The oneof that the compiler makes for `optional` is not written in the file.
        let oneof = field.oneof_index.filter(|_| !field.proto3_optional());
        let oneof = oneof.map(|at| message.oneof_decl[usize::try_from(at).unwrap()].name());
        let oneof = oneof.map(|name| format!(" in {name}")).unwrap_or_default();
        let (name, number) = (field.name(), field.number());
        format!("{}.{name} = {number} {label}{kind}{oneof}", message.name())
    };
    let mut lines: Vec<String> = message.field.iter().map(line).collect();
    let numbers = message.reserved_range.iter();
    let numbers = numbers.flat_map(|range| range.start()..range.end());
    lines.extend(numbers.map(|number| format!("{} reserves {number}", message.name())));
    let names = message.reserved_name.iter();
    lines.extend(names.map(|name| format!("{} reserves {name}", message.name())));
    lines
}

fn lines_of_enum(enumeration: &EnumDescriptorProto) -> Vec<String> {
    let mut lines: Vec<String> = enumeration
        .value
        .iter()
        .map(|value| {
            format!(
                "{}.{} = {}",
                enumeration.name(),
                value.name(),
                value.number()
            )
        })
        .collect();
    // Here the end belongs to the range.
    let numbers = enumeration.reserved_range.iter();
    let numbers = numbers.flat_map(|range| range.start()..=range.end());
    lines.extend(numbers.map(|number| format!("{} reserves {number}", enumeration.name())));
    let names = enumeration.reserved_name.iter();
    lines.extend(names.map(|name| format!("{} reserves {name}", enumeration.name())));
    lines
}

/// What was released and is gone or different now.
fn broken(locked: &BTreeSet<String>, now: &BTreeSet<String>) -> Vec<String> {
    locked.difference(now).cloned().collect()
}

#[test]
fn what_was_released_keeps_its_number_and_type() {
    let path = folder().join("fields.lock");
    let locked: BTreeSet<String> = std::fs::read_to_string(&path)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    let now = lock_lines(&files());
    let broken = broken(&locked, &now);
    assert!(
        broken.is_empty(),
        "these were released and are gone or different: {broken:#?}"
    );
    if std::env::var_os("XIO_WRITE_FIELDS_LOCK").is_some() {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let unlisted: Vec<&String> = now.difference(&locked).collect();
    assert!(
        unlisted.is_empty(),
        "new, and not in fields.lock (see the top of this file): {unlisted:#?}"
    );
}

/// A package of one file.
fn package(text: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("syntax = \"proto3\"; package xio.admin.v1; {text}");
    std::fs::write(folder.path().join("it.proto"), text).unwrap();
    let set = protox::compile(["it.proto"], [folder.path()]).unwrap();
    lock_lines(&set.file)
}

#[test]
fn each_way_to_break_a_client_is_seen() {
    let text = "message A { reserved 7, 9 to 10; reserved \"gone\"; oneof o { string text = 1; uint32 number = 2; } optional uint32 count = 3; }
         enum E { reserved 4; reserved \"E_GONE\"; E_UNSPECIFIED = 0; E_ONE = 1; }
         service S { rpc Call(A) returns (stream A); rpc Send(stream A) returns (A); }";
    let released = package(text);
    let changes = [
        (
            "a reserved number",
            "reserved 7, 9 to 10;",
            "reserved 9 to 10;",
            "A reserves 7",
        ),
        (
            "the end of a reserved range",
            "9 to 10",
            "9",
            "A reserves 10",
        ),
        (
            "a reserved name",
            "reserved \"gone\";",
            "",
            "A reserves gone",
        ),
        (
            "a field out of its oneof",
            "uint32 number = 2; }",
            "} uint32 number = 2;",
            "A.number = 2 TYPE_UINT32 in o",
        ),
        (
            "a oneof's name",
            "oneof o",
            "oneof p",
            "A.text = 1 TYPE_STRING in o",
        ),
        (
            "presence",
            "optional uint32 count",
            "uint32 count",
            "A.count = 3 optional TYPE_UINT32",
        ),
        (
            "a number",
            "count = 3",
            "count = 4",
            "A.count = 3 optional TYPE_UINT32",
        ),
        (
            "an enum's reserved number",
            "reserved 4;",
            "",
            "E reserves 4",
        ),
        (
            "an enum's reserved name",
            "reserved \"E_GONE\";",
            "",
            "E reserves E_GONE",
        ),
        ("an enum value", "E_ONE = 1", "E_ONE = 2", "E.E_ONE = 1"),
        (
            "server streaming",
            "returns (stream A)",
            "returns (A)",
            "S.Call(.xio.admin.v1.A) -> stream .xio.admin.v1.A",
        ),
        (
            "client streaming",
            "Send(stream A)",
            "Send(A)",
            "S.Send(stream .xio.admin.v1.A) -> .xio.admin.v1.A",
        ),
    ];
    assert_eq!(broken(&released, &package(text)), [""; 0]);
    for (what, from, to, line) in changes {
        assert!(text.contains(from), "{what}");
        let now = package(&text.replacen(from, to, 1));
        let broken = broken(&released, &now);
        assert!(broken.contains(&line.to_owned()), "{what}: {broken:?}");
    }
    let more = text.replace("count = 3;", "count = 3; string more = 4;");
    assert_eq!(broken(&released, &package(&more)), [""; 0], "an addition");
}
