//! What the program prints for its caller.

use anyhow::anyhow;

use crate::failure::Failure;

/// Prints `text`. A reader that has seen enough (`xio inspect ... | head`) is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    match printout::stdout::print(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::system(anyhow!("writing standard output: {error}"))),
    }
}

/// Prints one line.
pub fn print_line(line: impl std::fmt::Display) -> Result<(), Failure> {
    print(&format!("{line}\n"))
}
