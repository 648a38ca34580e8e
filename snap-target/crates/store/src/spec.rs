//! Names of stores on a command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::StoreError;

/// Largest `mem:`, `null:` or `void:` store: 8 EiB, so that offsets stay positive as file offsets.
pub const BYTES_MAX: u64 = 1 << 63;

/// Which store to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSpec {
    /// `mem:SIZE`: zero-filled memory of this process.
    Mem {
        /// Size.
        bytes: u64,
    },
    /// `file:PATH` or a bare path: a regular file or a block device.
    File {
        /// Where.
        path: PathBuf,
    },
    /// `null:SIZE`: reads zeros, takes and forgets writes.
    Null {
        /// Size.
        bytes: u64,
    },
    /// `void:SIZE`: as `null:`, but what is read means nothing, and memory of a guest's stays as it is.
    Void {
        /// Size.
        bytes: u64,
    },
}

impl StoreSpec {
    /// Parses `mem:512MiB`, `file:PATH`, `null:1TiB`, `void:1TiB`, or a bare path. Sizes are bytes, or with KiB, MiB, GiB, TiB (powers of 1024) or
    /// kB, MB, GB, TB (powers of 1000).
    ///
    /// # Errors
    /// [`StoreError::Spec`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let wrong = |why: &'static str| StoreError::Spec {
            text: text.to_owned(),
            why: why.into(),
        };
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        match text.split_once(':') {
            Some(("mem", size)) => Ok(Self::Mem {
                bytes: parse_size(size).map_err(wrong)?,
            }),
            Some(("null", size)) => Ok(Self::Null {
                bytes: parse_size(size).map_err(wrong)?,
            }),
            Some(("void", size)) => Ok(Self::Void {
                bytes: parse_size(size).map_err(wrong)?,
            }),
            Some(("file", "")) => Err(wrong("the path is empty")),
            Some(("file", path)) => Ok(Self::File { path: path.into() }),
            // A scheme has no slash in front of its colon; ./a:b is a path.
            Some((scheme, _))
                if !scheme.contains('/')
                    && is_scheme(scheme)
                    && !std::path::Path::new(text).exists() =>
            {
                Err(wrong(
                    "no store of this kind is known (write file:PATH for a path with a colon)",
                ))
            }
            _ => Ok(Self::File { path: text.into() }),
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.len() > 1
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// A size of at least one byte and at most 8 EiB, as [`StoreSpec::parse`] writes sizes: `4096`, `64KiB`, `2GB`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, &'static str> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if unit.starts_with('.') {
        return Err("the size must be a whole number: write 1536MiB for 1.5GiB");
    }
    let number: u64 = number
        .parse()
        .map_err(|_| "the size must start with a whole number")?;
    let unit: u64 = match unit {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err("the unit must be one of KiB, MiB, GiB, TiB, kB, MB, GB, TB"),
    };
    match number.checked_mul(unit) {
        Some(0) => Err("the size must not be zero"),
        Some(bytes) if bytes <= BYTES_MAX => Ok(bytes),
        _ => Err("the size is over 8 EiB"),
    }
}

impl FromStr for StoreSpec {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        Self::parse(text)
    }
}

/// A size as [`parse_size`] takes it, in the largest power of 1024 that leaves nothing over: `512MiB`, `1000000`.
pub struct Exact(pub u64);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let fits = units
            .iter()
            .find(|(shift, _)| self.0.trailing_zeros() >= *shift && self.0 > 0);
        match fits {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mem { bytes } => write!(f, "mem:{}", Exact(*bytes)),
            Self::File { path } => write!(f, "file:{}", path.display()),
            Self::Null { bytes } => write!(f, "null:{}", Exact(*bytes)),
            Self::Void { bytes } => write!(f, "void:{}", Exact(*bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_each_kind() {
        assert_eq!(
            StoreSpec::parse("mem:512MiB"),
            Ok(StoreSpec::Mem { bytes: 512 << 20 })
        );
        assert_eq!(
            StoreSpec::parse("mem:4096"),
            Ok(StoreSpec::Mem { bytes: 4096 })
        );
        assert_eq!(
            StoreSpec::parse("null:1TiB"),
            Ok(StoreSpec::Null { bytes: 1 << 40 })
        );
        assert_eq!(
            StoreSpec::parse("void:1TiB"),
            Ok(StoreSpec::Void { bytes: 1 << 40 })
        );
        assert_eq!(
            StoreSpec::parse("null:2GB"),
            Ok(StoreSpec::Null {
                bytes: 2_000_000_000
            })
        );
        assert_eq!(
            StoreSpec::parse("file:a/b.raw"),
            Ok(StoreSpec::File {
                path: "a/b.raw".into()
            })
        );
        assert_eq!(
            StoreSpec::parse("a/b.raw"),
            Ok(StoreSpec::File {
                path: "a/b.raw".into()
            })
        );
        assert_eq!(
            StoreSpec::parse("./odd:name"),
            Ok(StoreSpec::File {
                path: "./odd:name".into()
            })
        );
    }

    #[test]
    fn refuses_what_names_nothing() {
        for (text, part) in [
            ("", "empty"),
            ("mem:", "whole number"),
            ("mem:MiB", "whole number"),
            ("mem:-1", "whole number"),
            ("mem:12XiB", "unit"),
            ("mem:1.5GiB", "must be a whole number: write 1536MiB"),
            ("mem:0", "zero"),
            ("mem:9999999TiB", "8 EiB"),
            ("null:18446744073709551616", "whole number"),
            ("file:", "path is empty"),
            ("nvme-tcp:host", "no store of this kind"),
        ] {
            let error = StoreSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains("examples: mem:512MiB"), "{error}");
        }
    }
}
