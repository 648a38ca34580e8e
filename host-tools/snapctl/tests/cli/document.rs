//! docs/snapctl.md shows what the program prints: each `$ snapctl` of its console blocks is run, and what follows must be the output.
//!
//! `XIO_WRITE_DOCUMENT=1 cargo test -p snapctl` writes the outputs anew.

use std::path::{Path, PathBuf};

use admin_proto::v1::{ErrorDetail, ObjectKind, Reason};
use tonic::{Code, Status};

use super::fake::Fake;
use super::fake::samples::DATA;
use super::support::{commands, snapctl};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/snapctl.md")
}

/// The daemon of the document: it has no namespace 77.
fn daemon() -> Fake {
    let fake = Fake::start();
    let detail = ErrorDetail {
        reason: Reason::NoNamespace.into(),
        object_kind: ObjectKind::Namespace.into(),
        object_key: format!("{DATA} 77"),
        ..ErrorDetail::default()
    };
    let message = format!("there is no namespace 77 in {DATA}");
    let details = admin_proto::details(&message, &detail).into();
    fake.refuse_only(
        &format!("GetNamespaceRequest {{ subsystem_nqn: {DATA:?}, nsid: 77"),
        Status::with_details(Code::NotFound, message, details),
    );
    fake
}

/// A shell's words: blanks apart, single quotes around.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The document with every output as it is now, and the commands that were run.
fn run_again(document: &str, fake: &Fake) -> (String, Vec<String>) {
    let (mut now, mut ran_commands, mut in_block) = (String::new(), Vec::new(), false);
    for line in document.lines() {
        if line.starts_with("```") {
            in_block = line == "```console";
        } else if in_block {
            // The output of the last run, made anew below its command.
            let Some(command) = line.strip_prefix("$ snapctl ") else {
                continue;
            };
            ran_commands.push(command.to_owned());
            let words = words(command);
            let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
            let ran = snapctl(Some(&fake.socket()), &arguments);
            now.push_str(&format!("{line}\n{}{}", ran.stdout, ran.stderr));
            continue;
        }
        now.push_str(line);
        now.push('\n');
    }
    (now, ran_commands)
}

#[test]
fn the_document_shows_what_the_program_prints() {
    let fake = daemon();
    let document = std::fs::read_to_string(path()).unwrap();
    let (now, _) = run_again(&document, &fake);
    if std::env::var_os("XIO_WRITE_DOCUMENT").is_some() {
        std::fs::write(path(), now).unwrap();
        return;
    }
    for (at, (written, printed)) in document.lines().zip(now.lines()).enumerate() {
        assert_eq!(written, printed, "docs/snapctl.md:{}", at + 1);
    }
    assert_eq!(document, now);
}

#[test]
fn every_command_is_in_the_document() {
    let fake = daemon();
    let document = std::fs::read_to_string(path()).unwrap();
    let (_, shown) = run_again(&document, &fake);
    let mut forgotten: Vec<String> = commands().iter().map(|words| words.join(" ")).collect();
    forgotten.retain(|command| {
        let run = shown.iter().any(|line| line.starts_with(command.as_str()));
        !run && !document.contains(&format!("`snapctl {command}`"))
    });
    assert_eq!(forgotten, [""; 0]);
}
