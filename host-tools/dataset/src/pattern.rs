//! Patterns of names: which files a rule is about.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use formats::wildcard::is_match;

use crate::items::split;
use crate::names::{LISTED, listed};

/// `*` is any run of bytes. With a `/` in it it is held against the path from the root on, otherwise against the file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
}

impl Pattern {
    /// Whether the file at `path` is one of those.
    #[must_use]
    pub fn fits(&self, path: &[u8]) -> bool {
        let pattern = self.text.as_bytes();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let text = if pattern.contains(&b'/') { path } else { name };
        is_match(pattern, text, None)
    }
}

impl FromStr for Pattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Pattern, Infallible> {
        Ok(Pattern {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// The options that keep the files at `paths` and none of those at `spared`, as a shell takes them: `--keep '*.npy'`. Several files of one ending have one.
#[must_use]
pub fn keep_options<'a>(paths: impl IntoIterator<Item = &'a [u8]>, spared: &[&[u8]]) -> String {
    let is_sparing = |text: &str| {
        let pattern = Pattern {
            text: text.to_owned(),
        };
        !spared.iter().any(|path| pattern.fits(path))
    };
    let mut endings: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for path in paths {
        let name = split(path).1;
        let dot = name.iter().rposition(|byte| *byte == b'.');
        let ending = dot.and_then(|dot| name.get(dot..));
        endings
            .entry(ending.unwrap_or(name))
            .or_default()
            .push(path);
    }
    let mut options: Vec<String> = Vec::new();
    for (ending, paths) in &endings {
        let all = format!("*{}", literal(ending));
        if paths.len() > 1 && is_sparing(&all) {
            options.push(all);
            continue;
        }
        // What is not said is not held against all names.
        let said = LISTED.saturating_sub(options.len());
        options.extend(paths.iter().enumerate().map(|(index, path)| {
            let name = literal(split(path).1);
            if index >= said || is_sparing(&name) {
                name
            } else {
                literal(path)
            }
        }));
    }
    options.dedup();
    let options = options
        .iter()
        .map(|text| format!("--keep {}", quoted(text)));
    listed(options.collect(), " ")
}

/// A pattern that fits this path: what is not UTF-8 or not printed stands for any bytes.
fn literal(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    text.replace(
        |it: char| it == char::REPLACEMENT_CHARACTER || it.is_control(),
        "*",
    )
}

/// One word of a shell's line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_keep_what_is_named_and_nothing_else() {
        let options =
            |paths: &[&[u8]], spared: &[&[u8]]| keep_options(paths.iter().copied(), spared);
        assert_eq!(options(&[b"x/a.npy"], &[b"b.npy"]), "--keep 'a.npy'");
        assert_eq!(options(&[b"x/a.npy"], &[b"y/a.npy"]), "--keep 'x/a.npy'");
        let two: [&[u8]; 2] = [b"x/a.npy", b"b.npy"];
        assert_eq!(options(&two, &[b"a.npz"]), "--keep '*.npy'");
        assert_eq!(options(&two, &[b"c.npy"]), "--keep 'a.npy' --keep 'b.npy'");
        let odd: [&[u8]; 3] = [b"it's", b"x\xFF\n.bin", b"*"];
        assert_eq!(
            options(&odd, &[]),
            r"--keep '*' --keep 'x**.bin' --keep 'it'\''s'"
        );
        for path in odd {
            let pattern = Pattern {
                text: literal(path),
            };
            assert!(pattern.fits(path), "{pattern}");
        }
        let many: Vec<String> = (0..7).map(|it| it.to_string()).collect();
        let many: Vec<&[u8]> = many.iter().map(String::as_bytes).collect();
        let said = "--keep '0' --keep '1' --keep '2' --keep '3' --keep '4' and 2 more";
        assert_eq!(options(&many, &[]), said);
    }

    #[test]
    fn patterns_fit_names_or_paths() {
        let fits = |pattern: &str, path: &[u8]| {
            let pattern: Pattern = pattern.parse().unwrap();
            pattern.fits(path)
        };
        for (pattern, path) in [
            ("*", &b"a/b"[..]),
            ("*.bin", b"x/train.bin"),
            ("train.*", b"x/train.bin"),
            ("*a*b*", b"xxaxxabx"),
            ("x/*", b"x/y/z"),
            ("*/z", b"x/y/z"),
            ("*aab", b"aaab"),
            ("\u{e9}*", "\u{e9}".as_bytes()),
        ] {
            assert!(fits(pattern, path), "{pattern}");
        }
        for (pattern, path) in [
            ("", &b"a"[..]),
            ("*.bin", b"x/train.idx"),
            ("*.bin", b"a.bin/x"),
            ("train", b"train.bin"),
            ("x/*", b"y/x/z"),
            ("*b*a", b"ab"),
        ] {
            assert!(!fits(pattern, path), "{pattern}");
        }
    }
}
