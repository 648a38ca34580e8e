//! Subsystems and their namespaces, from TOML.

use std::path::Path;

use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use store::StoreSpec;
use store::decorate::Limit;
use store_nvme::{RemoteUrl, UrlError};

use super::check::{Seen, path_in, value_or};
use super::error::ConfigError;
use super::section::{At, Section};
use super::{ArraySpec, NamespaceConfig, SourceSpec, SubsystemConfig, Writes};
use crate::limits::{HOSTS_MAX, NAMESPACES_MAX, SUBSYSTEMS_MAX, of_subsystem};

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

pub(super) fn subsystems(
    top: &Section<'_>,
    folder: &Path,
) -> Result<Vec<SubsystemConfig>, ConfigError> {
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

/// The subsystem that a section of another kind belongs to.
pub(super) fn subsystem_of(section: &Section<'_>) -> Result<At<Nqn>, ConfigError> {
    section.required(
        section.parsed("subsystem", subsystem_nqn)?,
        "subsystem",
        "for example subsystem = \"nqn.2026-11.io.xio:snap\"",
    )
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
        (Some(hosts), _) => match hosts.value.iter().find(|host| host.is_function_host()) {
            Some(name) => {
                let why = format!(
                    "{name} is a PCIe function's host, which no list lets in or keeps out: whoever can open its socket has it; leave it out"
                );
                Err(section.wrong(&hosts, why))
            }
            None => Ok(HostPolicy::Only(hosts.value)),
        },
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
    let mut free = (1..).filter(|nsid| !taken.contains(nsid));
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
                spec:
                    StoreSpec::Mem { bytes } | StoreSpec::Null { bytes } | StoreSpec::Void { bytes },
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
        writes: writes(section)?,
        limit: limit.map(|at| at.value),
        cut: None,
    })
}

/// What nobody changes takes no writes: `immutable` says both, and nobody may say otherwise beside it.
fn writes(section: &Section<'_>) -> Result<Writes, ConfigError> {
    let read_only = section.flag("read-only")?;
    let immutable = value_or(section.flag("immutable")?, false);
    if let Some(taken) = read_only.as_ref().filter(|it| !it.value && immutable) {
        let why =
            "immutable = true says that nobody writes; leave this line out, or make that false";
        return Err(section.wrong(taken, why));
    }
    Ok(Writes::of(value_or(read_only, false), immutable))
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
    if let Some(rest) = text.strip_prefix("volume:") {
        return Err(format!(
            "write volume = {rest:?}: the key says already that it is one"
        ));
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
