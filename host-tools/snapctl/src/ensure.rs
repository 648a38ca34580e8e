//! `--ensure`: what is there already as it was asked for is no failure.

use std::fmt::{Debug, Display};

use admin_proto::v1::ErrorDetail;
use clap::Args;
use tonic::Code;

use crate::failure::Failure;

/// `--ensure`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Ensure {
    /// It may be there already, as it is asked for here: done then. What is not said here is not compared
    #[arg(long)]
    pub ensure: bool,
}

/// What is there, held against what was asked for.
#[derive(Debug, Default)]
pub struct Comparison {
    differences: Vec<String>,
}

impl Comparison {
    /// Compares one property, where it was asked for.
    pub fn property<T: PartialEq + Display>(&mut self, name: &str, asked: Option<T>, is: T) {
        if let Some(asked) = asked
            && asked != is
        {
            self.differences
                .push(format!("{name} is {is}, not {asked}"));
        }
    }

    /// Fails where anything differs. `detail` is what the daemon says of what is in the way.
    pub fn verdict(self, subject: impl Display, detail: ErrorDetail) -> Result<(), Failure> {
        if self.differences.is_empty() {
            return Ok(());
        }
        let differences = self.differences.join("; ");
        let message = format!("{subject} is there already, and is another one: {differences}");
        Err(Failure::of(Code::AlreadyExists, message).detailed(detail))
    }
}
