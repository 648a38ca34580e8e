//! Patterns of names: which files a rule is about.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use formats::wildcard::is_match;

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

#[cfg(test)]
mod tests {
    use super::*;

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
