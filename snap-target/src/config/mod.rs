//! The configuration: read once, checked as a whole, then trusted.
//!
//! A [`Config`] is made by [`Config::load`] from a file (docs/snap-target.toml names every key), or by the command line. What it says
//! has been checked as far as that can be done without opening anything.

mod array;
mod check;
mod error;
mod fabric;
mod function;
mod local;
mod section;
mod source;
mod subsystem;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use reactor::Features;
use store::Exact;
use store::decorate::Limit;
use volume::SourcePolicy;

pub use array::{ArrayKind, ArraySpec, MemberSpec};
pub use error::ConfigError;
pub use fabric::{Fabric, Place};
pub use function::{FunctionConfig, FunctionDevice, FunctionName, FunctionSocket};
pub use source::SourceSpec;

use crate::limits::{CONFIG_BYTES_MAX, DRAIN_DEFAULT, PREFETCH_BYTES_MIN, PREFETCH_DEFAULT};
use crate::locals::LocalConfig;

/// Everything the daemon starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The process.
    pub target: TargetConfig,
    /// Where hosts connect.
    pub listeners: Vec<ListenerConfig>,
    /// PCIe functions.
    pub functions: Vec<FunctionConfig>,
    /// Other discovery services that hosts are told of.
    pub referrals: Vec<ReferralConfig>,
    /// What they find.
    pub subsystems: Vec<SubsystemConfig>,
    /// The admin service; none: nothing changes while serving.
    pub admin: Option<AdminConfig>,
    /// The metrics endpoint; none: it is off.
    pub metrics: Option<MetricsConfig>,
    /// Block devices of this machine.
    pub locals: Vec<(Nqn, LocalConfig)>,
}

/// `[target]`: the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// Reactor threads.
    pub reactors: u16,
    /// Decoding threads.
    pub workers: usize,
    /// Frame and table cache of each reactor, in bytes.
    pub cache_bytes: usize,
    /// What each reactor may fetch ahead of a namespace's readers, in presented bytes, half of its cache at most; 0: nothing.
    pub prefetch_bytes: usize,
    /// io_uring features to do without.
    pub without: Features,
    /// When read data stand for their own completion.
    pub success_flag: frontend_nvme_tcp::SuccessFlag,
    /// Directories where volumes may map files besides their own.
    pub allow_sources: Vec<PathBuf>,
    /// The state folder; none: nothing made while serving survives.
    pub state: Option<PathBuf>,
    /// What to log.
    pub log: String,
    /// How long SIGTERM lets what is in flight end.
    pub drain: Duration,
    /// What a start needs.
    pub start: StartPolicy,
}

/// What happens at a start with a namespace or listener of the configuration that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    /// The rest is served; it is a problem that health tells, and is tried again.
    Available,
    /// There is no start without it.
    All,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            reactors: 1,
            workers: default_workers(1),
            cache_bytes: 64 << 20,
            prefetch_bytes: PREFETCH_DEFAULT,
            without: Features::NONE,
            success_flag: frontend_nvme_tcp::SuccessFlag::Always,
            allow_sources: Vec::new(),
            state: None,
            log: "info".to_owned(),
            drain: DRAIN_DEFAULT,
            start: StartPolicy::Available,
        }
    }
}

impl TargetConfig {
    /// Which files volumes may be mapped on.
    pub fn source_policy(&self) -> SourcePolicy {
        SourcePolicy {
            allowed: self.allow_sources.clone(),
        }
    }
}

/// Decoding threads where nobody says: the cores that the reactors leave.
pub fn default_workers(reactors: u16) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores
        .saturating_sub(usize::from(reactors))
        .clamp(1, crate::limits::WORKERS_MAX)
}

/// `[[listener]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Where.
    pub place: Place,
    /// PORTID of the discovery log.
    pub port_id: u16,
}

/// `[[referral]]`: another discovery service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferralConfig {
    /// Where it listens.
    pub address: SocketAddr,
    /// PORTID of its record.
    pub port_id: u16,
}

/// `[[subsystem]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// SN of Identify Controller; none: made from the name.
    pub serial: Option<String>,
    /// MN of Identify Controller; none: the daemon's.
    pub model: Option<String>,
    /// Who may connect.
    pub hosts: HostPolicy,
    /// What its controllers may take.
    pub limits: ControllerLimits,
    /// Its namespaces, in ascending order of their NSIDs.
    pub namespaces: Vec<NamespaceConfig>,
}

