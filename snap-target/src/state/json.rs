//! The changes as JSON, so that a person can read what was kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use serde::{Deserialize, Serialize};
use store::StoreSpec;
use store::decorate::Limit;
use store_nvme::RemoteUrl;

use super::overlay::{Change, Overlay};
use crate::config::{
    ArraySpec, Cut, FunctionConfig, FunctionDevice, FunctionName, ListenerConfig, NamespaceConfig,
    ReferralConfig, SourceSpec, Writes,
};
use crate::desired::SubsystemBody;

/// As JSON.
pub fn write(overlay: &Overlay) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(&Document::of(overlay))
}

/// From JSON.
///
/// # Errors
/// What is wrong.
pub fn read(bytes: &[u8]) -> Result<Overlay, String> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    document.overlay()
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    subsystems: Vec<Entry<String, Subsystem>>,
    namespaces: Vec<Entry<(String, u32), Namespace>>,
    listeners: Vec<Entry<u16, String>>,
    /// None: written before there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    functions: Vec<Entry<String, Function>>,
    referrals: Vec<Entry<SocketAddr, u16>>,
    /// None: written before denials were kept as such.
    denied: Option<Vec<Denied>>,
}

/// A function but its name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    subsystem: String,
    socket: PathBuf,
    /// Left out where it is not: as it was written before there was any such.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    poll: bool,
    /// Of a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nsid: Option<u32>,
    /// The number of a block device of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ublk: Option<u32>,
}

/// Hosts that a subsystem keeps out, whatever the configuration says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Denied {
    subsystem: String,
    hosts: Vec<String>,
    /// Who could connect when the configuration dropped the subsystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_list: Option<Vec<String>>,
}

