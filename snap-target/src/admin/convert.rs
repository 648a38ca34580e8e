//! What clients ask for, in the daemon's own types.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use admin_proto::limits::{HOSTS_MAX, HOSTS_PER_CALL_MAX, LIMIT_BYTES_MAX, SOURCE_BYTES_MAX};
use admin_proto::v1::{self, host_policy::Hosts, source, visibility::To};
use nvme::controller::{ControllerLimits, HostPolicy, NAMESPACES_MAX, Visibility};
use nvme::nqn::Nqn;
use store::StoreError;
use store::decorate::Limit;
use tonic::Status;

use crate::config::{Fabric, FunctionDevice, FunctionName};
use crate::desired::{PortId, SubsystemBody};
use crate::limits::{SOCKET_PATH_BYTES_MAX, of_subsystem};
use crate::locals;
use crate::manage::ManageError;
use crate::text::uuid_bytes;

impl From<ManageError> for Status {
    fn from(error: ManageError) -> Self {
        let text = error.to_string();
        let details = admin_proto::details(&text, &error.detail());
        Self::with_details(admin_proto::code_of(error.reason), text, details.into())
    }
}

/// A malformed field; the message begins with its name.
pub fn invalid(field: &str, why: impl std::fmt::Display) -> ManageError {
    ManageError::field(field, why)
}

/// An NQN.
pub fn nqn(field: &str, text: &str) -> Result<Nqn, ManageError> {
    Nqn::parse(text).map_err(|error| invalid(field, format!("{text:?}: {error}")))
}

/// An NQN, or none where the field is empty.
pub fn optional_nqn(field: &str, text: &str) -> Result<Option<Nqn>, ManageError> {
    (!text.is_empty()).then(|| nqn(field, text)).transpose()
}

/// Host NQNs, each once.
pub fn nqns(field: &str, texts: &[String], max: usize) -> Result<Vec<Nqn>, ManageError> {
    if texts.len() > max {
        return Err(invalid(field, format!("more than {max} names")));
    }
    let mut all = Vec::with_capacity(texts.len());
    for text in texts {
        let name = nqn(field, text)?;
        if all.contains(&name) {
            return Err(invalid(field, format!("{name} is there twice")));
        }
        all.push(name);
    }
    Ok(all)
}

/// A set of hosts that may connect.
pub fn hosts(field: &str, policy: &v1::HostPolicy) -> Result<HostPolicy, ManageError> {
    match &policy.hosts {
        None => Err(not_set(field, "name hosts, or write out any host")),
        Some(Hosts::Any(_)) => Ok(HostPolicy::Any),
        Some(Hosts::Only(list)) => Ok(HostPolicy::Only(nqns(field, &list.nqns, HOSTS_MAX)?)),
    }
}

/// Those who see a namespace.
pub fn visibility(field: &str, visibility: &v1::Visibility) -> Result<Visibility, ManageError> {
    match &visibility.to {
        None => Err(not_set(field, "name hosts, or write out all of them")),
        Some(To::All(_)) => Ok(Visibility::All),
        Some(To::Only(list)) => Ok(Visibility::Hosts(nqns(field, &list.nqns, HOSTS_MAX)?)),
    }
}

/// A field that must be set.
pub fn not_set(field: &str, what_to_do: &str) -> ManageError {
    invalid(field, format_args!("it is not set; {what_to_do}"))
}

/// The UUID that a namespace is expected to have; none where any is meant.
pub fn expected_uuid(text: &str) -> Result<Option<[u8; 16]>, ManageError> {
    if text.is_empty() {
        return Ok(None);
    }
    let uuid = uuid_bytes(text);
    let uuid = uuid.ok_or_else(|| invalid("expected_uuid", format_args!("{text:?} is no UUID")));
    uuid.map(Some)
}

/// Hosts of a call that names some.
pub fn named_hosts(texts: &[String]) -> Result<Vec<Nqn>, ManageError> {
    if texts.is_empty() {
        return Err(invalid("host_nqns", "nobody is named; name hosts"));
    }
    nqns("host_nqns", texts, HOSTS_PER_CALL_MAX)
}

