//! Patterns of names: which files a rule is about.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

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
        matches(pattern, text)
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

/// Greedy, with one place to come back to: the last `*`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while let Some(byte) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(wanted) if wanted == byte => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                p = star_at + 1;
                t = taken + 1;
            }
        }
    }
    let rest = pattern.get(p..).unwrap_or_default();
    rest.iter().all(|byte| *byte == b'*')
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
