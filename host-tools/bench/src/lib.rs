//! A load generator with fio's options, job files and figures, on io_uring for files and block devices, and on NVMe/TCP for namespaces.
//!
//! [`Arguments`] become [`spec::JobSpec`]s; [`run::run`] makes a thread of each job, with a [`worker`] on an [`engine`]; what they
//! measured goes to [`report`]. docs/bench.md is the manual.

// unsafe code is in `engine::uring` (the ring and its buffers) and `system` (one ioctl).

pub mod args;
pub mod disk;
pub mod engine;
pub mod error;
pub mod histogram;
pub mod job_file;
pub mod limits;
pub mod number;
pub mod offsets;
pub mod pacer;
pub mod progress;
pub mod random;
pub mod report;
pub mod run;
pub mod spec;
pub mod stats;
pub mod system;
pub mod target;
mod units;
pub mod verify;
pub mod worker;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use args::{Arguments, OutputFormat};
pub use error::{Error, ErrorKind};

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What is to be printed.
    pub text: String,
    /// The worst thing that happened to a job; wrong data before all else.
    pub error: Option<Error>,
}

/// Runs what is asked for. SIGINT and SIGTERM end the jobs early; what was measured until then is reported.
///
/// # Errors
/// What keeps jobs from starting; a picture that cannot be written.
pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let jobs = arguments.jobs()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the program at once. Without a handler the first one does.
        let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    if let Some(path) = &arguments.plot {
        // What cannot be written is said before the jobs run, and not after.
        let opened = File::options().append(true).create(true).open(path);
        opened.map_err(|source| Error::io("opening", path, source))?;
    }
    let mut done = run::run(&jobs, &mut progress::Progress::new(), &stop)?;
    let plotted = arguments.plot.as_deref().map_or(Ok(()), |path| {
        std::fs::write(path, report::plot::svg(&done.jobs))
            .map_err(|source| Error::io("writing", path, source))
    });
    let text = match arguments.output_format {
        OutputFormat::Normal => report::table::print(&done),
        OutputFormat::Json => report::json::print(&done),
    };
    let errors = done.jobs.iter_mut().filter_map(|job| job.error.take());
    let error = errors.min_by_key(|error| error.kind() != ErrorKind::Data);
    let error = error.or(plotted.err());
    Ok(Outcome { text, error })
}