/// `file`: what the configuration said; `now`: what holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<K, T> {
    key: K,
    file: Option<T>,
    now: Option<T>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subsystem {
    serial: Option<String>,
    model: Option<String>,
    hosts: Hosts,
    limits: Limits,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Hosts {
    Any,
    Only(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    controllers_max: u16,
    controllers_per_host_max: u16,
    connections_per_host_max: u16,
    io_queues_per_host_max: u16,
    memory_per_host_bytes: u64,
    io_queues_max: u16,
    queue_entries_max: u16,
    transfer_bytes_max: u32,
    capsule_data_bytes: u32,
    async_events_max: u8,
    aborts_max: u8,
    error_log_entries: u8,
    retry_delays_100ms: [u16; 3],
    discovery_idle_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    source: Source,
    hosts: Hosts,
    read_only: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    immutable: bool,
    /// None where it has none, and in what was written before there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    /// None where there is nothing to cut, and in what was written before cuts were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<FileCut>,
}

/// In bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCut {
    from: u64,
    to: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    Volume { path: PathBuf },
    RemoteVolume { url: String },
    Remote { url: String, lba_bytes: u32 },
    File { path: PathBuf, lba_bytes: u32 },
    Mem { bytes: u64, lba_bytes: u32 },
    Null { bytes: u64, lba_bytes: u32 },
    Void { bytes: u64, lba_bytes: u32 },
    Array { members: String, lba_bytes: u32 },
    ArrayVolume { members: String },
    Mixed { parts: Vec<Source>, lba_bytes: u32 },
}

impl Document {
    fn of(overlay: &Overlay) -> Self {
        Self {
            subsystems: entries(&overlay.subsystems, Nqn::to_string, |_, it| it.into()),
            namespaces: entries(
                &overlay.namespaces,
                |(nqn, nsid)| (nqn.to_string(), *nsid),
                |_, it| it.into(),
            ),
            listeners: entries(
                &overlay.listeners,
                |port_id| *port_id,
                |_, it| it.place.to_string(),
            ),
            functions: entries(&overlay.functions, FunctionName::to_string, |_, it| {
                it.into()
            }),
            referrals: entries(&overlay.referrals, |address| *address, |_, it| it.port_id),
            denied: Some(denied(overlay)),
        }
    }

    fn overlay(self) -> Result<Overlay, String> {
        let subsystems = changes(self.subsystems, |key| nqn(&key), |_, it| it.body())?;
        let mut left_lists = BTreeMap::new();
        let denied = match self.denied {
            Some(all) => {
                let mut read = |it: Denied| {
                    let subsystem = nqn(&it.subsystem)?;
                    if let Some(list) = &it.left_list {
                        left_lists.insert(subsystem.clone(), nqns(list)?);
                    }
                    Ok((subsystem, nqns(&it.hosts)?))
                };
                all.into_iter()
                    .map(&mut read)
                    .collect::<Result<_, String>>()?
            }
            None => taken_off(&subsystems),
        };
        Ok(Overlay {
            subsystems,
            denied,
            left_lists,
            namespaces: changes(
                self.namespaces,
                |(name, nsid)| Ok((nqn(&name)?, nsid)),
                |(_, nsid), it| it.config(*nsid),
            )?,
            listeners: changes(self.listeners, Ok, |port_id, place| {
                Ok(ListenerConfig {
                    place: place
                        .parse()
                        .map_err(|_| format!("{place:?}: no place to listen"))?,
                    port_id: *port_id,
                })
            })?,
            functions: changes(
                self.functions,
                |name| name.parse::<FunctionName>(),
                |name, it| it.config(*name),
            )?,
            referrals: changes(self.referrals, Ok, |address, port_id| {
                Ok(ReferralConfig {
                    address: *address,
                    port_id,
                })
            })?,
        })
    }
}

fn entries<K, T, L, U>(
    all: &BTreeMap<K, Change<T>>,
    key: impl Fn(&K) -> L,
    value: impl Fn(&K, &T) -> U,
) -> Vec<Entry<L, U>> {
    all.iter()
        .map(|(k, change)| Entry {
            key: key(k),
            file: change.base.as_ref().map(|it| value(k, it)),
            now: change.word.as_ref().map(|it| value(k, it)),
        })
        .collect()
}

fn changes<K: Ord, T, L, U>(
    all: Vec<Entry<L, U>>,
    key: impl Fn(L) -> Result<K, String>,
    value: impl Fn(&K, U) -> Result<T, String>,
) -> Result<BTreeMap<K, Change<T>>, String> {
    all.into_iter()
        .map(|entry| {
            let k = key(entry.key)?;
            let change = Change {
                base: entry.file.map(|it| value(&k, it)).transpose()?,
                word: entry.now.map(|it| value(&k, it)).transpose()?,
            };
            Ok((k, change))
        })
        .collect()
}

fn denied(overlay: &Overlay) -> Vec<Denied> {
    let all = overlay.denied.iter();
    all.map(|(nqn, hosts)| Denied {
        subsystem: nqn.to_string(),
        hosts: texts(hosts),
        left_list: overlay.left_lists.get(nqn).map(|list| texts(list)),
    })
    .collect()
}

/// Those that the configuration named and that did not hold: as they were known before denials were kept.
fn taken_off(subsystems: &BTreeMap<Nqn, Change<SubsystemBody>>) -> BTreeMap<Nqn, Vec<Nqn>> {
    let list = |body: &Option<SubsystemBody>| match body.as_ref().map(|it| it.hosts.clone()) {
        Some(HostPolicy::Only(list)) => Some(list),
        _ => None,
    };
    let of_one = |(nqn, change): (&Nqn, &Change<SubsystemBody>)| {
        let (mut had, has) = (list(&change.base)?, list(&change.word)?);
        had.retain(|host| !has.contains(host));
        (!had.is_empty()).then(|| (nqn.clone(), had))
    };
    subsystems.iter().filter_map(of_one).collect()
}

fn nqn(text: &str) -> Result<Nqn, String> {
    Nqn::parse(text).map_err(|error| format!("{text:?}: {error}"))
}

fn nqns(texts: &[String]) -> Result<Vec<Nqn>, String> {
    texts.iter().map(|text| nqn(text)).collect()
}

fn texts(nqns: &[Nqn]) -> Vec<String> {
    nqns.iter().map(Nqn::to_string).collect()
}

impl From<&SubsystemBody> for Subsystem {
    fn from(body: &SubsystemBody) -> Self {
        Self {
            serial: body.serial.clone(),
            model: body.model.clone(),
            hosts: match &body.hosts {
                HostPolicy::Any => Hosts::Any,
                HostPolicy::Only(nqns) => Hosts::Only(texts(nqns)),
            },
            limits: (&body.limits).into(),
        }
    }
}

impl Subsystem {
    fn body(self) -> Result<SubsystemBody, String> {
        Ok(SubsystemBody {
            serial: self.serial,
            model: self.model,
            hosts: match self.hosts {
                Hosts::Any => HostPolicy::Any,
                Hosts::Only(names) => HostPolicy::Only(nqns(&names)?),
            },
            limits: self.limits.into(),
        })
    }
}

impl From<&FunctionConfig> for Function {
    fn from(config: &FunctionConfig) -> Self {
        Self {
            subsystem: config.subsystem.to_string(),
            socket: config.socket.clone(),
            poll: config.device == FunctionDevice::Nvme { poll: true },
            nsid: config.device.nsid(),
            ublk: match config.device {
                FunctionDevice::Ublk { number, .. } => Some(number),
                _ => None,
            },
        }
    }
}

impl Function {
    fn config(self, name: FunctionName) -> Result<FunctionConfig, String> {
        Ok(FunctionConfig {
            name,
            socket: self.socket,
            subsystem: nqn(&self.subsystem)?,
            device: match (self.nsid, self.ublk, self.poll) {
                (None, None, poll) => FunctionDevice::Nvme { poll },
                (Some(nsid), None, false) => FunctionDevice::VirtioBlk { nsid },
                (Some(nsid), Some(number), false) => FunctionDevice::Ublk { number, nsid },
                (Some(nsid), _, true) => {
                    return Err(format!(
                        "function {name} is polled, and is the disk of namespace {nsid}; it can be one of them"
                    ));
                }
                (None, Some(number), _) => {
                    return Err(format!(
                        "function {name} is /dev/ublkb{number} of no namespace"
                    ));
                }
            },
        })
    }
}

impl From<&NamespaceConfig> for Namespace {
    fn from(config: &NamespaceConfig) -> Self {
        Self {
            source: (&config.source).into(),
            hosts: match &config.visibility {
                Visibility::All => Hosts::Any,
                Visibility::Hosts(nqns) => Hosts::Only(texts(nqns)),
            },
            read_only: config.writes.are_refused(),
            immutable: config.writes.is_immutable(),
            limit: config.limit.map(|limit| limit.to_string()),
            cut: config.cut.map(|Cut { from, to }| FileCut { from, to }),
        }
    }
}

impl From<&SourceSpec> for Source {
    fn from(source: &SourceSpec) -> Self {
        match source {
            SourceSpec::Volume { path } => Self::Volume { path: path.clone() },
            SourceSpec::RemoteVolume { url } => Self::RemoteVolume {
                url: url.to_string(),
            },
            SourceSpec::Remote { url, lba_bytes } => Self::Remote {
                url: url.to_string(),
                lba_bytes: *lba_bytes,
            },
            SourceSpec::Store { spec, lba_bytes } => stored(spec, *lba_bytes),
            SourceSpec::Array { spec, lba_bytes } => Self::Array {
                members: spec.to_string(),
                lba_bytes: *lba_bytes,
            },
            SourceSpec::ArrayVolume { spec } => Self::ArrayVolume {
                members: spec.to_string(),
            },
            SourceSpec::Mixed { parts, lba_bytes } => Self::Mixed {
                parts: parts.iter().map(Self::from).collect(),
                lba_bytes: *lba_bytes,
            },
        }
    }
}

impl Source {
    /// What the daemon wrote was checked before; what cannot be opened, such as a mix of mixes, is said when it is.
    fn spec(self) -> Result<SourceSpec, String> {
        let store = |spec, lba_bytes| SourceSpec::Store { spec, lba_bytes };
        let array = |text: &str| ArraySpec::parse(text).map_err(|error| error.to_string());
        let remote = |url: String| {
            let parsed = url.parse::<RemoteUrl>();
            parsed.map_err(|error| format!("`{url}`: {error}"))
        };
        Ok(match self {
            Self::Volume { path } => SourceSpec::Volume { path },
            Self::RemoteVolume { url } => SourceSpec::RemoteVolume { url: remote(url)? },
            Self::Remote { url, lba_bytes } => SourceSpec::Remote {
                url: remote(url)?,
                lba_bytes,
            },
            Self::File { path, lba_bytes } => store(StoreSpec::File { path }, lba_bytes),
            Self::Mem { bytes, lba_bytes } => store(StoreSpec::Mem { bytes }, lba_bytes),
            Self::Null { bytes, lba_bytes } => store(StoreSpec::Null { bytes }, lba_bytes),
            Self::Void { bytes, lba_bytes } => store(StoreSpec::Void { bytes }, lba_bytes),
            Self::Array { members, lba_bytes } => SourceSpec::Array {
                spec: array(&members)?,
                lba_bytes,
            },
            Self::ArrayVolume { members } => SourceSpec::ArrayVolume {
                spec: array(&members)?,
            },
            Self::Mixed { parts, lba_bytes } => SourceSpec::Mixed {
                parts: parts
                    .into_iter()
                    .map(Self::spec)
                    .collect::<Result<_, _>>()?,
                lba_bytes,
            },
        })
    }
}

fn stored(spec: &StoreSpec, lba_bytes: u32) -> Source {
    match spec {
        StoreSpec::File { path } => Source::File {
            path: path.clone(),
            lba_bytes,
        },
        StoreSpec::Mem { bytes } => Source::Mem {
            bytes: *bytes,
            lba_bytes,
        },
        StoreSpec::Null { bytes } => Source::Null {
            bytes: *bytes,
            lba_bytes,
        },
        StoreSpec::Void { bytes } => Source::Void {
            bytes: *bytes,
            lba_bytes,
        },
    }
}

impl Namespace {
    fn config(self, nsid: u32) -> Result<NamespaceConfig, String> {
        let limit = self.limit.map(|text| text.parse::<Limit>());
        Ok(NamespaceConfig {
            nsid,
            source: self.source.spec()?,
            visibility: match self.hosts {
                Hosts::Any => Visibility::All,
                Hosts::Only(names) => Visibility::Hosts(nqns(&names)?),
            },
            writes: Writes::of(self.read_only, self.immutable),
            limit: limit.transpose().map_err(|error| error.to_string())?,
            cut: self.cut.map(|FileCut { from, to }| Cut { from, to }),
        })
    }
}

/// Fields that have the same name and unit here and there, both ways.
macro_rules! same_limits {
    ($($field:ident),* $(,)?) => {
        impl From<&ControllerLimits> for Limits {
            fn from(limits: &ControllerLimits) -> Self {
                let idle_ms = u64::try_from(limits.discovery_idle.as_millis());
                Self {
                    $($field: limits.$field,)*
                    discovery_idle_ms: idle_ms.unwrap_or(u64::MAX),
                }
            }
        }

        impl From<Limits> for ControllerLimits {
            fn from(limits: Limits) -> Self {
                Self {
                    $($field: limits.$field,)*
                    discovery_idle: Duration::from_millis(limits.discovery_idle_ms),
                }
            }
        }
    };
}

same_limits!(
    controllers_max,
    controllers_per_host_max,
    connections_per_host_max,
    io_queues_per_host_max,
    memory_per_host_bytes,
    io_queues_max,
    queue_entries_max,
    transfer_bytes_max,
    capsule_data_bytes,
    async_events_max,
    aborts_max,
    error_log_entries,
    retry_delays_100ms,
);
