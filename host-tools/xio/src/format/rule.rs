//! Which files are stored how.

use std::str::FromStr;

use transforms::{Chain, ElementType};

/// `PATTERN=TYPE:CHAIN`.
#[derive(Clone, Debug)]
pub struct Rule {
    pattern: Vec<u8>,
    /// As it was given.
    pub text: String,
    /// How the files that it fits are stored.
    pub chain: Chain,
}

impl Rule {
    /// The rule for what no other fits: bytes, as they are.
    pub fn rest() -> Result<Rule, String> {
        "*=u8:none".parse()
    }

    /// Whether the file at `path`, from the folder on, is one of the rule's: `*` is any run of bytes. A pattern without a `/` is held against the
    /// file's name, one with it against the path.
    pub fn fits(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let text = if self.pattern.contains(&b'/') {
            path
        } else {
            name
        };
        matches(&self.pattern, text)
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let parts = text.split_once('=').and_then(|(pattern, stored)| {
            let (element_type, chain) = stored.split_once(':')?;
            Some((pattern, element_type, chain))
        });
        let (pattern, element_type, chain) =
            parts.ok_or("it is PATTERN=TYPE:CHAIN, such as '*.bin=u32:u16+lz4'")?;
        let element_type: ElementType = element_type
            .parse()
            .map_err(|error| format!("{element_type}: {error}"))?;
        let chain =
            Chain::parse(chain, element_type).map_err(|error| format!("{chain}: {error}"))?;
        Ok(Rule {
            pattern: pattern.as_bytes().to_vec(),
            text: text.to_owned(),
            chain,
        })
    }
}

/// Greedy, with one place to come back to: the last `*`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => {
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
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_or_paths() {
        let fits = |pattern: &str, path: &[u8]| {
            let rule: Rule = format!("{pattern}=u8:none").parse().unwrap();
            rule.fits(path)
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

    #[test]
    fn rules_say_what_is_wrong_with_them() {
        let said = |text: &str| text.parse::<Rule>().unwrap_err();
        for text in ["*.bin", "*.bin=u32", "=", ""] {
            assert_eq!(
                said(text),
                "it is PATTERN=TYPE:CHAIN, such as '*.bin=u32:u16+lz4'"
            );
        }
        assert!(
            said("*=u33:none").starts_with("u33: "),
            "{}",
            said("*=u33:none")
        );
        assert!(
            said("*=u32:zip").starts_with("zip: "),
            "{}",
            said("*=u32:zip")
        );
    }
}
