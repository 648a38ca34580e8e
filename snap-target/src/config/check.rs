//! From TOML to a checked [`Config`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use reactor::Features;
use toml::de::DeTable;

use super::error::ConfigError;
use super::function::functions;
use super::local::locals;
use super::section::{At, Section, Text};
use super::subsystem::subsystems;
use super::{
    AdminConfig, AdminTcpConfig, Config, Fabric, ListenerConfig, MetricsConfig, Place,
    ReferralConfig, StartPolicy, TargetConfig, default_workers,
};
use crate::limits::{
    CACHE_BYTES_MIN, DRAIN_MAX, LISTENERS_MAX, REACTORS_MAX, REFERRALS_MAX, ROLE_NAMES_MAX,
    SOCKET_PATH_BYTES_MAX, WORKERS_MAX,
};

const TOP: &[&str] = &[
    "target",
    "listener",
    "function",
    "ublk",
    "referral",
    "subsystem",
    "admin",
    "metrics",
];
const TARGET: &[&str] = &[
    "reactors",
    "workers",
    "cache",
    "prefetch",
    "without",
    "success-flag",
    "allow-sources",
    "state",
    "log",
    "drain",
    "start",
];
const LISTENER: &[&str] = &["transport", "address", "port-id"];
const REFERRAL: &[&str] = &["address", "port-id"];
const ADMIN: &[&str] = &[
    "socket",
    "tcp",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "tls-announce",
    "tls-change",
];
const METRICS: &[&str] = &["address"];

/// Checks a text that lies at `file`.
pub fn config(file: &Path, text: &str) -> Result<Config, ConfigError> {
    let source = Text { file, text };
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        place: source.place(error.span().map_or(0, |span| span.start)),
        why: error.message().to_owned(),
    })?;
    let top = Section::new(source, "", table.get_ref(), 0..0, TOP)?;
    // Where the process starts, and how the file was named, does not matter: paths are relative to the file that names them, and whole from here on. What
    // the state folder keeps of an object is held against them at the next start.
    let folder = &whole(file.parent().unwrap_or(Path::new("")));
    let target = top.table("target", TARGET)?;
    let listeners = listeners(&top)?;
    Ok(Config {
        target: target.map_or_else(|| Ok(TargetConfig::default()), |it| target_of(&it, folder))?,
        listeners,
        functions: functions(&top, folder)?,
        referrals: referrals(&top)?,
        subsystems: subsystems(&top, folder)?,
        admin: top
            .table("admin", ADMIN)?
            .map(|section| admin(&section, folder))
            .transpose()?,
        locals: locals(&top)?,
        metrics: top
            .table("metrics", METRICS)?
            .map(|section| metrics(&section))
            .transpose()?,
    })
}

/// A folder from the root on. Links in it stay as they are, since what they lead to may be another one tomorrow; where `..` could mean either, the folder is asked.
fn whole(folder: &Path) -> PathBuf {
    let folder = match folder.to_str() {
        Some("") => Path::new("."),
        _ => folder,
    };
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    if whole.components().any(|part| part == Component::ParentDir) {
        return whole.canonicalize().unwrap_or(whole);
    }
    whole
}

fn target_of(section: &Section<'_>, folder: &Path) -> Result<TargetConfig, ConfigError> {
    let default = TargetConfig::default();
    let reactors = value_or(
        section.number("reactors", 1..=REACTORS_MAX)?,
        default.reactors,
    );
    let cache = section.size("cache", CACHE_BYTES_MIN..=usize::MAX as u64)?;
    let cache_bytes = match cache {
        None => default.cache_bytes,
        Some(at) => {
            usize::try_from(at.value).map_err(|error| section.wrong(&at, error.to_string()))?
        }
    };
    let without = section.list("without", 16, |name| name.parse::<Features>())?;
    Ok(TargetConfig {
        reactors,
        workers: value_or(
            section
                .number("workers", 0..=WORKERS_MAX as u64)?
                .map(|at| At {
                    // At most WORKERS_MAX.
                    value: usize::try_from(at.value).unwrap_or(WORKERS_MAX),
                    span: at.span,
                    key: at.key,
                }),
            default_workers(reactors),
        ),
        cache_bytes,
        prefetch_bytes: prefetch(section, cache_bytes)?,
        without: without
            .map(|at| at.value)
            .unwrap_or_default()
            .into_iter()
            .fold(Features::NONE, |all, one| all | one),
        success_flag: value_or(
            section.parsed("success-flag", success_flag)?,
            default.success_flag,
        ),
        allow_sources: section
            .list("allow-sources", 1024, |path| path_in(folder, path))?
            .map(|at| at.value)
            .unwrap_or_default(),
        state: section
            .parsed("state", |path| path_in(folder, path))?
            .map(|at| at.value),
        log: value_or(section.parsed("log", log_filter)?, default.log),
        drain: value_or(section.time("drain", DRAIN_MAX)?, default.drain),
        start: value_or(section.parsed("start", start_policy)?, default.start),
    })
}

