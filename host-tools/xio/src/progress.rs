//! Progress on a terminal: how far, how fast, how much longer. Nothing is drawn where stderr is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts bytes.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for `verb` ("packing"), of `total_bytes` where that is known.
    pub fn start(verb: &'static str, total_bytes: Option<u64>) -> Progress {
        // `stderr` draws at most 20 times a second, and not at all when it is no terminal.
        let bar = ProgressBar::with_draw_target(total_bytes, ProgressDrawTarget::stderr());
        let template = match total_bytes {
            Some(_) => {
                "{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left"
            }
            None => "{prefix} {spinner} {binary_bytes}  {binary_bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(verb);
        Progress { bar }
    }

    /// `bytes` of `total_bytes`, which is known by now, are done.
    pub fn set_of(&self, bytes: u64, total_bytes: u64) {
        self.bar.set_length(total_bytes);
        self.bar.set_position(bytes);
    }

    /// `bytes` from the start are done.
    pub fn set(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