/// An NSID of a namespace that must be named.
pub fn nsid(number: u32) -> Result<u32, ManageError> {
    match number {
        1..=NAMESPACES_MAX => Ok(number),
        _ => Err(invalid(
            "nsid",
            format!("{number}; it is 1 to {NAMESPACES_MAX}"),
        )),
    }
}

/// An address.
pub fn address(text: &str) -> Result<SocketAddr, ManageError> {
    text.parse().map_err(|_| {
        invalid(
            "address",
            format!("{text:?}; write IP:PORT or [IPv6]:PORT, for example 0.0.0.0:4420"),
        )
    })
}

/// A port id; none where it is 0.
pub fn port_id(number: u32) -> Result<Option<PortId>, ManageError> {
    let port_id = PortId::try_from(number).map_err(|_| {
        invalid(
            "port_id",
            format!("{number}; it is at most {}", PortId::MAX),
        )
    })?;
    Ok((port_id > 0).then_some(port_id))
}

/// A function's name.
pub fn function(text: &str) -> Result<FunctionName, ManageError> {
    text.parse().map_err(|why| invalid("name", why))
}

const POLLED_DISK: &str =
    "a disk has no doorbells that could be polled; leave it out, or ask for vfio-user";

/// What a function is to be, and where.
#[derive(Debug, PartialEq, Eq)]
pub enum Made {
    /// At a socket.
    At(PathBuf, FunctionDevice),
    /// A block device of this machine, of a namespace: of this number, or of any.
    Local(Option<u32>, u32),
}

impl Made {
    /// With a number, where none was asked for.
    pub fn numbered(self, any: impl FnOnce() -> u32) -> (PathBuf, FunctionDevice) {
        match self {
            Self::At(socket, device) => (socket, device),
            Self::Local(number, nsid) => {
                let number = number.unwrap_or_else(any);
                let device = FunctionDevice::Ublk { number, nsid };
                (locals::path_of(number), device)
            }
        }
    }
}

/// What a function is, by how it is reached; not told, an NVMe controller over vfio-user.
pub fn device(asked: &v1::CreateFunctionRequest) -> Result<Made, ManageError> {
    use v1::FunctionProtocol as Protocol;
    let protocol = Protocol::try_from(asked.protocol).map_err(|_| {
        let why = "this daemon has vfio-user, vhost-user-blk and ublk only";
        invalid("protocol", why)
    })?;
    let is_disk = matches!(protocol, Protocol::VhostUserBlk | Protocol::Ublk);
    match asked.nsid {
        0 if !is_disk => {}
        1..=NAMESPACES_MAX if is_disk => {}
        nsid if is_disk => {
            let why = format!("{nsid}; a disk is a namespace from 1 to {NAMESPACES_MAX}");
            return Err(invalid("nsid", why));
        }
        _ => {
            let why = "a function over vfio-user has all namespaces of its subsystem; leave it out, or ask for vhost-user-blk or ublk";
            return Err(invalid("nsid", why));
        }
    }
    if is_disk && asked.poll {
        return Err(invalid("poll", POLLED_DISK));
    }
    if protocol == Protocol::Ublk {
        if !asked.socket.is_empty() {
            let why = "a block device of the daemon's machine has none; leave it out";
            return Err(invalid("socket", why));
        }
        if let Some(number) = asked.number.filter(|number| *number >= locals::NUMBERS) {
            let why = format!("{number}; it is at most {}", locals::NUMBERS - 1);
            return Err(invalid("number", why));
        }
        return Ok(Made::Local(asked.number, asked.nsid));
    }
    if asked.number.is_some() {
        let why = "it is of a block device of the daemon's machine; leave it out, or ask for ublk";
        return Err(invalid("number", why));
    }
    let (nsid, poll) = (asked.nsid, asked.poll);
    let device = match is_disk {
        true => FunctionDevice::VirtioBlk { nsid },
        false => FunctionDevice::Nvme { poll },
    };
    Ok(Made::At(socket(&asked.socket)?, device))
}