fn prefetch(section: &Section<'_>, cache_bytes: usize) -> Result<usize, ConfigError> {
    let Some(asked) = section.parsed("prefetch", super::prefetch_bytes)? else {
        return Ok(super::prefetch_default(cache_bytes));
    };
    super::check_prefetch(asked.value, cache_bytes).map_err(|why| section.wrong(&asked, why))?;
    Ok(asked.value)
}

pub(super) fn value_or<T>(found: Option<At<T>>, default: T) -> T {
    found.map_or(default, |at| at.value)
}

fn success_flag(text: &str) -> Result<frontend_nvme_tcp::SuccessFlag, String> {
    match text {
        "always" => Ok(frontend_nvme_tcp::SuccessFlag::Always),
        "without-flow-control" => Ok(frontend_nvme_tcp::SuccessFlag::WithoutFlowControl),
        "never" => Ok(frontend_nvme_tcp::SuccessFlag::Never),
        _ => Err("it is one of always, without-flow-control, never".to_owned()),
    }
}

fn start_policy(text: &str) -> Result<StartPolicy, String> {
    match text {
        "available" => Ok(StartPolicy::Available),
        "all" => Ok(StartPolicy::All),
        _ => Err("it is one of available, all".to_owned()),
    }
}

fn log_filter(text: &str) -> Result<String, String> {
    tracing_subscriber::EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

pub(super) fn path_in(folder: &Path, text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the path is empty".to_owned());
    }
    Ok(folder.join(text))
}

