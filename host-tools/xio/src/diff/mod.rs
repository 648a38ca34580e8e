//! `xio diff`: what differs between two volumes, namespaces or folders.

mod bytes;
mod digests;
mod files;
mod layout;
mod side;

use std::process::ExitCode;

use anyhow::anyhow;
use printout::size::grouped;
use printout::text_table::{Align, TextTable};
use serde_json::{Value, json};

use crate::cli;
use crate::failure::Failure;
use crate::stdout::{print, print_line};
use side::Side;

/// The exit status where something differs.
const DIFFERS: u8 = 1;

/// Runs the command. Whatever keeps it from comparing is no 1: that says that something differs.
pub fn run(arguments: &cli::Diff) -> Result<ExitCode, Failure> {
    compare(arguments).map_err(Failure::not_of_data)
}

fn compare(arguments: &cli::Diff) -> Result<ExitCode, Failure> {
    let a = Side::open(&arguments.a, &arguments.opening)?;
    let b = Side::open(&arguments.b, &arguments.opening)?;
    let found = match (a.tree()?, b.tree()?) {
        (Some(in_a), Some(in_b)) => Found::Files(files::compare(arguments, &in_a, &in_b)?),
        (None, None) => Found::Bytes(bytes::compare(&a, &b)?),
        (in_a, _) => {
            let (with, without) = match in_a {
                Some(_) => (&arguments.a, &arguments.b),
                None => (&arguments.b, &arguments.a),
            };
            let why =
                "has neither a filesystem nor partitions: there is nothing to compare file by file";
            return Err(Failure::usage(anyhow!(
                "{} has files, and {} {why}",
                with.display(),
                without.display()
            )));
        }
    };
    let layouts = match arguments.layout {
        true => Some(layout::compare(&a, &b)?),
        false => None,
    };
    a.close();
    b.close();
    let differs = found.differs() || layouts.as_ref().is_some_and(layout::Layouts::differ);
    if arguments.json {
        print_line(json!({
            "a": arguments.a.display().to_string(),
            "b": arguments.b.display().to_string(),
            "same": !differs,
            "content": found.to_json(),
            "layout": layouts.as_ref().map(layout::Layouts::to_json),
        }))?;
    } else {
        print(&found.to_text(arguments))?;
        if let Some(layouts) = &layouts {
            print(&layouts.to_text())?;
        }
    }
    Ok(match differs {
        true => ExitCode::from(DIFFERS),
        false => ExitCode::SUCCESS,
    })
}

enum Found {
    Files(files::Compared),
    Bytes(bytes::Compared),
}

impl Found {
    fn differs(&self) -> bool {
        match self {
            Found::Files(files) => !files.differences.is_empty(),
            Found::Bytes(bytes) => bytes.differs(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Found::Files(files) => files.to_json(),
            Found::Bytes(bytes) => bytes.to_json(),
        }
    }

    fn to_text(&self, arguments: &cli::Diff) -> String {
        let (a, b) = (arguments.a.display(), arguments.b.display());
        let files = match self {
            Found::Bytes(bytes) => return bytes.to_text(&a.to_string(), &b.to_string()),
            Found::Files(files) => files,
        };
        let trusted = match files.trusted {
            0 => String::new(),
            trusted => format!(", {} of them by their digests", grouped(trusted)),
        };
        let compared = format!(
            "{} names and {} bytes compared{trusted}",
            grouped(files.names),
            grouped(files.bytes)
        );
        if files.differences.is_empty() {
            return format!("{a} and {b} hold the same: {compared}\n");
        }
        let mut table = TextTable::new(&[
            ("change", Align::Left),
            ("path", Align::Left),
            ("what differs", Align::Left),
        ]);
        for difference in &files.differences {
            table.row([
                difference.change.name().to_owned(),
                difference.path(),
                difference.what.clone(),
            ]);
        }
        let count = match files.differences.len() as u64 {
            1 => "1 difference".to_owned(),
            count => format!("{} differences", grouped(count)),
        };
        format!("{}{count}; {compared}\n", table.render())
    }
}