/// `[[subsystem.namespace]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// NSID.
    pub nsid: u32,
    /// What stands behind it.
    pub source: SourceSpec,
    /// Which of the hosts that may connect see it.
    pub visibility: Visibility,
    /// Whether hosts may write where the store could be written.
    pub writes: Writes,
    /// How fast its stores are at most: to measure what a slow line does, and what helps against it.
    pub limit: Option<Limit>,
    /// Its file, of a mixed one that of its last part, is to be cut before anything of it is opened: hosts have been told of its new end.
    pub cut: Option<Cut>,
}

/// Who may change what a namespace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Its hosts, where its store can be written.
    Taken,
    /// None of its hosts.
    Refused,
    /// Nobody, here or elsewhere, while it is served: its raw store may be read ahead. A volume is never changed, whatever is said.
    Never,
}

impl Writes {
    /// As it is written down: what nobody changes takes no writes either.
    pub fn of(read_only: bool, immutable: bool) -> Self {
        match (read_only, immutable) {
            (_, true) => Self::Never,
            (true, false) => Self::Refused,
            (false, false) => Self::Taken,
        }
    }

    /// Whether hosts may not write.
    pub fn are_refused(self) -> bool {
        self != Self::Taken
    }

    /// Whether nobody changes it.
    pub fn is_immutable(self) -> bool {
        self == Self::Never
    }
}

/// A file that is to be cut, and has not been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The bytes that it had.
    pub from: u64,
    /// Those that it is to have.
    pub to: u64,
}

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// The Unix socket.
    pub socket: PathBuf,
    /// TCP besides it.
    pub tcp: Option<AdminTcpConfig>,
}

/// The admin service over TCP: always with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminTcpConfig {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// The server's certificate chain, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authority whose clients are let in, PEM.
    pub client_ca: PathBuf,
    /// Names in certificates whose holders may read and publish.
    pub announce: Vec<String>,
    /// Names in certificates whose holders may do everything; others may read.
    pub change: Vec<String>,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Address and port of the HTTP endpoint; port 0 takes a free one.
    pub address: SocketAddr,
}

impl Config {
    /// Reads and checks a file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`ConfigError`], with file, line, column and key.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let unreadable = |why: String| ConfigError::File {
            file: file.to_owned(),
            why,
        };
        // A device or a pipe does not tell its length.
        let mut text = String::new();
        File::open(file)
            .and_then(|opened| opened.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| unreadable(error.to_string()))?;
        if text.len() as u64 > CONFIG_BYTES_MAX {
            return Err(unreadable(format!(
                "it is longer than {CONFIG_BYTES_MAX} bytes: this is no configuration"
            )));
        }
        Self::parse(file, &text)
    }

    /// Checks a text that lies, or would lie, at `file`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        check::config(file, text)
    }
}

/// What may be fetched ahead: a size, or `off`.
///
/// # Errors
/// What is wrong with the text.
pub fn prefetch_bytes(text: &str) -> Result<usize, String> {
    if text == "off" {
        return Ok(0);
    }
    let bytes = store::parse_size(text).map_err(|why| format!("{why}; or write \"off\""))?;
    if bytes < PREFETCH_BYTES_MIN {
        return Err(
            "it must be at least 1MiB, which is fetched at a time; or write \"off\"".to_owned(),
        );
    }
    usize::try_from(bytes).map_err(|error| error.to_string())
}

/// What is fetched ahead beside a cache of so many bytes where nothing else is asked for.
pub fn prefetch_default(cache_bytes: usize) -> usize {
    PREFETCH_DEFAULT.min(cache_bytes / 2)
}

/// Whether so much may be fetched ahead beside a cache of so many bytes.
///
/// # Errors
/// It is more than half of the cache: it would throw out what nobody has read yet.
pub fn check_prefetch(bytes: usize, cache_bytes: usize) -> Result<(), String> {
    let most = cache_bytes / 2;
    if bytes <= most {
        return Ok(());
    }
    Err(format!(
        "it is at most half of cache, which holds what is fetched until it is read: {} of {}; make cache at least {}",
        Exact(most as u64),
        Exact(cache_bytes as u64),
        Exact((bytes as u64).saturating_mul(2))
    ))
}
