//! `xio ranges`: where the bytes of files lie on a disk, in the order in which they will be read.

use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::anyhow;
use bench::random::Permutation;
use dataset::shortened;
use erofs::Kind;
use printout::ranges::ReadRange;

use crate::cli;
use crate::contents::{self, Items};
use crate::failure::Failure;
use crate::medium::{PATIENCE, Source};

/// Runs the command.
pub fn run(arguments: &cli::Ranges) -> Result<(), Failure> {
    let name = arguments.volume.display();
    let source = Source::open(&arguments.volume, &arguments.opening, PATIENCE)?;
    let files = match contents::of(&source, &name)? {
        Some(items) => chosen(&items, &arguments.files).map_err(|it| it.about(&name))?,
        None if arguments.files.is_empty() => vec![vec![ReadRange {
            offset: 0,
            bytes: source.medium().bytes(),
        }]],
        None => {
            return Err(Failure::usage(anyhow!(
                "{name} has neither a filesystem nor a partition table, so it has no files: leave FILE, and its ranges are those of all its bytes"
            )));
        }
    };
    source.close();
    let samples = Samples::new(files, arguments.samples.map(|size| size.0))?;
    let stdout = BufWriter::new(io::stdout().lock());
    match print(stdout, &samples, arguments.shuffle) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => {
            printed.map_err(|error| Failure::system(anyhow!("writing standard output: {error}")))
        }
    }
}

fn print(mut output: impl Write, samples: &Samples, shuffle: Option<u64>) -> io::Result<()> {
    let mut print = |number| -> io::Result<()> {
        for range in samples.ranges(number) {
            writeln!(output, "{range}")?;
        }
        Ok(())
    };
    match shuffle {
        Some(seed) => Permutation::new(samples.count(), seed).try_for_each(&mut print)?,
        None => (0..samples.count()).try_for_each(&mut print)?,
    }
    output.flush()
}

/// Where the files lie that are asked for, in the order in which they are; all, where none is. Empty ones lie nowhere.
fn chosen(items: &Items, wanted: &[impl AsRef<Path>]) -> Result<Vec<Vec<ReadRange>>, Failure> {
    let all = [Path::new("")];
    let wanted: Vec<&Path> = match wanted {
        [] => all.to_vec(),
        wanted => wanted.iter().map(AsRef::as_ref).collect(),
    };
    let mut files = Vec::new();
    for path in wanted {
        let path = path.as_os_str().as_bytes().trim_ascii_end();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let Some(item) = items.get(path) else {
            return Err(Failure::usage(anyhow!(
                "there is no {} on it; 'xio inspect' shows what there is",
                shortened(path)
            )));
        };
        match item.kind {
            Kind::File => files.push(runs(item)),
            Kind::Directory => {
                let below = items.iter().filter(|(at, item)| {
                    let rest = at.strip_prefix(path).filter(|_| item.kind == Kind::File);
                    rest.is_some_and(|rest| path.is_empty() || rest.starts_with(b"/"))
                });
                files.extend(below.map(|(_, item)| runs(item)));
            }
            Kind::Symlink => {
                return Err(Failure::usage(anyhow!(
                    "{} is a symbolic link: name the file that it leads to",
                    shortened(path)
                )));
            }
        }
    }
    Ok(files)
}

fn runs(item: &contents::Item) -> Vec<ReadRange> {
    let runs = item.runs.into_iter().filter(|(_, bytes)| *bytes > 0);
    runs.map(|(offset, bytes)| ReadRange { offset, bytes })
        .collect()
}

/// Files as samples, which have a number across all of them.
struct Samples {
    files: Vec<Vec<ReadRange>>,
    /// By file: the number of its first sample, and that behind the last one's.
    firsts: Vec<u64>,
    bytes: Option<u64>,
}

impl Samples {
    /// Of so many bytes; without, each file is one.
    fn new(files: Vec<Vec<ReadRange>>, bytes: Option<u64>) -> Result<Samples, Failure> {
        if bytes == Some(0) {
            return Err(Failure::usage(anyhow!(
                "--samples: a sample has a byte at least"
            )));
        }
        let mut firsts = vec![0];
        let mut count = 0;
        for file in &files {
            let whole: u64 = file.iter().map(|run| run.bytes).sum();
            count += bytes.map_or(u64::from(whole > 0), |bytes| whole.div_ceil(bytes));
            firsts.push(count);
        }
        Ok(Samples {
            files,
            firsts,
            bytes,
        })
    }

    fn count(&self) -> u64 {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Where a sample lies.
    fn ranges(&self, number: u64) -> impl Iterator<Item = ReadRange> + '_ {
        let file = self.firsts.partition_point(|first| *first <= number) - 1;
        let bytes = self.bytes.unwrap_or(u64::MAX);
        let first = self.firsts.get(file).copied().unwrap_or(0);
        let begin = (number - first).saturating_mul(bytes);
        let end = begin.saturating_add(bytes);
        let runs = self.files.get(file).into_iter().flatten();
        // Each run with the place of its first byte in the file.
        let placed = runs.scan(0, |at, run| {
            let place = *at;
            *at += run.bytes;
            Some((place, run))
        });
        placed.filter_map(move |(place, run)| {
            let (from, to) = (begin.max(place), end.min(place + run.bytes));
            (from < to).then(|| ReadRange {
                offset: run.offset + (from - place),
                bytes: to - from,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(bytes: Option<u64>, shuffle: Option<u64>) -> Vec<String> {
        let run = |(offset, bytes)| ReadRange { offset, bytes };
        let files = vec![
            [(1000, 250), (7000, 30)].map(run).to_vec(),
            Vec::new(),
            vec![run((5000, 200))],
        ];
        let mut text = Vec::new();
        let samples = Samples::new(files, bytes).unwrap();
        print(&mut text, &samples, shuffle).unwrap();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn files_are_cut_into_samples_across_their_pieces() {
        assert_eq!(printed(None, None), ["1000 250", "7000 30", "5000 200"]);
        let samples = [
            "1000 100", "1100 100", "1200 50", "7000 30", "5000 100", "5100 100",
        ];
        assert_eq!(printed(Some(100), None), samples);
        let samples = ["1000 240", "1240 10", "7000 30", "5000 200"];
        assert_eq!(printed(Some(240), None), samples);
    }

    #[test]
    fn shuffled_is_the_same_in_another_order_and_a_sample_stays_together() {
        let plain = printed(Some(100), None);
        let mut seen = std::collections::HashSet::new();
        for seed in 0..50 {
            let mut lines = printed(Some(100), Some(seed));
            assert_eq!(lines, printed(Some(100), Some(seed)));
            let tail = lines.iter().position(|line| line == "7000 30").unwrap();
            assert_eq!(lines[tail - 1], "1200 50");
            seen.insert(lines.clone());
            lines.sort_by_key(|line| plain.iter().position(|it| it == line));
            assert_eq!(lines, plain);
        }
        assert!(seen.len() > 20, "of the 120 orders: {}", seen.len());
    }
}
