//! How far an order came: a bar at a terminal, a line each second elsewhere, each message as JSON for programs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin_proto::v1;
use printout::size::{counted, grouped, rounded, whole};
use printout::stdout::Reader;

use super::asked::{Asked, Sum};
use crate::context::Context;
use crate::failure::Failure;
use crate::json;

/// Between two lines where no terminal is.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// The rate is that of so long.
const RATE_SPAN: Duration = Duration::from_secs(5);
/// Cells of the bar.
const BAR_CELLS: u64 = 20;
/// Columns of a terminal that does not say.
const COLUMNS: u16 = 80;
/// To the line's beginning, and nothing behind it.
const CLEAR: &str = "\r\x1b[K";

/// Who is shown it, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Json,
    Bar,
    Lines,
}

/// Shows how far one order came.
pub struct Shown<'a> {
    context: &'a Context,
    how: How,
    asked: Arc<Asked>,
    course: RefCell<Course>,
}

impl<'a> Shown<'a> {
    /// Of an order of which so much has been read.
    pub fn new(context: &'a Context, asked: Arc<Asked>) -> Self {
        let how = match (context.json(), std::io::stdout().is_terminal()) {
            (true, _) => How::Json,
            (_, true) => How::Bar,
            _ => How::Lines,
        };
        Self {
            context,
            how,
            asked,
            course: RefCell::default(),
        }
    }

    /// The daemon tells how far it came.
    pub fn told(&self, told: &v1::PrefetchResponse) -> Result<Reader, Failure> {
        let (now, asked) = (Instant::now(), self.asked.sum());
        let course = &mut *self.course.borrow_mut();
        course.add(now, told);
        let text = match self.how {
            How::Json => format!("{}\n", json::line(told)?),
            _ if told.complete => format!("{}{}\n", self.clear(), through(told)),
            How::Bar => {
                let line = bar(told, asked, course.rate());
                // One that is wrapped could not be taken away.
                let fits = line.chars().take(usize::from(columns()) - 1);
                format!("{CLEAR}{}", fits.collect::<String>())
            }
            How::Lines if course.is_due(now) => {
                format!("{}\n", so_far(told, asked, course.rate()))
            }
            How::Lines => return Ok(Reader::There),
        };
        self.context.print(&text)
    }

    /// Whoever gave it ends it.
    pub fn interrupted(&self) -> Result<(), Failure> {
        let last = self.course.borrow().last.clone().unwrap_or_default();
        if self.how == How::Json {
            return Ok(());
        }
        let (fetched, kept) = (rounded(last.fetched_bytes), rounded(last.ahead_bytes));
        let text = format!(
            "{}interrupted: {fetched} of the disk were fetched; {kept} of them are in the cache and wait for their reader\n",
            self.clear()
        );
        self.context.print(&text).map(|_| ())
    }

    /// Takes the bar away, where something else is to be said.
    pub fn cleared(&self) {
        // What is said next says what there is to say.
        let _seen = self.context.print(self.clear());
    }

    fn clear(&self) -> &'static str {
        match self.how {
            How::Bar => CLEAR,
            How::Json | How::Lines => "",
        }
    }
}

/// Columns of the terminal, from 1.
fn columns() -> u16 {
    match ratatui::crossterm::terminal::size() {
        Ok((columns @ 1.., _)) => columns,
        _ => COLUMNS,
    }
}

/// What was told by now.
#[derive(Default)]
struct Course {
    /// When so many bytes of the disk had been fetched, within the span of the rate.
    fetched: VecDeque<(Instant, u64)>,
    shown_at: Option<Instant>,
    last: Option<v1::PrefetchResponse>,
}

impl Course {
    fn add(&mut self, now: Instant, told: &v1::PrefetchResponse) {
        self.fetched.push_back((now, told.fetched_bytes));
        while let Some((at, _)) = self.fetched.front()
            && now.saturating_duration_since(*at) > RATE_SPAN
        {
            self.fetched.pop_front();
        }
        self.last = Some(told.clone());
    }

    /// Bytes of the disk a second; none where that is not known, or nothing came.
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn rate(&self) -> Option<f64> {
        let ((from, before), (to, now)) = (self.fetched.front()?, self.fetched.back()?);
        let seconds = to.saturating_duration_since(*from).as_secs_f64();
        let bytes = now.saturating_sub(*before);
        (seconds > 0.0 && bytes > 0).then(|| bytes as f64 / seconds)
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .shown_at
            .is_none_or(|at| now.saturating_duration_since(at) >= LINE_INTERVAL);
        if is_due {
            self.shown_at = Some(now);
        }
        is_due
    }
}

