//! A moment as RFC 3339 writes it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Displays a moment in UTC with microseconds: `2026-11-21T16:20:03.123456Z`.
pub(crate) struct Utc(pub(crate) SystemTime);

const DAY_SECONDS: u64 = 86_400;

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Before 1970 no target ran.
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, seconds) = (since.as_secs() / DAY_SECONDS, since.as_secs() % DAY_SECONDS);
        let (year, month, day) = date_of(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            since.subsec_micros()
        )
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years begin in March here, so that the leap day is the last of its year; 400 of them have 146,097 days.
fn date_of(days: u64) -> (u64, u64, u64) {
    // From 0000-03-01.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Months of 31, 30, 31, 30, 31 days from March on: 153 days in five.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{Utc, date_of};

    #[test]
    fn days_follow_each_other_through_every_kind_of_year() {
        let leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let length = |year: u64, month: u64| match month {
            2 if leap(year) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let (mut year, mut month, mut day) = (1970, 1, 1);
        // To the year 2410: 2000 and 2400 are leap years, 2100 is not.
        for days in 0..161_000 {
            assert_eq!(date_of(days), (year, month, day));
            day += 1;
            if day > length(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn a_moment_is_written_to_the_microsecond() {
        let moment = UNIX_EPOCH + Duration::from_nanos(1_000_000_000_123_456_789);
        assert_eq!(Utc(moment).to_string(), "2001-09-09T01:46:40.123456Z");
    }
}
