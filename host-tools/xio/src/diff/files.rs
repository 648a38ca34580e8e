//! File by file.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use erofs::{Attributes, Kind};
use printout::size::grouped;
use serde_json::{Value, json};

use super::digests::Digests;
use super::side::Tree;
use crate::cli;
use crate::contents::Item;
use crate::failure::Failure;
use crate::pack::available_threads;
use crate::progress::Progress;

/// Bytes that are compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What there is of one name on one side and not on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only A has it.
    Removed,
    /// Only B has it.
    Added,
    /// It is something else.
    Kind,
    /// A link leads elsewhere.
    Target,
    /// A file's bytes.
    Bytes,
    /// Mode, owner or time.
    Attributes,
}

impl Change {
    /// For tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Change::Removed => "removed",
            Change::Added => "added",
            Change::Kind => "kind",
            Change::Target => "target",
            Change::Bytes => "bytes",
            Change::Attributes => "attributes",
        }
    }
}

/// A name under which the two differ.
pub struct Difference {
    path: Vec<u8>,
    /// How.
    pub change: Change,
    /// For people.
    pub what: String,
    first_byte: Option<u64>,
    lengths: Option<(u64, u64)>,
}

impl Difference {
    fn new(path: &[u8], change: Change, what: String) -> Difference {
        Difference {
            path: path.to_vec(),
            change,
            what,
            first_byte: None,
            lengths: None,
        }
    }

    /// As text.
    pub fn path(&self) -> String {
        match self.path.as_slice() {
            b"" => ".".to_owned(),
            path => erofs::shown(path),
        }
    }
}

/// What came of it.
pub struct Compared {
    /// In the order of the paths' bytes.
    pub differences: Vec<Difference>,
    /// Names that were looked at.
    pub names: u64,
    /// Bytes that were read on each side.
    pub bytes: u64,
    /// Files that were taken for the same, or not, by their digests.
    pub trusted: u64,
}

impl Compared {
    /// For programs.
    pub fn to_json(&self) -> Value {
        let differences = self.differences.iter().map(|it| {
            json!({
                "path": it.path(),
                "change": it.change.name(),
                "what": it.what,
                "first_byte": it.first_byte,
                "a_bytes": it.lengths.map(|lengths| lengths.0),
                "b_bytes": it.lengths.map(|lengths| lengths.1),
            })
        });
        json!({
            "names": self.names,
            "bytes": self.bytes,
            "trusted_files": self.trusted,
            "differences": differences.collect::<Vec<_>>(),
        })
    }
}

/// Compares two trees.
pub fn compare(arguments: &cli::Diff, a: &Tree<'_>, b: &Tree<'_>) -> Result<Compared, Failure> {
    let digests = match arguments.trust_digests {
        true => Digests::of_both(a, b)?,
        false => None,
    };
    let paths: BTreeSet<&[u8]> = a
        .items
        .keys()
        .chain(b.items.keys())
        .map(Vec::as_slice)
        .collect();
    let mut differences = Vec::new();
    let mut files = Vec::new();
    for &path in &paths {
        let (one, other) = (a.items.get(path), b.items.get(path));
        match (a.item(path, other), b.item(path, one)) {
            (Some(one), Some(other)) => {
                let targets = [a.target_on_disk(path, one), b.target_on_disk(path, other)];
                differences.extend(names_differ(path, one, other, targets));
                if arguments.attributes {
                    differences.extend(attributes_differ(path, one, other));
                }
                if one.kind == Kind::File && other.kind == Kind::File {
                    files.push((path, one, other));
                }
            }
            (Some(item), None) => {
                differences.push(Difference::new(path, Change::Removed, described(item)));
            }
            (None, Some(item)) => {
                differences.push(Difference::new(path, Change::Added, described(item)));
            }
            (None, None) => {}
        }
    }
    let pairs = Pairs {
        a,
        b,
        files,
        digests,
        next: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
        trusted: AtomicU64::new(0),
    };
    differences.extend(pairs.compare()?);
    differences.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Compared {
        differences,
        names: paths.len() as u64,
        bytes: pairs.bytes.into_inner(),
        trusted: pairs.trusted.into_inner(),
    })
}

fn described(item: &Item) -> String {
    match item.kind {
        Kind::Directory => "a folder".to_owned(),
        Kind::Symlink => format!("a link to {}", erofs::shown(&item.target)),
        Kind::File => format!("a file of {} bytes", grouped(item.bytes)),
    }
}

