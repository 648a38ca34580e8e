//! A table of the file, read key by key: every value knows its place, and a key that nobody knows is refused.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::{ConfigError, Place};

/// The file and its text: turns a span into a place.
#[derive(Clone, Copy, Debug)]
pub struct Text<'t> {
    pub file: &'t Path,
    pub text: &'t str,
}

impl Text<'_> {
    /// Line and column of a byte.
    pub fn place(&self, byte: usize) -> Place {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or("").chars().count() + 1,
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct At<T> {
    pub value: T,
    pub span: Range<usize>,
    pub key: String,
}

/// A table of the file.
#[derive(Debug)]
pub struct Section<'t> {
    text: Text<'t>,
    name: String,
    span: Range<usize>,
    table: &'t DeTable<'t>,
}

impl<'t> Section<'t> {
    /// Takes a table whose keys are `known`.
    ///
    /// # Errors
    /// A key that is not.
    pub fn new(
        text: Text<'t>,
        name: &str,
        table: &'t DeTable<'t>,
        span: Range<usize>,
        known: &[&str],
    ) -> Result<Self, ConfigError> {
        let section = Self {
            text,
            name: name.to_owned(),
            span,
            table,
        };
        let mut unknown: Vec<&Spanned<DeString<'_>>> = table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .collect();
        // The first one in the file: a table has its keys in the order of the alphabet.
        unknown.sort_by_key(|key| key.span().start);
        match unknown.first() {
            None => Ok(section),
            Some(key) => Err(section.unknown(key, known)),
        }
    }

