//! From TOML to a checked [`Config`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use reactor::Features;
use store::StoreSpec;
use store::decorate::Limit;
use store_nvme::{RemoteUrl, UrlError};
use toml::de::DeTable;

use super::error::ConfigError;
use super::section::{At, Section, Text};
use super::{
    AdminConfig, AdminTcpConfig, ArraySpec, Config, Fabric, ListenerConfig, MetricsConfig,
    NamespaceConfig, Place, ReferralConfig, SourceSpec, StartPolicy, SubsystemConfig, TargetConfig,
    default_workers,
};
use crate::limits::{
    CACHE_BYTES_MIN, DRAIN_MAX, HOSTS_MAX, LISTENERS_MAX, NAMESPACES_MAX, REACTORS_MAX,
    REFERRALS_MAX, ROLE_NAMES_MAX, SUBSYSTEMS_MAX, WORKERS_MAX, of_subsystem,
};

const TOP: &[&str] = &[
    "target",
    "listener",
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
const SUBSYSTEM: &[&str] = &[
    "nqn",
    "serial",
    "model",
    "hosts",
    "allow-any-host",
    "limits",
    "namespace",
];
const LIMITS: &[&str] = &[
    "controllers",
    "controllers-per-host",
    "io-queues",
    "queue-entries",
    "transfer",
    "connections-per-host",
    "io-queues-per-host",
    "memory-per-host",
];
const NAMESPACE: &[&str] = &[
    "nsid",
    "volume",
    "store",
    "lba",
    "hosts",
    "read-only",
    "immutable",
    "limit",
];
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
        referrals: referrals(&top)?,
        subsystems: subsystems(&top, folder)?,
        admin: top
            .table("admin", ADMIN)?
            .map(|section| admin(&section, folder))
            .transpose()?,
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
        prefetch_bytes: value_or(
            section.parsed("prefetch", super::prefetch_bytes)?,
            default.prefetch_bytes,
        ),
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

fn value_or<T>(found: Option<At<T>>, default: T) -> T {
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

fn path_in(folder: &Path, text: &str) -> Result<PathBuf, String> {
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
struct Seen<K>(HashMap<K, usize>);

impl<K: std::hash::Hash + Eq> Seen<K> {
    fn new() -> Self {
        Self(HashMap::new())
    }

    fn add(
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

fn subsystems(top: &Section<'_>, folder: &Path) -> Result<Vec<SubsystemConfig>, ConfigError> {
    let mut all = Vec::new();
    let mut names = Seen::new();
    for section in top.tables("subsystem", SUBSYSTEMS_MAX, SUBSYSTEM)? {
        let nqn = section.parsed("nqn", subsystem_nqn)?;
        let nqn = section.required(nqn, "nqn", "for example nqn = \"nqn.2026-11.io.xio:snap\"")?;
        names.add(
            &section,
            nqn.value.clone(),
            nqn.value.as_str(),
            nqn.span,
            "nqn",
        )?;
        all.push(SubsystemConfig {
            nqn: nqn.value,
            serial: identify_text(&section, "serial", 20)?,
            model: identify_text(&section, "model", 40)?,
            hosts: host_policy(&section)?,
            limits: match section.table("limits", LIMITS)? {
                Some(limits) => controller_limits(&limits)?,
                None => ControllerLimits::default(),
            },
            namespaces: namespaces(&section, folder)?,
        });
    }
    Ok(all)
}

fn nqn(text: &str) -> Result<Nqn, String> {
    Nqn::parse(text).map_err(|error| error.to_string())
}

fn subsystem_nqn(text: &str) -> Result<Nqn, String> {
    let nqn = nqn(text)?;
    if nqn.is_discovery() {
        return Err("this is the discovery service's name; a subsystem needs its own".to_owned());
    }
    Ok(nqn)
}

/// A field of Identify Controller (Base, "Identify Controller Data Structure"): printable ASCII.
fn identify_text(
    section: &Section<'_>,
    key: &str,
    bytes_max: usize,
) -> Result<Option<String>, ConfigError> {
    let found = section.parsed(key, |text| {
        let fits = (1..=bytes_max).contains(&text.len())
            && text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
        if fits {
            Ok(text.to_owned())
        } else {
            Err(format!(
                "it must be 1 to {bytes_max} printable ASCII characters"
            ))
        }
    })?;
    Ok(found.map(|at| at.value))
}

fn host_policy(section: &Section<'_>) -> Result<HostPolicy, ConfigError> {
    let hosts = hosts(section)?;
    let any = section.flag("allow-any-host")?;
    match (hosts, any) {
        (Some(_), Some(any)) if any.value => Err(section.wrong(
            &any,
            "hosts are named too; leave one of the two out",
        )),
        (_, Some(any)) if any.value => Ok(HostPolicy::Any),
        (Some(hosts), _) => Ok(HostPolicy::Only(hosts.value)),
        (None, _) => Err(section.error(
            section.span(),
            "hosts",
            "it is missing; name the hosts that may connect, hosts = [\"nqn...\"], or write allow-any-host = true",
        )),
    }
}

/// Host NQNs, each once.
fn hosts(section: &Section<'_>) -> Result<Option<At<Vec<Nqn>>>, ConfigError> {
    let hosts = section.list("hosts", HOSTS_MAX, nqn)?;
    if let Some(at) = &hosts {
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = at.value.iter().find(|host| !seen.insert(*host)) {
            return Err(section.wrong(at, format!("{twice} is there twice; leave one out")));
        }
    }
    Ok(hosts)
}

fn controller_limits(section: &Section<'_>) -> Result<ControllerLimits, ConfigError> {
    let default = ControllerLimits::default();
    let transfer = section.size("transfer", of_subsystem::TRANSFER_BYTES)?;
    let transfer_bytes_max = match transfer {
        None => default.transfer_bytes_max,
        Some(at) if at.value.is_power_of_two() => {
            u32::try_from(at.value).map_err(|error| section.wrong(&at, error.to_string()))?
        }
        Some(at) => return Err(section.wrong(&at, "it must be a power of two")),
    };
    let controllers = section.number("controllers", of_subsystem::CONTROLLERS)?;
    let per_host = "controllers-per-host";
    Ok(ControllerLimits {
        controllers_max: value_or(controllers, default.controllers_max),
        controllers_per_host_max: value_or(
            section.number(per_host, of_subsystem::CONTROLLERS_PER_HOST)?,
            default.controllers_per_host_max,
        ),
        io_queues_max: value_or(
            section.number("io-queues", of_subsystem::IO_QUEUES)?,
            default.io_queues_max,
        ),
        queue_entries_max: value_or(
            section.number("queue-entries", of_subsystem::QUEUE_ENTRIES)?,
            default.queue_entries_max,
        ),
        transfer_bytes_max,
        connections_per_host_max: value_or(
            section.number("connections-per-host", of_subsystem::CONNECTIONS_PER_HOST)?,
            default.connections_per_host_max,
        ),
        io_queues_per_host_max: value_or(
            section.number("io-queues-per-host", of_subsystem::IO_QUEUES_PER_HOST)?,
            default.io_queues_per_host_max,
        ),
        memory_per_host_bytes: value_or(
            section.size("memory-per-host", of_subsystem::MEMORY_PER_HOST_BYTES)?,
            default.memory_per_host_bytes,
        ),
        ..default
    })
}

fn namespaces(subsystem: &Section<'_>, folder: &Path) -> Result<Vec<NamespaceConfig>, ConfigError> {
    let sections = subsystem.tables("namespace", NAMESPACES_MAX, NAMESPACE)?;
    // NSIDs that are written down come first, whatever their order; the others take what is left, from 1.
    let mut taken = Seen::new();
    let mut nsids = Vec::new();
    for section in &sections {
        let nsid = section.number("nsid", 1..=nvme::controller::NAMESPACES_MAX)?;
        if let Some(at) = &nsid {
            let what = format!("nsid {}", at.value);
            taken.add(section, at.value, &what, at.span.clone(), "nsid")?;
        }
        nsids.push(nsid.map(|at| at.value));
    }
    let mut free = (1..).filter(|nsid| !taken.0.contains_key(nsid));
    let mut all = Vec::new();
    for (section, nsid) in sections.iter().zip(nsids) {
        // The range is endless, and NAMESPACES_MAX sections leave one for each.
        let nsid = nsid.or_else(|| free.next()).unwrap_or(u32::MAX);
        all.push(namespace(section, nsid, folder)?);
    }
    all.sort_by_key(|namespace| namespace.nsid);
    Ok(all)
}

fn namespace(
    section: &Section<'_>,
    nsid: u32,
    folder: &Path,
) -> Result<NamespaceConfig, ConfigError> {
    let volume = section.parsed("volume", |text| volume(folder, text))?;
    let lba = section.number("lba", 512_u32..=4096)?;
    if let Some(lba) = lba.as_ref().filter(|lba| !matches!(lba.value, 512 | 4096)) {
        return Err(section.wrong(lba, "it is 512 or 4096"));
    }
    let lba_bytes = lba.as_ref().map_or(4096, |lba| lba.value);
    let store = section.parsed("store", |text| store(text, lba_bytes, folder))?;
    let source = match (volume, store) {
        (Some(volume), None) => {
            if let Some(lba) = &lba {
                return Err(section.wrong(lba, "a volume has its own; leave this line out"));
            }
            volume.value
        }
        (None, Some(store)) => {
            if let SourceSpec::Store {
                spec: StoreSpec::Mem { bytes } | StoreSpec::Null { bytes },
                lba_bytes,
            } = store.value
                && bytes < u64::from(lba_bytes)
            {
                let why = format!(
                    "{bytes} bytes are not one block of {lba_bytes}; make it at least as long as a block"
                );
                return Err(section.wrong(&store, why));
            }
            store.value
        }
        (Some(_), Some(store)) => {
            return Err(section.wrong(&store, "a volume is named too; leave one of the two out"));
        }
        (None, None) => {
            return Err(section.error(
                section.span(),
                "volume",
                "it is missing; write volume = \"FILE\" for what xio pack made, or store = \"file:PATH\" for a plain disk",
            ));
        }
    };
    let hosts = hosts(section)?;
    let limit = section.parsed("limit", |text| {
        text.parse::<Limit>().map_err(|error| error.to_string())
    })?;
    Ok(NamespaceConfig {
        nsid,
        source,
        visibility: hosts.map_or(Visibility::All, |at| Visibility::Hosts(at.value)),
        read_only: value_or(section.flag("read-only")?, false),
        immutable: value_or(section.flag("immutable")?, false),
        limit: limit.map(|at| at.value),
        cut: None,
    })
}

/// The file of a volume, or the remote namespace that holds it. Another scheme in front of it is of a store.
fn volume(folder: &Path, text: &str) -> Result<SourceSpec, String> {
    if RemoteUrl::is_meant(text) {
        let url = text.parse().map_err(|error: UrlError| error.to_string())?;
        return Ok(SourceSpec::RemoteVolume { url });
    }
    if ArraySpec::is_meant(text) {
        let spec = ArraySpec::parse(text).map_err(|error| error.to_string())?;
        return Ok(SourceSpec::ArrayVolume { spec }.under(folder));
    }
    match text.strip_prefix("file:") {
        Some(path) => Err(format!(
            "write volume = {path:?} for what xio pack made, or store = {text:?} to serve the file byte for byte"
        )),
        None => path_in(folder, text).map(|path| SourceSpec::Volume { path }),
    }
}

/// A store of a kind that is written out: a bare path could be meant as a volume. Among the parts of a mixed one it is a volume.
fn store(text: &str, lba_bytes: u32, folder: &Path) -> Result<SourceSpec, String> {
    match SourceSpec::parse(text, lba_bytes) {
        Ok(SourceSpec::RemoteVolume { url }) => Err(format!(
            "write volume = \"{url}\" for a volume in a remote namespace, or store = \"{url}\" to serve the namespace byte for byte"
        )),
        Ok(SourceSpec::ArrayVolume { spec }) => Err(format!(
            "write volume = \"{spec}\" for a volume in several stores, or store = \"{spec}\" to serve them byte for byte"
        )),
        Ok(SourceSpec::Volume { .. }) => Err(format!(
            "write file:{text} to serve it byte for byte, or volume = {text:?} for what xio pack made"
        )),
        Ok(source) => Ok(source.under(folder)),
        // Of a part, the text that it is about is not the key's.
        Err(store::StoreError::Spec { why, text: of }) if of != text => Err(format!("{of}: {why}")),
        Err(store::StoreError::Spec { why, .. }) => Err(why.into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Of `sockaddr_un`, without the zero behind it.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Why a key of the admin service's TCP port is wrong without it.
const FOR_TCP: &str =
    "it is for tcp, which is not there; add tcp = \"ADDRESS:PORT\" or leave it out";

fn admin(section: &Section<'_>, folder: &Path) -> Result<AdminConfig, ConfigError> {
    let path = |key| section.parsed(key, |path| path_in(folder, path));
    let socket = section.required(
        path("socket")?,
        "socket",
        "for example socket = \"/run/xio/snap-target.sock\"",
    )?;
    let length = socket.value.as_os_str().len();
    if length > SOCKET_PATH_BYTES_MAX {
        let why = format!(
            "with its folder the path has {length} bytes, and a socket's has at most {SOCKET_PATH_BYTES_MAX}; name a shorter one"
        );
        return Err(section.wrong(&socket, why));
    }
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
            socket: socket.value,
            tcp: None,
        });
    };
    let why_ca = "clients over TCP show a certificate: tls-client-ca names the PEM file of the authority that signed theirs";
    let why = "the admin service over TCP needs TLS: tls-cert and tls-key name PEM files";
    Ok(AdminConfig {
        socket: socket.value,
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
