//! What is there, as clients are told.

use std::net::SocketAddr;

use admin_proto::v1::{self, host_policy::Hosts, visibility::To};
use frontend_nvme::ControllerReport;
use frontend_vhost_user_blk::DeviceIo;
use namespace::{Backing, MixedPart};
use nvme::controller::{HostPolicy, Protection, Transport, Visibility};
use nvme::nqn::Nqn;
use volume::Volume;

use crate::config::{FunctionDevice, FunctionName, NamespaceConfig, Place, SourceSpec};
use crate::desired::PortId;
use crate::manage::{ClosingDisk, FunctionLive, Manager, NamespaceLive, StillClosing, damage};
use crate::text::{hex, uuid_text};

/// A set of hosts, for a client.
pub fn policy(hosts: &HostPolicy) -> v1::HostPolicy {
    let hosts = match hosts {
        HostPolicy::Any => Hosts::Any(v1::AnyHost {}),
        HostPolicy::Only(list) => Hosts::Only(v1::HostList {
            nqns: list.iter().map(Nqn::to_string).collect(),
        }),
    };
    v1::HostPolicy { hosts: Some(hosts) }
}

fn seen_by(visibility: &Visibility) -> v1::Visibility {
    let to = match visibility {
        Visibility::All => To::All(v1::AllHosts {}),
        Visibility::Hosts(list) => To::Only(v1::HostList {
            nqns: list.iter().map(Nqn::to_string).collect(),
        }),
    };
    v1::Visibility { to: Some(to) }
}

/// Why operations are still under way, as answers say it.
pub fn closing(closing: StillClosing) -> (bool, String) {
    (closing.is_some(), closing.unwrap_or_default())
}

fn origin(in_config: bool) -> i32 {
    match in_config {
        true => v1::Origin::Config.into(),
        false => v1::Origin::Admin.into(),
    }
}

/// A subsystem that is there.
pub fn subsystem(
    manager: &Manager,
    controllers: &[ControllerReport],
    nqn: &Nqn,
) -> Option<v1::Subsystem> {
    let there = manager.desired().subsystems.get(nqn)?;
    let limits = &there.body.limits;
    let made = frontend_nvme::subsystem(nqn.clone(), HostPolicy::Any, *limits);
    let count = controllers
        .iter()
        .filter(|it| it.subsystem.as_ref() == Some(nqn))
        .count();
    Some(v1::Subsystem {
        nqn: nqn.to_string(),
        serial: there.body.serial.clone().unwrap_or(made.serial),
        model: there.body.model.clone().unwrap_or(made.model),
        hosts: Some(policy(&there.body.hosts)),
        limits: Some(v1::SubsystemLimits {
            controllers_max: limits.controllers_max.into(),
            controllers_per_host_max: limits.controllers_per_host_max.into(),
            io_queues_max: limits.io_queues_max.into(),
            queue_entries_max: limits.queue_entries_max.into(),
            transfer_bytes_max: limits.transfer_bytes_max,
            memory_per_host_bytes_max: limits.memory_per_host_bytes,
            connections_per_host_max: limits.connections_per_host_max.into(),
            io_queues_per_host_max: limits.io_queues_per_host_max.into(),
        }),
        namespaces: number(there.namespaces.len()),
        controllers: number(count),
        origin: origin(manager.base().subsystems.contains_key(nqn)),
    })
}

/// A count, for a client.
pub fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A namespace that is there, served or not.
pub fn namespace(
    manager: &Manager,
    controllers: &[ControllerReport],
    nqn: &Nqn,
    nsid: u32,
) -> Option<v1::Namespace> {
    let config = manager.desired().namespace(nqn, nsid)?;
    let mut found = v1::Namespace {
        subsystem_nqn: nqn.to_string(),
        nsid,
        source_text: config.source.to_string(),
        path: path_of(&config.source),
        visible_to: Some(seen_by(&config.visibility)),
        immutable: config.writes.is_immutable(),
        limit: limit_of(config),
        // What was attached under its number since is another one.
        origin: origin(
            manager
                .base()
                .namespace(nqn, nsid)
                .is_some_and(|base| base.source.is_same_disk(&config.source)),
        ),
        ..v1::Namespace::default()
    };
    match manager.live_namespace(nqn, nsid) {
        Some(NamespaceLive::Served(served)) => {
            found.set_state(v1::NamespaceState::Ready);
            if let Some(first) = served.damage.first() {
                found.set_state(v1::NamespaceState::Degraded);
                found.state_detail = damage::why(first);
                found.damage = Some(v1::Damage {
                    reads: served.damage.reads(),
                    first: first.what.clone(),
                    first_at: Some(first.at.into()),
                    first_lba: first.lba,
                });
            }
            describe(&mut found, &config.source, served);
            let sees = |it: &&ControllerReport| {
                it.subsystem.as_ref() == Some(nqn) && config.visibility.includes(&it.host)
            };
            found.controllers = number(controllers.iter().filter(sees).count());
        }
        Some(NamespaceLive::Failed(why)) => {
            found.set_state(v1::NamespaceState::Failed);
            found.state_detail.clone_from(why);
        }
        None => found.set_state(v1::NamespaceState::Failed),
    }
    Some(found)
}