/// `[#####---------------]  25 %  128 MiB of 512 MiB fetched  190 MiB/s  0:02 left  32.0 MiB in the cache`
fn bar(told: &v1::PrefetchResponse, asked: Sum, rate: Option<f64>) -> String {
    let share = |of: u64| {
        let all = u128::from(asked.bytes.max(1));
        u64::try_from(u128::from(told.fetched_bytes) * u128::from(of) / all).unwrap_or(of)
    };
    // Where more is to come nobody knows yet what a whole is.
    let begun = if asked.is_all {
        let full = usize::try_from(share(BAR_CELLS).min(BAR_CELLS)).unwrap_or(0);
        let cells = usize::try_from(BAR_CELLS).unwrap_or(0);
        let (full, rest) = ("#".repeat(full), "-".repeat(cells - full));
        format!("[{full}{rest}] {:>3} %  ", share(100).min(100))
    } else {
        String::new()
    };
    let kept = rounded(told.ahead_bytes);
    format!("{begun}{}  {kept} in the cache", fetched(told, asked, rate))
}

/// `128 MiB of 512 MiB fetched  190 MiB/s  0:02 left`
fn fetched(told: &v1::PrefetchResponse, asked: Sum, rate: Option<f64>) -> String {
    let (came, all) = (rounded(told.fetched_bytes), rounded(asked.bytes));
    let more = if asked.is_all { "" } else { " and more" };
    let rate = rate.filter(|_| asked.is_all || told.fetched_bytes > 0);
    let Some(rate) = rate else {
        return format!("{came} of {all}{more} fetched");
    };
    let left = if asked.is_all {
        format!(
            "  {} left",
            time(asked.bytes.saturating_sub(told.fetched_bytes), rate)
        )
    } else {
        String::new()
    };
    format!(
        "{came} of {all}{more} fetched  {}/s{left}",
        rounded(whole(rate))
    )
}

/// The same as a line of a text, with what became of it.
fn so_far(told: &v1::PrefetchResponse, asked: Sum, rate: Option<f64>) -> String {
    let kept = rounded(told.ahead_bytes);
    format!(
        "{}  {kept} in the cache; {}",
        fetched(told, asked, rate),
        read(told)
    )
}

/// The last line: what was asked for is done, and its reader is where he is.
fn through(told: &v1::PrefetchResponse) -> String {
    let (ranges, bytes) = (
        counted(told.given_ranges, "range"),
        rounded(told.given_bytes),
    );
    let rest = match told.ahead_bytes {
        0 => String::new(),
        kept => format!("; {} in the cache wait for their reader", rounded(kept)),
    };
    format!(
        "all of {ranges}, {bytes} of the disk, fetched{rest}; {}",
        read(told)
    )
}

fn read(told: &v1::PrefetchResponse) -> String {
    let (hits, late, wasted) = (grouped(told.hits), grouped(told.late), grouped(told.wasted));
    format!("frames read: {hits} in time, {late} late; {wasted} wasted")
}

/// Minutes and seconds, with hours where there are any.
#[expect(clippy::cast_precision_loss, reason = "whole seconds are shown")]
fn time(bytes: u64, rate: f64) -> String {
    let seconds = whole((bytes as f64 / rate).ceil());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fetched_mib: u64) -> v1::PrefetchResponse {
        v1::PrefetchResponse {
            given_ranges: 1200,
            given_bytes: 512 << 20,
            fetched_bytes: fetched_mib << 20,
            ahead_bytes: 16 << 20,
            hits: 1234,
            late: 5,
            wasted: 0,
            ..v1::PrefetchResponse::default()
        }
    }

    #[test]
    fn a_bar_has_its_share_its_rate_and_the_time_that_is_left() {
        let all = |is_all| Sum {
            ranges: 1200,
            bytes: 512 << 20,
            is_all,
        };
        let rate = Some(f64::from(100 << 20));
        assert_eq!(
            bar(&told(128), all(true), rate),
            "[#####---------------]  25 %  128 MiB of 512 MiB fetched  100 MiB/s  0:04 left  16.0 MiB in the cache"
        );
        assert_eq!(
            bar(&told(0), all(true), None),
            "[--------------------]   0 %  0 B of 512 MiB fetched  16.0 MiB in the cache"
        );
        assert_eq!(
            bar(&told(512), all(true), rate),
            "[####################] 100 %  512 MiB of 512 MiB fetched  100 MiB/s  0:00 left  16.0 MiB in the cache"
        );
        assert_eq!(
            so_far(&told(128), all(false), rate),
            "128 MiB of 512 MiB and more fetched  100 MiB/s  16.0 MiB in the cache; frames read: 1,234 in time, 5 late; 0 wasted"
        );
        assert_eq!(
            through(&told(512)),
            "all of 1,200 ranges, 512 MiB of the disk, fetched; 16.0 MiB in the cache wait for their reader; frames read: 1,234 in time, 5 late; 0 wasted"
        );
        assert_eq!(time(7200 << 20, 1024.0 * 1024.0), "2:00:00");
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds_and_a_line_comes_each_second() {
        let (mut course, begun) = (Course::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let mut lines = 0;
        for (ms, mib) in [(0, 0), (250, 100), (1000, 100), (1250, 100), (9000, 100)] {
            course.add(at(ms), &told(mib));
            lines += u32::from(course.is_due(at(ms)));
        }
        assert_eq!(lines, 3, "at 0, 1 and 9 s");
        assert_eq!(course.rate(), None, "nothing came in the last 5 s");
        course.add(at(11_000), &told(120));
        assert_eq!(course.rate(), Some(f64::from(10 << 20)));
    }
}
