//! What the program prints for its caller.

use std::io::{self, ErrorKind, Write};

use anyhow::anyhow;

use crate::failure::Failure;

/// Prints `text`. A reader that has seen enough (`xio inspect ... | head`) is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::system(anyhow!("writing standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints one line.
pub fn print_line(line: impl std::fmt::Display) -> Result<(), Failure> {
    print(&format!("{line}\n"))
}