/// As it is attached with; empty where there is none.
fn limit_of(config: &NamespaceConfig) -> String {
    config
        .limit
        .map_or_else(String::new, |limit| limit.to_string())
}

/// The file or device that a source is, from the root on.
fn path_of(source: &SourceSpec) -> String {
    // It fails for an empty path only.
    let path = source
        .path()
        .and_then(|path| std::path::absolute(path).ok());
    path.map_or_else(String::new, |path| path.display().to_string())
}

/// A namespace that is detached, and not closed yet.
pub fn closing_namespace(disk: &ClosingDisk) -> v1::Namespace {
    let mut found = v1::Namespace {
        subsystem_nqn: disk.nqn.to_string(),
        nsid: disk.config.nsid,
        source_text: disk.config.source.to_string(),
        path: path_of(&disk.config.source),
        visible_to: Some(seen_by(&Visibility::Hosts(Vec::new()))),
        immutable: disk.config.writes.is_immutable(),
        limit: limit_of(&disk.config),
        state_detail: disk.why(),
        ..v1::Namespace::default()
    };
    found.set_state(v1::NamespaceState::Closing);
    describe(&mut found, &disk.config.source, &disk.namespace);
    found
}

fn describe(found: &mut v1::Namespace, source: &SourceSpec, served: &namespace::Namespace) {
    found.uuid = uuid_text(&served.identity.uuid);
    found.nguid = hex(&served.identity.uuid);
    found.lba_bytes = served.lba_bytes;
    found.block_count = served.blocks;
    found.bytes = served.bytes();
    found.set_write_protection(match served.access.protection() {
        _ if served.write_protected => v1::WriteProtection::ReadOnly,
        Protection::None => v1::WriteProtection::None,
        Protection::WriteProtect => v1::WriteProtection::ByHost,
        Protection::UntilPowerCycle => v1::WriteProtection::UntilRestart,
        Protection::Permanent => v1::WriteProtection::Permanent,
    });
    found.set_kind(kind_of(served));
    match &served.backing {
        Backing::Raw(_) => {}
        Backing::View { volume, .. } => found.view = Some(view_of(volume)),
        Backing::Mixed(mixed) => {
            let parts = source.parts().iter().zip(mixed.parts());
            found.parts = parts.map(|(source, part)| part_of(source, part)).collect();
        }
    }
}

fn kind_of(namespace: &namespace::Namespace) -> v1::NamespaceKind {
    match &namespace.backing {
        Backing::Raw(_) => v1::NamespaceKind::Raw,
        Backing::View { .. } => v1::NamespaceKind::View,
        Backing::Mixed(_) => v1::NamespaceKind::Mixed,
    }
}

fn view_of(volume: &Volume) -> v1::VolumeView {
    let superblock = volume.superblock();
    let streams = volume.streams().iter();
    v1::VolumeView {
        volume_uuid: uuid_text(&superblock.volume_uuid),
        generation: superblock.generation,
        name: volume.name().to_owned(),
        presented_bytes: volume.presented_bytes(),
        stored_bytes: streams.map(|stream| stream.stored_bytes).sum(),
    }
}

fn part_of(source: &SourceSpec, part: &MixedPart) -> v1::NamespacePart {
    let namespace = &part.namespace;
    v1::NamespacePart {
        first_lba: part.first_lba,
        block_count: namespace.blocks,
        source_text: source.to_string(),
        path: path_of(source),
        kind: kind_of(namespace).into(),
        read_only: namespace.write_protected,
        view: match &namespace.backing {
            Backing::View { volume, .. } => Some(view_of(volume)),
            Backing::Raw(_) | Backing::Mixed(_) => None,
        },
    }
}

/// A listener that is there.
pub fn listener(
    manager: &Manager,
    controllers: &[ControllerReport],
    port_id: PortId,
) -> Option<v1::Listener> {
    let config = manager.desired().listeners.get(&port_id)?;
    let Place { fabric, address } = manager.live_listener(port_id).unwrap_or(config.place);
    // The front desk knows at which address a controller's admin queue came in.
    let here = |it: &&ControllerReport| {
        it.transport == Some(fabric.into())
            && it.local.is_some_and(|local| {
                local.port() == address.port()
                    && (address.ip().is_unspecified() || local.ip() == address.ip())
            })
    };
    let connections = controllers
        .iter()
        .filter(here)
        .map(|it| it.io_queues.len() + 1)
        .sum();
    Some(v1::Listener {
        port_id: port_id.into(),
        transport: v1::Transport::from(fabric).into(),
        address: address.to_string(),
        connections: number(connections),
        origin: origin(manager.base().listeners.contains_key(&port_id)),
    })
}

