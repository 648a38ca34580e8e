//! What every command is given: where the daemon is, and how to print.

use printout::stdout::{self, Reader};

use crate::cli::Global;
use crate::connection::{self, Daemon};
use crate::failure::Failure;
use crate::json::{self, Described};

/// The global options at work.
#[derive(Debug)]
pub struct Context {
    global: Global,
}

impl Context {
    /// Of these options.
    pub fn new(global: Global) -> Context {
        Context { global }
    }

    /// Whether programs read what is printed.
    pub fn json(&self) -> bool {
        self.global.json
    }

    /// Connects to the daemon.
    pub async fn daemon(&self) -> Result<Daemon, Failure> {
        connection::connect(&self.global).await
    }

    /// Prints text as it is.
    pub fn print(&self, text: &str) -> Result<Reader, Failure> {
        stdout::print(text)
            .map_err(|error| Failure::unreachable(format!("writing standard output: {error}")))
    }

    /// Prints an answer: for programs as it came, for people as `text` says it.
    pub fn show<M: Described>(
        &self,
        answer: &M,
        text: impl FnOnce(&M) -> String,
    ) -> Result<Reader, Failure> {
        if self.json() {
            self.print(&format!("{}\n", json::line(answer)?))
        } else {
            self.print(&text(answer))
        }
    }
}
