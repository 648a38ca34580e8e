//! `xio bench`: the crate of that name, with this program's exit statuses.

use ::bench::{Arguments, Error, ErrorKind};

use crate::failure::Failure;
use crate::stdout;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let outcome = ::bench::run(arguments)?;
    stdout::print(&outcome.text)?;
    outcome.error.map_or(Ok(()), |error| Err(error.into()))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind() {
            ErrorKind::Data => Failure::data(error),
            ErrorKind::Usage => Failure::usage(error),
            ErrorKind::System => Failure::system(error),
            ErrorKind::Interrupted => Failure::interrupted(error),
        }
    }
}