/// A referral that is there.
pub fn referral(manager: &Manager, address: SocketAddr) -> Option<v1::Referral> {
    let config = manager.desired().referrals.get(&address)?;
    Some(v1::Referral {
        port_id: config.port_id.into(),
        transport: v1::Transport::Tcp.into(),
        address: address.to_string(),
        origin: origin(manager.base().referrals.contains_key(&address)),
    })
}

/// A function that is there.
pub fn function(
    manager: &Manager,
    controllers: &[ControllerReport],
    name: FunctionName,
) -> Option<v1::Function> {
    let config = manager.desired().functions.get(&name)?;
    let protocol = match config.device {
        FunctionDevice::Nvme { .. } => v1::FunctionProtocol::VfioUser,
        FunctionDevice::VirtioBlk { .. } => v1::FunctionProtocol::VhostUserBlk,
        FunctionDevice::Ublk { .. } => v1::FunctionProtocol::Ublk,
    };
    let has_host = config.device.nsid().is_none();
    let mut found = v1::Function {
        name: name.to_string(),
        protocol: protocol.into(),
        nsid: config.device.nsid().unwrap_or(0),
        poll: config.device == FunctionDevice::Nvme { poll: true },
        subsystem_nqn: config.subsystem.to_string(),
        socket: config.socket.display().to_string(),
        host_nqn: match has_host {
            true => name.host().to_string(),
            false => String::new(),
        },
        origin: origin(manager.base().functions.get(&name) == Some(config)),
        ..v1::Function::default()
    };
    if let Some(FunctionLive::Failed(why)) = manager.live_function(name) {
        found.set_state(v1::FunctionState::Failed);
        found.state_detail.clone_from(why);
        return Some(found);
    }
    found.set_state(v1::FunctionState::Waiting);
    if let Some(disk) = manager.disk(name) {
        if disk.connected_since.is_some() {
            found.set_state(v1::FunctionState::Connected);
        }
        found.io_queues = number(disk.queues);
        found.connected_since = disk.connected_since.map(Into::into);
        found.io = Some(function_io(&disk.io));
    }
    match manager.local(name) {
        None => {}
        Some(Ok(queues)) => {
            found.set_state(v1::FunctionState::Connected);
            found.io_queues = queues.into();
        }
        Some(Err(why)) => {
            found.set_state(v1::FunctionState::Failed);
            found.state_detail = why;
        }
    }
    if let Some(controller) = manager.controller_of(name, controllers) {
        found.set_state(v1::FunctionState::Connected);
        found.cntlid = Some(controller.id.0.into());
        found.io_queues = number(controller.io_queues.len());
        found.connected_since = controller.connected_at.map(Into::into);
    }
    Some(found)
}

fn function_io(io: &DeviceIo) -> v1::FunctionIo {
    v1::FunctionIo {
        reads: io.reads,
        writes: io.writes,
        flushes: io.flushes,
        discards: io.discards,
        write_zeroes: io.write_zeroes,
        bytes_read: io.bytes_read,
        bytes_written: io.bytes_written,
        errors: io.errors,
        in_flight: io.in_flight,
        kicks: io.kicks,
        calls: io.calls,
    }
}

fn transport_of(report: &ControllerReport) -> v1::Transport {
    match report.transport {
        Some(Transport::Tcp) => v1::Transport::Tcp,
        Some(Transport::Rdma) => v1::Transport::Rdma,
        // Its admin queue is gone already; a PCIe function has none.
        None | Some(Transport::Pcie) => v1::Transport::Unspecified,
    }
}

/// A controller that is there.
pub fn controller(manager: &Manager, report: &ControllerReport) -> v1::Controller {
    let function = manager.function_of(report);
    v1::Controller {
        cntlid: report.id.0.into(),
        subsystem_nqn: name_of(report.subsystem.as_ref()),
        host_nqn: report.host.to_string(),
        host_id: hex(&report.host_id),
        is_discovery: report.subsystem.is_none(),
        transport: transport_of(report).into(),
        peer_address: report.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        io_queues: number(report.io_queues.len()),
        kato_ms: report.kato_ms,
        connected_since: report.connected_at.map(Into::into),
        function: function.map(|name| name.to_string()).unwrap_or_default(),
    }
}

/// A subsystem's name; of discovery controllers the discovery service's.
pub fn name_of(subsystem: Option<&Nqn>) -> String {
    subsystem.map_or_else(|| Nqn::discovery().to_string(), Nqn::to_string)
}
