//! Log lines: to standard error, and no more than a bounded number that hosts provoke.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result};
use telemetry::LogLimit;
use tracing_subscriber::filter::FilterExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// How often it is said how many lines were left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Logs from now on what `levels` lets through.
pub fn start(levels: &str) -> Result<LogLimit> {
    let levels = EnvFilter::try_new(levels).context("--log")?;
    let limit = LogLimit::default();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_filter(levels.and(limit.clone()));
    tracing_subscriber::registry().with(lines).init();
    Ok(limit)
}

/// Says from time to time how many lines were left out; on a thread of its own, which ends with the process.
pub fn report(limit: LogLimit) -> Result<()> {
    let thread = std::thread::Builder::new().name("log".to_owned());
    thread.spawn(move || {
        loop {
            std::thread::sleep(REPORT_INTERVAL);
            limit.report();
        }
    })?;
    Ok(())
}
