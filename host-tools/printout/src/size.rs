//! Byte sizes as people write them: `64KiB`, `1MiB`, `4096`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Units are binary and written in full (`KiB`, not `K` or `kB`), so that nobody has to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || {
            format!(
                "'{text}' is not a size; write a whole number of bytes, or one with KiB, MiB, GiB or TiB, such as 64KiB"
            )
        };
        let (digits, unit_bytes) = UNITS
            .iter()
            .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)))
            .unwrap_or((text, 1));
        let count: u64 = digits.trim_end().parse().map_err(|_| wrong())?;
        let bytes = count
            .checked_mul(unit_bytes)
            .ok_or_else(|| format!("'{text}' is more than 2^64 bytes"))?;
        Ok(Size(bytes))
    }
}

/// Exact: the largest unit that divides it.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, bytes) = UNITS
            .iter()
            .find(|(_, bytes)| self.0 != 0 && self.0.is_multiple_of(*bytes))
            .unwrap_or(&("B", 1));
        f.pad(&format!("{}{unit}", self.0 / bytes))
    }
}

/// About how much, to three digits, with its unit: for tables and progress.
#[must_use]
pub fn rounded(bytes: u64) -> String {
    let Some((unit, unit_bytes)) = UNITS.iter().find(|(_, unit_bytes)| bytes >= *unit_bytes) else {
        return "0 B".to_owned();
    };
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = bytes as f64 / *unit_bytes as f64;
    match (*unit_bytes, value) {
        (1, _) => format!("{bytes} B"),
        (_, value) if value < 9.995 => format!("{value:.2} {unit}"),
        (_, value) if value < 99.95 => format!("{value:.1} {unit}"),
        (_, value) => format!("{value:.0} {unit}"),
    }
}

/// The nearest whole number of something that is not negative; saturates.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and nothing here is negative"
)]
#[must_use]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// A count with its thousands apart: `1,973,752`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `2,000 files`: for words whose plural is an `s`.
#[must_use]
pub fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{} {what}s", grouped(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed_again() {
        for (text, bytes, printed) in [
            ("64KiB", 65_536, "64KiB"),
            ("1MiB", 1 << 20, "1MiB"),
            ("4096", 4096, "4KiB"),
            ("512", 512, "512B"),
            ("513B", 513, "513B"),
            ("3 GiB", 3 << 30, "3GiB"),
            ("2TiB", 2 << 40, "2TiB"),
            ("0", 0, "0B"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size, Size(bytes));
            assert_eq!(size.to_string(), printed);
        }
        for text in [
            "",
            "KiB",
            "64K",
            "64kB",
            "-1",
            "1.5MiB",
            "64KB",
            "16777216TiB",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn rounded_sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10_230, "9.99 KiB"),
            (10_236, "10.0 KiB"),
            (1_973_752, "1.88 MiB"),
            (150 << 20, "150 MiB"),
            (5 << 40, "5.00 TiB"),
        ] {
            assert_eq!(rounded(bytes), text);
        }
    }

    #[test]
    fn thousands_are_apart() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_973_752, "1,973,752"),
        ] {
            assert_eq!(grouped(count), text);
        }
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(0, "file"), "0 files");
        assert_eq!(counted(1, "symbolic link"), "1 symbolic link");
        assert_eq!(counted(1234, "folder"), "1,234 folders");
    }
}
