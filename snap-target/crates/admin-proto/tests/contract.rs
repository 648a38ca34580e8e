//! The proto files keep their own rules: everything is documented, and what was released keeps its number and type.
//!
//! After an addition, `XIO_WRITE_FIELDS_LOCK=1 cargo test -p admin-proto` writes fields.lock anew; it refuses to drop or change a line.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

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
    assert_eq!(files().len(), 9);
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

/// `xio.admin.v1.Namespace.nsid = 2 optional uint32`, one line for each field, enum value and call.
fn lock_lines() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in files() {
        for message in &file.message_type {
            lines.extend(lines_of_message(message));
        }
        for enumeration in &file.enum_type {
            lines.extend(lines_of_enum(enumeration));
        }
        for service in &file.service {
            for method in &service.method {
                let stream = if method.server_streaming() {
                    "stream "
                } else {
                    ""
                };
                let (input, output) = (method.input_type(), method.output_type());
                let name = format!("{}.{}", service.name(), method.name());
                lines.insert(format!("{name}({input}) -> {stream}{output}"));
            }
        }
    }
    lines
}

fn lines_of_message(message: &DescriptorProto) -> Vec<String> {
    let line = |field: &prost_types::FieldDescriptorProto| {
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().to_owned(),
            other => other.as_str_name().to_owned(),
        };
        let label = match (field.label(), field.proto3_optional()) {
            (Label::Repeated, _) => "repeated ",
            (_, true) => "optional ",
            _ => "",
        };
        let (name, number) = (field.name(), field.number());
        format!("{}.{name} = {number} {label}{kind}", message.name())
    };
    message.field.iter().map(line).collect()
}

fn lines_of_enum(enumeration: &EnumDescriptorProto) -> Vec<String> {
    enumeration
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
        .collect()
}

#[test]
fn what_was_released_keeps_its_number_and_type() {
    let path = folder().join("fields.lock");
    let locked: BTreeSet<String> = std::fs::read_to_string(&path)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    let now = lock_lines();
    let broken: Vec<&String> = locked.difference(&now).collect();
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