    fn unknown(&self, key: &Spanned<DeString<'_>>, known: &[&str]) -> ConfigError {
        let hint = match nearest(key.get_ref(), known) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known here: {}", known.join(", ")),
        };
        self.error(
            key.span(),
            key.get_ref(),
            format!("there is no such key; {hint}"),
        )
    }

    /// An error about a key of this section, at a place.
    pub fn error(&self, span: Range<usize>, key: &str, why: impl Into<String>) -> ConfigError {
        let key = if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{} {key}", self.name)
        };
        ConfigError::Key {
            place: self.text.place(span.start),
            key,
            why: why.into(),
        }
    }

    /// An error about a value.
    pub fn wrong<T>(&self, at: &At<T>, why: impl Into<String>) -> ConfigError {
        self.error(at.span.clone(), &at.key, why)
    }

    /// The place of a value, for messages about another one.
    pub fn line_of(&self, span: &Range<usize>) -> usize {
        self.text.place(span.start).line
    }

    /// Where the section stands.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// A key that must be there.
    pub fn required<T>(
        &self,
        found: Option<At<T>>,
        key: &str,
        why: &str,
    ) -> Result<At<T>, ConfigError> {
        found.ok_or_else(|| self.error(self.span(), key, format!("it is missing; {why}")))
    }

    fn value(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.get(key)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        take: impl FnOnce(&'t DeValue<'t>) -> Option<T>,
    ) -> Result<Option<At<T>>, ConfigError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match take(value.get_ref()) {
            Some(taken) => Ok(Some(At {
                value: taken,
                span: value.span(),
                key: key.to_owned(),
            })),
            None => {
                let found = value.get_ref().type_str();
                Err(self.error(
                    value.span(),
                    key,
                    format!("{expected} is expected here, and this is a TOML {found}"),
                ))
            }
        }
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<At<&'t str>>, ConfigError> {
        self.typed(key, "a text in quotes", |value| value.as_str())
    }

    /// A text that means something.
    pub fn parsed<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<At<T>>, ConfigError> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let value = parse(text.value)
            .map_err(|why| self.wrong(&text, format!("{:?}: {why}", text.value)))?;
        Ok(Some(At {
            value,
            span: text.span,
            key: text.key,
        }))
    }

    /// true or false.
    pub fn flag(&self, key: &str) -> Result<Option<At<bool>>, ConfigError> {
        self.typed(key, "true or false", |value| value.as_bool())
    }

    /// A whole number within a range.
    pub fn number<T>(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<Option<At<T>>, ConfigError>
    where
        T: TryFrom<u64> + PartialOrd + std::fmt::Display + Copy,
    {
        let (low, high) = (*range.start(), *range.end());
        let expected = format!("a whole number from {low} to {high}");
        let Some(number) = self.typed(key, &expected, whole)? else {
            return Ok(None);
        };
        let fits = number
            .value
            .and_then(|value| T::try_from(value).ok())
            .filter(|value| range.contains(value));
        match fits {
            Some(value) => Ok(Some(At {
                value,
                span: number.span,
                key: number.key,
            })),
            None => Err(self.wrong(&number, format!("it must be {expected}"))),
        }
    }

    /// A size: `"64KiB"`, or bytes as a number.
    pub fn size(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<At<u64>>, ConfigError> {
        let expected = "a size such as \"64MiB\"";
        let found = self.typed(key, expected, |value| match value {
            DeValue::String(text) => {
                Some(store::parse_size(text).map_err(|why| format!("{text:?}: {why}")))
            }
            DeValue::Integer(_) => {
                Some(whole(value)?.ok_or_else(|| format!("{expected} is expected here")))
            }
            _ => None,
        })?;
        let Some(found) = found else { return Ok(None) };
        let bytes = found.value.clone().map_err(|why| self.wrong(&found, why))?;
        if !range.contains(&bytes) {
            let why = format!(
                "{bytes} bytes; it must be from {} to {} bytes",
                range.start(),
                range.end()
            );
            return Err(self.wrong(&found, why));
        }
        Ok(Some(At {
            value: bytes,
            span: found.span,
            key: found.key,
        }))
    }

    /// A time: `"10s"`, `"500ms"`.
    pub fn time(&self, key: &str, longest: Duration) -> Result<Option<At<Duration>>, ConfigError> {
        self.parsed(key, |text| {
            let time = parse_time(text).ok_or("a time is a whole number and ms or s")?;
            if time > longest {
                return Err(format!("it is over {} s", longest.as_secs()));
            }
            Ok(time)
        })
    }

    /// A list of texts that mean something.
    pub fn list<T>(
        &self,
        key: &str,
        entries_max: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<At<Vec<T>>>, ConfigError> {
        let Some(array) = self.typed(key, "a list of texts", |value| value.as_array())? else {
            return Ok(None);
        };
        if array.value.len() > entries_max {
            let why = format!("it has more than {entries_max} entries");
            return Err(self.wrong(&array, why));
        }
        let mut all = Vec::with_capacity(array.value.len());
        for entry in array.value.iter() {
            let entry_error = |why: String| self.error(entry.span(), key, why);
            let text = entry.get_ref().as_str();
            let text = text.ok_or_else(|| entry_error("each entry is a text in quotes".into()))?;
            all.push(parse(text).map_err(|why| entry_error(format!("{text:?}: {why}")))?);
        }
        Ok(Some(At {
            value: all,
            span: array.span,
            key: array.key,
        }))
    }

    /// The table `[name]`, if it is there.
    pub fn table(&self, key: &str, known: &[&str]) -> Result<Option<Section<'t>>, ConfigError> {
        let name = self.path_of(key);
        let expected = format!("a table, [{name}],");
        let Some(table) = self.typed(key, &expected, |value| value.as_table())? else {
            return Ok(None);
        };
        let name = format!("[{name}]");
        Section::new(self.text, &name, table.value, table.span, known).map(Some)
    }

    /// The tables `[[name]]`.
    pub fn tables(
        &self,
        key: &str,
        entries_max: usize,
        known: &[&str],
    ) -> Result<Vec<Section<'t>>, ConfigError> {
        let path = self.path_of(key);
        let expected = format!("a list of tables, each with the heading [[{path}]],");
        let Some(array) = self.typed(key, &expected, |value| value.as_array())? else {
            return Ok(Vec::new());
        };
        if array.value.len() > entries_max {
            let why = format!("there are more than {entries_max}");
            return Err(self.wrong(&array, why));
        }
        let mut all = Vec::with_capacity(array.value.len());
        for entry in array.value.iter() {
            let table = entry.get_ref().as_table();
            let table = table
                .ok_or_else(|| self.error(entry.span(), key, format!("{expected} is expected")))?;
            let name = format!("[[{path}]]");
            all.push(Section::new(self.text, &name, table, entry.span(), known)?);
        }
        Ok(all)
    }

    fn path_of(&self, key: &str) -> String {
        let own = self.name.trim_matches(['[', ']']);
        if own.is_empty() {
            key.to_owned()
        } else {
            format!("{own}.{key}")
        }
    }
}

/// A whole number that is not negative; the inner `None` is one that is, or that is too large.
#[allow(
    clippy::option_option,
    reason = "a TOML integer or not, and one that fits or not"
)]
fn whole(value: &DeValue<'_>) -> Option<Option<u64>> {
    let number = value.as_integer()?;
    Some(u64::from_str_radix(number.as_str(), number.radix()).ok())
}

fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text.strip_suffix(digits)?.parse().ok()?;
    match digits {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// The known key that was probably meant: at most a third of its letters differ.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let (distance, near) = known
        .iter()
        .map(|candidate| (distance(key, candidate), *candidate))
        .min()?;
    (distance <= (near.len().max(key.len())) / 3).then_some(near)
}

/// Levenshtein's distance, a neighbouring swap counted as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = usize::from(a[i - 1] != b[j - 1]);
                let mut best = (rows[i - 1][j] + 1)
                    .min(rows[i][j - 1] + 1)
                    .min(rows[i - 1][j - 1] + changed);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}