/// Path of a function's socket: from the root on, since whoever asks may be in another folder.
pub fn socket(text: &str) -> Result<PathBuf, ManageError> {
    let path = PathBuf::from(text);
    if !path.is_absolute() || path.file_name().is_none() {
        let why = format!("{text:?}; write a path from the root on, for example /run/xio/pf0vf1");
        return Err(invalid("socket", why));
    }
    if text.len() > SOCKET_PATH_BYTES_MAX {
        let why = format!(
            "{} bytes; the path of a socket has at most {SOCKET_PATH_BYTES_MAX}",
            text.len()
        );
        return Err(invalid("socket", why));
    }
    // Messages and the log have it in one line.
    if text.chars().any(char::is_control) {
        return Err(invalid("socket", "it has control characters"));
    }
    Ok(path)
}

/// What carries connections; not told, TCP.
pub fn fabric(transport: i32) -> Result<Fabric, ManageError> {
    match v1::Transport::try_from(transport) {
        Ok(v1::Transport::Unspecified | v1::Transport::Tcp) => Ok(Fabric::Tcp),
        Ok(v1::Transport::Rdma) => Ok(Fabric::Rdma),
        Err(_) => Err(invalid("transport", "this daemon has TCP and RDMA only")),
    }
}

/// TCP, over which referrals are.
pub fn tcp(transport: i32) -> Result<(), ManageError> {
    match fabric(transport)? {
        Fabric::Tcp => Ok(()),
        Fabric::Rdma => Err(invalid(
            "transport",
            "a referral is to a discovery service over TCP",
        )),
    }
}

/// What a volume or store is called.
pub fn source(source: Option<&v1::Source>) -> Result<String, ManageError> {
    let Some(source::Kind::Text(text)) = source.and_then(|it| it.kind.as_ref()) else {
        return Err(not_set("source", "name a volume or a store"));
    };
    if text.is_empty() || text.len() > SOURCE_BYTES_MAX {
        return Err(invalid(
            "source",
            format!(
                "{} bytes; it has 1 to {SOURCE_BYTES_MAX}: a path, file:PATH, mem:SIZE, null:SIZE or void:SIZE",
                text.len()
            ),
        ));
    }
    // Messages, the log and metrics have it in one line.
    if text.chars().any(char::is_control) {
        return Err(invalid("source", "it has control characters"));
    }
    Ok(text.to_owned())
}

/// How fast stores are at most; none where it is empty.
pub fn limit_of_stores(text: &str) -> Result<Option<Limit>, ManageError> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > LIMIT_BYTES_MAX {
        let why = format!(
            "{} bytes; it has at most {LIMIT_BYTES_MAX}: 200MB/s,latency=2ms",
            text.len()
        );
        return Err(invalid("limit", why));
    }
    let limit = text.parse();
    limit
        .map(Some)
        .map_err(|error: StoreError| invalid("limit", error))
}

/// A subsystem that is to be made.
pub fn body(request: &v1::CreateSubsystemRequest) -> Result<SubsystemBody, ManageError> {
    Ok(SubsystemBody {
        serial: identify_text("serial", &request.serial, 20)?,
        model: identify_text("model", &request.model, 40)?,
        hosts: match &request.hosts {
            Some(policy) => hosts("hosts", policy)?,
            None => HostPolicy::Only(Vec::new()),
        },
        limits: limits(request.limits.as_ref())?,
    })
}

