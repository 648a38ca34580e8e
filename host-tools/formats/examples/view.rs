//! Writes the view of a file, elements converted, for a check with the format's own reader (`ci/formats/readers.py`):
//!
//! ```text
//! cargo run -p formats --example view -- FILE RULES ALIGNMENT OUT
//! ```
//! For a Megatron pair FILE and OUT are the pairs' names without `.idx` and `.bin`, for a model the directories.

#![allow(clippy::unwrap_used)] // a test's tool: a panic is the report

#[path = "../tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;

use common::presented;
use formats::megatron::Index;
use formats::model::{self, ModelFile};
use formats::rules::Rules;
use formats::{ByteSource, Dtype, describe};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rules, alignment, out] = &arguments[..] else {
        panic!("FILE RULES ALIGNMENT OUT");
    };
    let alignment = alignment.parse().unwrap();
    if Path::new(file).is_dir() {
        return write_model(file, &rules.parse().unwrap(), alignment, out);
    }
    if Path::new(&format!("{file}.idx")).exists() {
        return write_pair(file, rules, out);
    }
    let source = fs::read(file).unwrap();
    let source = source.as_slice();
    let rules: Rules = rules.parse().unwrap();
    let view = describe(&source)
        .and_then(|d| d.present(&source, &|payload| rules.target(payload), alignment));
    fs::write(out, presented(source, &view.unwrap())).unwrap();
}

fn write_pair(file: &str, dtype: &str, out: &str) {
    let (idx, bin) = (
        fs::read(format!("{file}.idx")).unwrap(),
        fs::read(format!("{file}.bin")).unwrap(),
    );
    let dtype = Dtype::from(dtype.parse::<transforms::ElementType>().unwrap());
    let index = Index::read(&idx.as_slice(), bin.len() as u64).unwrap();
    let view = index.present(&idx.as_slice(), dtype).unwrap();
    fs::write(format!("{out}.idx"), presented(&idx, &view)).unwrap();
    let described = index.describe_bin();
    let view = described.present(&bin.as_slice(), &|_| Some(dtype), 1);
    fs::write(format!("{out}.bin"), presented(&bin, &view.unwrap())).unwrap();
}

fn write_model(folder: &str, rules: &Rules, alignment: u64, out: &str) {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // A hub's snapshot is symlinks: reading follows them.
        files.push((name, fs::read(entry.path()).unwrap()));
    }
    let slices: Vec<_> = files.iter().map(|(n, b)| (n, b.as_slice())).collect();
    let sources: Vec<_> = slices
        .iter()
        .map(|(name, source)| ModelFile {
            name,
            source: source as &dyn ByteSource,
            is_kept: false,
        })
        .collect();
    let plan = model::plan(&sources, rules, alignment).unwrap();
    fs::create_dir_all(out).unwrap();
    for (file, (_, bytes)) in plan.files.iter().zip(&files) {
        let path = Path::new(out).join(&file.name);
        fs::write(path, presented(bytes, &file.presentation)).unwrap();
    }
}
