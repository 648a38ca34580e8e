//! What a program says on standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal};

/// Says why the program failed, on one line; in red where a terminal shows it, and NO_COLOR is not set.
pub fn error(why: impl Display) {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (on, off) = if colour {
        ("\x1b[1;31m", "\x1b[0m")
    } else {
        ("", "")
    };
    eprintln!("{on}error:{off} {why}");
}

/// Prints what a person should know, though nothing failed.
pub fn note(text: impl Display) {
    eprintln!("note: {text}");
}