fn identify_text(field: &str, text: &str, max: usize) -> Result<Option<String>, ManageError> {
    let printable = text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
    if text.len() > max || !printable {
        return Err(invalid(
            field,
            format!("at most {max} printable ASCII characters"),
        ));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// One limit: the default where it is 0, within its range where it is not.
fn limit<T: TryFrom<u64>, R: Copy + Into<u64>>(
    field: &str,
    value: u64,
    default: T,
    range: RangeInclusive<R>,
) -> Result<T, ManageError> {
    if value == 0 {
        return Ok(default);
    }
    let (min, max) = ((*range.start()).into(), (*range.end()).into());
    let limit = T::try_from(value).ok();
    limit
        .filter(|_| (min..=max).contains(&value))
        .ok_or_else(|| invalid(field, format!("{value}; it is {min} to {max}")))
}

fn limits(asked: Option<&v1::SubsystemLimits>) -> Result<ControllerLimits, ManageError> {
    let default = ControllerLimits::default();
    let Some(asked) = asked else {
        return Ok(default);
    };
    let limits = ControllerLimits {
        controllers_max: limit(
            "controllers_max",
            asked.controllers_max.into(),
            default.controllers_max,
            of_subsystem::CONTROLLERS,
        )?,
        controllers_per_host_max: limit(
            "controllers_per_host_max",
            asked.controllers_per_host_max.into(),
            default.controllers_per_host_max,
            of_subsystem::CONTROLLERS_PER_HOST,
        )?,
        connections_per_host_max: limit(
            "connections_per_host_max",
            asked.connections_per_host_max.into(),
            default.connections_per_host_max,
            of_subsystem::CONNECTIONS_PER_HOST,
        )?,
        io_queues_per_host_max: limit(
            "io_queues_per_host_max",
            asked.io_queues_per_host_max.into(),
            default.io_queues_per_host_max,
            of_subsystem::IO_QUEUES_PER_HOST,
        )?,
        io_queues_max: limit(
            "io_queues_max",
            asked.io_queues_max.into(),
            default.io_queues_max,
            of_subsystem::IO_QUEUES,
        )?,
        queue_entries_max: limit(
            "queue_entries_max",
            asked.queue_entries_max.into(),
            default.queue_entries_max,
            of_subsystem::QUEUE_ENTRIES,
        )?,
        transfer_bytes_max: limit(
            "transfer_bytes_max",
            asked.transfer_bytes_max.into(),
            default.transfer_bytes_max,
            of_subsystem::TRANSFER_BYTES,
        )?,
        memory_per_host_bytes: limit(
            "memory_per_host_bytes_max",
            asked.memory_per_host_bytes_max,
            default.memory_per_host_bytes,
            of_subsystem::MEMORY_PER_HOST_BYTES,
        )?,
        ..default
    };
    limits.check().map_err(|error| {
        let error = error.to_string();
        invalid("limits", error.trim_start_matches("limits: "))
    })?;
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use nvme::controller::ControllerLimits;

    use super::{Made, NAMESPACES_MAX, device, limits, locals, v1};
    use crate::config::FunctionDevice;

    #[test]
    fn a_function_is_a_controller_or_a_disk() {
        use v1::FunctionProtocol::{Ublk, Unspecified, VfioUser, VhostUserBlk};
        let asked = |protocol: v1::FunctionProtocol, nsid, poll| v1::CreateFunctionRequest {
            protocol: protocol.into(),
            nsid,
            poll,
            socket: match protocol {
                Ublk => String::new(),
                _ => "/run/pf0".to_owned(),
            },
            ..v1::CreateFunctionRequest::default()
        };
        let at = |device| Made::At("/run/pf0".into(), device);
        let nvme = |poll| at(FunctionDevice::Nvme { poll });
        let virtio = |nsid| at(FunctionDevice::VirtioBlk { nsid });
        for (asked, made) in [
            (asked(Unspecified, 0, false), nvme(false)),
            (asked(VfioUser, 0, true), nvme(true)),
            (asked(VhostUserBlk, 1, false), virtio(1)),
            (
                asked(VhostUserBlk, NAMESPACES_MAX, false),
                virtio(NAMESPACES_MAX),
            ),
            (asked(Ublk, 2, false), Made::Local(None, 2)),
        ] {
            assert_eq!(device(&asked).unwrap(), made);
        }
        let numbered = |number| v1::CreateFunctionRequest {
            number: Some(number),
            ..asked(Ublk, 2, false)
        };
        let number = locals::NUMBERS - 1;
        let (path, made) = device(&numbered(number)).unwrap().numbered(|| 5);
        assert_eq!(path.to_str(), Some("/dev/ublkb1048575"));
        assert_eq!(made, FunctionDevice::Ublk { number, nsid: 2 });
        let (path, _) = Made::Local(None, 2).numbered(|| 5);
        assert_eq!(path.to_str(), Some("/dev/ublkb5"));
        let unknown = v1::CreateFunctionRequest {
            protocol: 4,
            ..asked(VfioUser, 0, false)
        };
        let at_socket = v1::CreateFunctionRequest {
            socket: "/run/pf0".to_owned(),
            ..asked(Ublk, 1, false)
        };
        let of_guest = v1::CreateFunctionRequest {
            number: Some(0),
            ..asked(VhostUserBlk, 1, false)
        };
        for (asked, why) in [
            (
                asked(Unspecified, 1, false),
                "nsid: a function over vfio-user has all namespaces",
            ),
            (
                asked(VfioUser, 1, true),
                "nsid: a function over vfio-user has all namespaces",
            ),
            (
                asked(VhostUserBlk, 1, true),
                "poll: a disk has no doorbells",
            ),
            (asked(Ublk, 1, true), "poll: a disk has no doorbells"),
            (
                asked(VhostUserBlk, 0, false),
                "nsid: 0; a disk is a namespace from 1",
            ),
            (
                asked(Ublk, 0, false),
                "nsid: 0; a disk is a namespace from 1",
            ),
            (
                asked(VhostUserBlk, NAMESPACES_MAX + 1, false),
                "a disk is a namespace from 1",
            ),
            (
                unknown,
                "protocol: this daemon has vfio-user, vhost-user-blk and ublk only",
            ),
            (
                at_socket,
                "socket: a block device of the daemon's machine has none",
            ),
            (
                of_guest,
                "number: it is of a block device of the daemon's machine",
            ),
            (
                numbered(number + 1),
                "number: 1048576; it is at most 1048575",
            ),
        ] {
            let refused = device(&asked).unwrap_err().to_string();
            assert!(refused.contains(why), "{asked:?}: {refused}");
        }
    }

    /// The ranges are those of the configuration file (docs/snap-target.toml).
    #[test]
    fn limits_have_the_ranges_of_the_configuration_file() {
        let default = v1::SubsystemLimits::default();
        for (field, allowed, refused) in [
            ("controllers_max", [1, 1536], vec![1537, 60_000, 65_537]),
            ("controllers_per_host_max", [1, 256], vec![257, 65_537]),
            ("connections_per_host_max", [2, 65_535], vec![1, 65_538]),
            ("io_queues_per_host_max", [1, 65_535], vec![65_536]),
            ("io_queues_max", [1, 64], vec![65, 65_537]),
            ("queue_entries_max", [8, 128], vec![5, 7, 129, 65_544]),
            (
                "transfer_bytes_max",
                [8192, 1 << 20],
                vec![4096, 1 << 21, 12_288],
            ),
        ] {
            let of = |value: u32| {
                let mut asked = default;
                *match field {
                    "controllers_max" => &mut asked.controllers_max,
                    "controllers_per_host_max" => &mut asked.controllers_per_host_max,
                    "connections_per_host_max" => &mut asked.connections_per_host_max,
                    "io_queues_per_host_max" => &mut asked.io_queues_per_host_max,
                    "io_queues_max" => &mut asked.io_queues_max,
                    "queue_entries_max" => &mut asked.queue_entries_max,
                    _ => &mut asked.transfer_bytes_max,
                } = value;
                limits(Some(&asked))
            };
            for value in allowed {
                let made = of(value);
                assert!(made.is_ok(), "{field} {value}: {made:?}");
            }
            for value in refused {
                let made = of(value);
                assert!(made.is_err(), "{field} {value}: {made:?}");
            }
        }
        let of = |memory_per_host_bytes_max| {
            let asked = v1::SubsystemLimits {
                memory_per_host_bytes_max,
                connections_per_host_max: 5,
                ..default
            };
            limits(Some(&asked))
        };
        assert!(of((1 << 20) - 1).is_err());
        let expected = ControllerLimits {
            memory_per_host_bytes: 1 << 40,
            connections_per_host_max: 5,
            ..ControllerLimits::default()
        };
        assert_eq!(of(1 << 40).unwrap(), expected);
    }
}
