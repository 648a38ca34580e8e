//! Progress on a terminal: how far, how fast, how much longer. Nothing is drawn where stderr is not a terminal.

use std::io;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::signals::Underway;

/// Drawings a second, at most.
const DRAWN_PER_SECOND: u8 = 20;
/// Columns behind a bar that stay free. The terminal shows `^C` where the cursor is; at the end of a line that would go on to the next one, and the bar
/// that is cleared then would be the wrong line.
const FREE_COLUMNS: u16 = 4;

/// A bar that counts bytes.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for `verb` ("packing"), of `total_bytes` where that is known.
    pub fn start(verb: &'static str, total_bytes: Option<u64>) -> Progress {
        let bar = ProgressBar::with_draw_target(total_bytes, target());
        let template = match total_bytes {
            Some(_) => {
                "{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left"
            }
            None => "{prefix} {spinner} {binary_bytes}  {binary_bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let mut underway = Underway::now();
        bar.set_prefix(verb);
        underway.bars.push(bar.clone());
        drop(underway);
        Progress { bar }
    }

    /// `bytes` of `total_bytes`, which is known by now, are done.
    pub fn set_of(&self, bytes: u64, total_bytes: u64) {
        let _underway = Underway::now();
        self.bar.set_length(total_bytes);
        self.bar.set_position(bytes);
    }

    /// `bytes` from the start are done.
    pub fn set(&self, bytes: u64) {
        let _underway = Underway::now();
        self.bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let mut underway = Underway::now();
        self.bar.finish_and_clear();
        // Bars are within each other, if there are several.
        underway.bars.pop();
    }
}

fn target() -> ProgressDrawTarget {
    let terminal = Term::buffered_stderr();
    match terminal.is_term() {
        true => {
            ProgressDrawTarget::term_like_with_hz(Box::new(Narrower(terminal)), DRAWN_PER_SECOND)
        }
        false => ProgressDrawTarget::hidden(),
    }
}

/// A terminal of which the last columns are not used.
#[derive(Debug)]
struct Narrower(Term);

impl TermLike for Narrower {
    fn width(&self) -> u16 {
        let (_, columns) = self.0.size();
        columns.saturating_sub(FREE_COLUMNS).max(1)
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n)
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n)
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n)
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n)
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.0.write_line(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
