//! Ranges of a disk in the order in which they will be read, as text: a line for each with its first byte and its number of bytes, a space between.
//!
//! `xio ranges` writes such text; `snapctl namespace prefetch` and `xio bench --order` read it.

use std::fmt;
use std::io::{self, BufRead, Read};

/// Letters of the longest line: two numbers of 20 digits, and room for spaces.
const LINE_BYTES_MAX: u64 = 128;

/// Bytes of a disk that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// The first one.
    pub offset: u64,
    /// How many; at least one, and none of them beyond the last that 64 bits can name.
    pub bytes: u64,
}

impl fmt::Display for ReadRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.offset, self.bytes)
    }
}

/// Why ranges cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RangesError {
    /// What the system says.
    #[error("{name}:{line}: {source}")]
    Io {
        /// What they are read from.
        name: String,
        /// Line, from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A line is none.
    #[error("{name}:{line}: `{text}` is not a first byte and a number of bytes: write 4096 65536")]
    Line {
        /// What it is read from.
        name: String,
        /// Line, from 1.
        line: u64,
        /// The line, as far as it is looked at.
        text: String,
    },
}

/// The ranges of a text, which errors call `name`. Nothing comes after an error.
pub fn read(
    mut text: impl BufRead,
    name: String,
) -> impl Iterator<Item = Result<ReadRange, RangesError>> {
    let (mut line, mut bytes, mut has_failed) = (0, Vec::new(), false);
    std::iter::from_fn(move || {
        line += 1;
        bytes.clear();
        let next = match text
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
        {
            _ if has_failed => return None,
            Ok(0) => return None,
            Ok(_) => parse(&bytes).ok_or_else(|| RangesError::Line {
                name: name.clone(),
                line,
                text: String::from_utf8_lossy(&bytes).trim_end().to_owned(),
            }),
            Err(source) => Err(RangesError::Io {
                name: name.clone(),
                line,
                source,
            }),
        };
        has_failed = next.is_err();
        Some(next)
    })
}

fn parse(line: &[u8]) -> Option<ReadRange> {
    let mut numbers = str::from_utf8(line).ok()?.split_whitespace();
    let (offset, bytes) = (numbers.next()?, numbers.next()?);
    let (offset, bytes): (u64, u64) = (offset.parse().ok()?, bytes.parse().ok()?);
    let is_range = numbers.next().is_none() && bytes > 0 && offset.checked_add(bytes).is_some();
    is_range.then_some(ReadRange { offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Result<ReadRange, String>> {
        let ranges = read(text.as_bytes(), "f".to_owned());
        ranges
            .map(|range| range.map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let ranges = [(0, 1), (u64::MAX - 1, 1), (4096, 65536)];
        let ranges = ranges.map(|(offset, bytes)| ReadRange { offset, bytes });
        let text: String = ranges.iter().map(|range| format!("{range}\n")).collect();
        assert_eq!(text, "0 1\n18446744073709551614 1\n4096 65536\n");
        assert_eq!(all(&text), ranges.map(Ok));
        assert_eq!(
            all(" 7\t8"),
            [Ok(ReadRange {
                offset: 7,
                bytes: 8
            })]
        );
        assert_eq!(all(""), []);
    }

    #[test]
    fn a_wrong_line_is_named_and_the_last() {
        for wrong in [
            "1",
            "a 1",
            "1 2 3",
            "-1 2",
            "",
            "0 0",
            "18446744073709551615 1",
        ] {
            let expected = format!(
                "f:2: `{wrong}` is not a first byte and a number of bytes: write 4096 65536"
            );
            let found = all(&format!("0 1\n{wrong}\n0 1\n"));
            assert_eq!(found[1], Err(expected));
            assert_eq!(found.len(), 2);
        }
        // A line that does not end is not read to its end.
        let long = all(&" ".repeat(1 << 20));
        assert_eq!(long.len(), 1);
        assert!(long[0].as_ref().unwrap_err().len() < 300);
    }
}
