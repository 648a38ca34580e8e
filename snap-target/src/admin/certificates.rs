//! The certificates of the TCP port while it is served: files that were renewed are taken up without a restart. What is connected stays as it is; the next
//! client meets the new ones. New files that cannot be used change nothing: those that were read last stay in force, and health says why.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admin_proto::v1::HealthCode;
use anyhow::{Context, Result};

use super::tls::{self, Identity};
use crate::config::AdminTcpConfig;
use crate::health::Health;
use crate::limits::{TLS_LOOK, TLS_SETTLE};

/// What health calls them.
const SUBJECT: &str = "admin certificates";

/// What is in force. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<Mutex<Identity>>);

impl Certificates {
    /// As the files are now.
    ///
    /// # Errors
    /// Which of them cannot be used, and why.
    pub fn read(files: &AdminTcpConfig) -> Result<Self> {
        Ok(Self(Arc::new(Mutex::new(tls::identity(files)?))))
    }

    /// What the next client meets.
    pub fn now(&self) -> Identity {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Identity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the files from time to time, and when it is asked; until this is dropped.
#[derive(Debug)]
pub struct Renewal(Sender<()>);

impl Renewal {
    /// Looks on a thread of its own: a file system that hangs holds nothing else up.
    pub fn start(
        files: AdminTcpConfig,
        certificates: Certificates,
        health: Health,
    ) -> Result<Self> {
        let (ask, asked) = channel();
        let look = Look::new(files, certificates, health);
        let thread = std::thread::Builder::new().name("certificates".to_owned());
        thread
            .spawn(move || look.run(&asked))
            .context("the thread that looks at certificates")?;
        Ok(Self(ask))
    }

    /// Reads them again soon, whether they changed or not.
    pub fn ask(&self) {
        // The thread lives as long as this does.
        let _told = self.0.send(());
    }
}

/// What tells one state of a file from another without reading it; none where it is not there.
type Stamp = Option<(i64, i64, u64, u64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let it = std::fs::metadata(path).ok()?;
    Some((it.mtime(), it.mtime_nsec(), it.size(), it.ino(), it.dev()))
}

struct Look {
    files: AdminTcpConfig,
    certificates: Certificates,
    health: Health,
    /// The files that are in force, or that were told as unusable.
    settled: [Stamp; 3],
    /// Files that could not be used at the last look, and may be half of a renewal.
    doubtful: Option<[Stamp; 3]>,
}

impl Look {
    fn new(files: AdminTcpConfig, certificates: Certificates, health: Health) -> Self {
        let mut look = Self {
            files,
            certificates,
            health,
            settled: [None; 3],
            doubtful: None,
        };
        look.settled = look.stamps();
        look
    }

    fn stamps(&self) -> [Stamp; 3] {
        [&self.files.cert, &self.files.key, &self.files.client_ca].map(|path| stamp(path))
    }

    fn run(mut self, asked: &Receiver<()>) {
        let mut next = TLS_LOOK;
        loop {
            next = match asked.recv_timeout(next) {
                Ok(()) => self.look(true),
                Err(RecvTimeoutError::Timeout) => self.look(false),
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    /// Takes up what is new. Returns when to look again.
    fn look(&mut self, asked: bool) -> Duration {
        // Before the files are read: what changes meanwhile is seen at the next look.
        let stamps = self.stamps();
        if stamps == self.settled && !asked {
            self.doubtful = None;
            return TLS_LOOK;
        }
        match tls::identity(&self.files) {
            Ok(identity) => {
                tracing::info!(
                    expires = identity.expiry,
                    "the admin service's certificates were read again"
                );
                *self.certificates.lock() = identity;
                self.health.well(SUBJECT);
            }
            // A certificate and its key are two files: one of them may be on its way.
            Err(_) if self.doubtful != Some(stamps) => {
                self.doubtful = Some(stamps);
                return TLS_SETTLE;
            }
            Err(error) => {
                let text = format!("{error:#}; the ones before stay in force");
                tracing::warn!("the admin service's certificates cannot be renewed: {text}");
                self.health.problem(SUBJECT, HealthCode::Certificate, text);
            }
        }
        self.settled = stamps;
        self.doubtful = None;
        TLS_LOOK
    }
}

#[cfg(test)]
mod tests;
