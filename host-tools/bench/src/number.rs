//! Numbers as fio's users write them: `4k`, `1g`, `64KiB`, `30s`, `50%`.

use std::time::Duration;

/// A size, or a part of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of what is there; 1 to 100.
    Percent(u8),
}

const SIZES: [(&str, u32); 5] = [("k", 10), ("m", 20), ("g", 30), ("t", 40), ("p", 50)];

/// Bytes: a number with `k`, `m`, `g`, `t` or `p` (also `kb`, `KiB` and so on; always powers of 1024, as fio's default), or `0x` and
/// hexadecimal digits.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write 4096, 4k, 1m or 1g");
    let lower = text.trim().to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong());
    }
    let end = lower
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(lower.len());
    let (digits, suffix) = lower.split_at(end);
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = suffix
        .strip_suffix("ib")
        .or_else(|| suffix.strip_suffix('b'))
        .unwrap_or(suffix);
    let shift = match (unit, suffix) {
        ("", "" | "b") => 0,
        _ => SIZES
            .iter()
            .find_map(|(name, shift)| (*name == unit).then_some(*shift))
            .ok_or_else(wrong)?,
    };
    count
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("'{text}' is more than 2^64 bytes"))
}

/// Bytes, or `50%`.
pub fn amount(text: &str) -> Result<Amount, String> {
    match text.trim().strip_suffix('%') {
        Some(digits) => digits
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .map(Amount::Percent)
            .ok_or_else(|| format!("'{text}' is no share from 1% to 100%")),
        None => bytes(text).map(Amount::Bytes),
    }
}

/// A time: seconds, or with `us`, `ms`, `s`, `m`, `h` or `d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time; write 30, 30s, 500ms or 5m");
    let text = text.trim();
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    let unit_us: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(wrong()),
    };
    let us = count.checked_mul(unit_us).ok_or_else(wrong)?;
    Ok(Duration::from_micros(us))
}

/// A whole number within limits.
pub fn count(text: &str, min: u64, max: u64) -> Result<u64, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|count| (min..=max).contains(count))
        .ok_or_else(|| format!("'{text}' is not a whole number from {min} to {max}"))
}

/// `1` or `0`; an option without a value is 1.
pub fn flag(text: Option<&str>) -> Result<bool, String> {
    match text.map(str::trim) {
        None | Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(other) => Err(format!("'{other}' is neither 1 nor 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_mean_what_fio_means_by_them() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4KiB", 4096),
            ("1m", 1 << 20),
            ("3G", 3 << 30),
            ("2t", 2 << 40),
            ("0x1000", 4096),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "k",
            "4q",
            "4ki",
            "4ib",
            "1.5m",
            "-1",
            "4k4",
            "17179869184g",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(amount("50%"), Ok(Amount::Percent(50)));
        assert_eq!(amount("8k"), Ok(Amount::Bytes(8192)));
        assert!(amount("0%").is_err() && amount("101%").is_err());
    }

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        for (text, us) in [
            ("2", 2_000_000),
            ("2s", 2_000_000),
            ("500ms", 500_000),
            ("7us", 7),
            ("3m", 180_000_000),
            ("1h", 3_600_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
        assert!(duration("1w").is_err() && duration("").is_err() && duration("s").is_err());
    }
}