/// Links may lead to the same as they are, or where they lead `on_disk`.
fn names_differ(path: &[u8], a: &Item, b: &Item, on_disk: [&[u8]; 2]) -> Option<Difference> {
    if a.kind != b.kind {
        let what = format!("{}; {}", described(a), described(b));
        return Some(Difference::new(path, Change::Kind, what));
    }
    if a.target != b.target && on_disk[0] != on_disk[1] {
        let (a, b) = (erofs::shown(&a.target), erofs::shown(&b.target));
        let what = format!("leads to {a}; {b}");
        return Some(Difference::new(path, Change::Target, what));
    }
    None
}

fn attributes_differ(path: &[u8], a: &Item, b: &Item) -> Option<Difference> {
    let (a, b) = (&a.attributes, &b.attributes);
    let time = |it: &Attributes| {
        let time = it.modified;
        format!("{}.{:09}", time.seconds, time.nanoseconds)
    };
    let all = [
        (
            "mode",
            format!("{:04o}", a.permissions),
            format!("{:04o}", b.permissions),
        ),
        ("owner", a.uid.to_string(), b.uid.to_string()),
        ("group", a.gid.to_string(), b.gid.to_string()),
        ("modified", time(a), time(b)),
    ];
    let different = all.iter().filter(|(_, a, b)| a != b);
    let shown: Vec<_> = different
        .map(|(what, a, b)| format!("{what} {a}; {b}"))
        .collect();
    (!shown.is_empty()).then(|| Difference::new(path, Change::Attributes, shown.join(", ")))
}

/// Files that both sides have.
struct Pairs<'a> {
    a: &'a Tree<'a>,
    b: &'a Tree<'a>,
    files: Vec<(&'a [u8], &'a Item, &'a Item)>,
    digests: Option<Digests>,
    next: AtomicUsize,
    bytes: AtomicU64,
    trusted: AtomicU64,
}

impl Pairs<'_> {
    /// On every core; what failed first, in the order of the names, is the failure.
    fn compare(&self) -> Result<Vec<Difference>, Failure> {
        let shorter = self.files.iter().map(|(_, a, b)| a.bytes.min(b.bytes));
        let progress = Progress::start("comparing", Some(shorter.sum()));
        let failed = AtomicBool::new(false);
        let found: Mutex<Vec<(usize, Result<Difference, Failure>)>> = Mutex::default();
        let work = || {
            let mut pieces = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
            while !failed.load(Ordering::Relaxed) {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = self.files.get(index) else {
                    break;
                };
                let result = self.one(*file, &mut pieces).transpose();
                progress.set(self.bytes.load(Ordering::Relaxed));
                if let Some(result) = result {
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push((index, result));
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..available_threads().min(self.files.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, result)| result).collect()
    }

    fn one(
        &self,
        (path, a, b): (&[u8], &Item, &Item),
        pieces: &mut [Vec<u8>; 2],
    ) -> Result<Option<Difference>, Failure> {
        let lengths = (a.bytes, b.bytes);
        let digests = self.digests.as_ref();
        if let Some(same) = digests.and_then(|digests| digests.same(path, lengths)) {
            self.trusted.fetch_add(1, Ordering::Relaxed);
            if same {
                return Ok(None);
            }
        }
        let shorter = a.bytes.min(b.bytes);
        let (in_a, in_b) = (self.a.open(path, a)?, self.b.open(path, b)?);
        let mut at = 0;
        while at < shorter {
            let bytes = usize::try_from(shorter - at).unwrap_or(usize::MAX);
            let bytes = bytes.min(PIECE_BYTES);
            let [one, other] = pieces;
            let (one, other) = (&mut one[..bytes], &mut other[..bytes]);
            in_a.read(at, one)?;
            in_b.read(at, other)?;
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            if one != other {
                let pairs = (at..).zip(one.iter().zip(other.iter()));
                let first = pairs.clone().find(|(_, (a, b))| a != b);
                let (first, (a, b)) = first.unwrap_or((at, (&0, &0)));
                let what = format!("first at byte {}: {a:#04x}; {b:#04x}", grouped(first));
                return Ok(Some(difference(path, lengths, first, what)));
            }
            at += bytes as u64;
        }
        if a.bytes == b.bytes {
            return Ok(None);
        }
        let what = format!("the same up to byte {}", grouped(shorter));
        Ok(Some(difference(path, lengths, shorter, what)))
    }
}

fn difference(path: &[u8], lengths: (u64, u64), first: u64, what: String) -> Difference {
    let what = match lengths {
        (a, b) if a == b => what,
        (a, b) => format!("{what}; {} bytes; {} bytes", grouped(a), grouped(b)),
    };
    Difference {
        first_byte: Some(first),
        lengths: Some(lengths),
        ..Difference::new(path, Change::Bytes, what)
    }
}