fn address_in(section: &Section<'_>, example: &str) -> Result<At<SocketAddr>, ConfigError> {
    let found = section.parsed("address", address)?;
    section.required(found, "address", &format!("for example {example}"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write IP:PORT or [IPv6]:PORT, for example 0.0.0.0:4420".to_owned())
}

/// What was seen before, and where: the second of two that must differ is refused.
pub(super) struct Seen<K>(HashMap<K, usize>);

impl<K: std::hash::Hash + Eq> Seen<K> {
    pub fn new() -> Self {
        Self(HashMap::new())
    }

    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub fn add(
        &mut self,
        section: &Section<'_>,
        key: K,
        what: &str,
        span: Range<usize>,
        name: &str,
    ) -> Result<(), ConfigError> {
        match self.0.insert(key, section.line_of(&span)) {
            None => Ok(()),
            Some(line) => Err(section.error(
                span,
                name,
                format!("{what} is taken by line {line}; each needs its own"),
            )),
        }
    }
}

fn listeners(top: &Section<'_>) -> Result<Vec<ListenerConfig>, ConfigError> {
    let mut all = Vec::new();
    let (mut addresses, mut ports) = (Seen::new(), Seen::new());
    let sections = top.tables("listener", LISTENERS_MAX, LISTENER)?;
    if sections.is_empty() {
        return Err(top.error(
            0..0,
            "[[listener]]",
            "there is none, so no host could connect; write [[listener]] and address = \"127.0.0.1:4420\"",
        ));
    }
    for (section, default) in sections.iter().zip(1..) {
        let transport = section.parsed("transport", str::parse)?;
        let address = address_in(section, "address = \"127.0.0.1:4420\"")?;
        let place = Place {
            fabric: value_or(transport, Fabric::Tcp),
            address: address.value,
        };
        let port_id = section.number("port-id", 1..=u16::MAX)?;
        let span = port_id
            .as_ref()
            .map_or(section.span(), |at| at.span.clone());
        let port_id = value_or(port_id, default);
        // Each free port is another one.
        if address.value.port() != 0 {
            let (what, span) = (place.to_string(), address.span);
            addresses.add(section, place, &what, span, "address")?;
        }
        ports.add(section, port_id, &port_id.to_string(), span, "port-id")?;
        all.push(ListenerConfig { place, port_id });
    }
    Ok(all)
}

fn referrals(top: &Section<'_>) -> Result<Vec<ReferralConfig>, ConfigError> {
    let mut all = Vec::new();
    let mut addresses = Seen::new();
    for section in top.tables("referral", REFERRALS_MAX, REFERRAL)? {
        let address = address_in(&section, "address = \"192.0.2.1:8009\"")?;
        if address.value.port() == 0 {
            return Err(section.wrong(
                &address,
                "port 0 is nobody's; name the port of the discovery service",
            ));
        }
        let what = address.value.to_string();
        addresses.add(&section, address.value, &what, address.span, "address")?;
        all.push(ReferralConfig {
            address: address.value,
            port_id: value_or(section.number("port-id", 0..=u16::MAX)?, 0),
        });
    }
    Ok(all)
}

/// Why a key of the admin service's TCP port is wrong without it.
const FOR_TCP: &str =
    "it is for tcp, which is not there; add tcp = \"ADDRESS:PORT\" or leave it out";

/// A path that the system takes for a socket.
pub(super) fn socket_path(
    section: &Section<'_>,
    socket: &At<PathBuf>,
) -> Result<PathBuf, ConfigError> {
    let length = socket.value.as_os_str().len();
    if length > SOCKET_PATH_BYTES_MAX {
        let why = format!(
            "with its folder the path has {length} bytes, and a socket's has at most {SOCKET_PATH_BYTES_MAX}; name a shorter one"
        );
        return Err(section.wrong(socket, why));
    }
    Ok(socket.value.clone())
}

fn admin(section: &Section<'_>, folder: &Path) -> Result<AdminConfig, ConfigError> {
    let path = |key| section.parsed(key, |path| path_in(folder, path));
    let socket = section.required(
        path("socket")?,
        "socket",
        "for example socket = \"/run/xio/snap-target.sock\"",
    )?;
    let socket_path = socket_path(section, &socket)?;
    let (cert, key, client_ca) = (path("tls-cert")?, path("tls-key")?, path("tls-client-ca")?);
    let tcp = section.parsed("tcp", address)?;
    let names = |key| {
        let name = |name: &str| Ok(name.to_owned());
        section.list(key, ROLE_NAMES_MAX, name)
    };
    let (announce, change) = (names("tls-announce")?, names("tls-change")?);
    let Some(tcp) = tcp else {
        if let Some(alone) = announce.or(change) {
            return Err(section.wrong(&alone, FOR_TCP));
        }
        if let Some(alone) = cert.or(key).or(client_ca) {
            return Err(section.wrong(&alone, FOR_TCP));
        }
        return Ok(AdminConfig {
            socket: socket_path,
            tcp: None,
        });
    };
    let why_ca = "clients over TCP show a certificate: tls-client-ca names the PEM file of the authority that signed theirs";
    let why = "the admin service over TCP needs TLS: tls-cert and tls-key name PEM files";
    Ok(AdminConfig {
        socket: socket_path,
        tcp: Some(AdminTcpConfig {
            address: tcp.value,
            cert: section.required(cert, "tls-cert", why)?.value,
            key: section.required(key, "tls-key", why)?.value,
            client_ca: section.required(client_ca, "tls-client-ca", why_ca)?.value,
            announce: announce.map_or_else(Vec::new, |at| at.value),
            change: change.map_or_else(Vec::new, |at| at.value),
        }),
    })
}

fn metrics(section: &Section<'_>) -> Result<MetricsConfig, ConfigError> {
    Ok(MetricsConfig {
        address: address_in(section, "address = \"127.0.0.1:9464\"")?.value,
    })
}
