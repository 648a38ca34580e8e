//! What every command is given: where the daemon is, and how to print.

use printout::stdout::{self, Reader};

use crate::cli::Global;
use crate::connection::{self, Daemon};
use crate::failure::Failure;
use crate::json::{self, Described};
use crate::text;

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
            .map_err(|error| Failure::here(format!("writing standard output: {error}")))
    }

    /// Prints an answer: for programs as it came, for people `in_words`.
    pub fn show<M: Described>(
        &self,
        answer: &M,
        in_words: impl FnOnce(&M) -> String,
    ) -> Result<(), Failure> {
        let text = if self.json() {
            format!("{}\n", json::line(answer)?)
        } else {
            text::clean_lines(&in_words(answer))
        };
        // It is all there is to say: whether anybody reads it makes no difference.
        self.print(&text).map(|_| ())
    }
}
