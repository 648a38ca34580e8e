//! The discovery log page (Base, "Discovery Log Page").

use super::Transport;
use super::subsystem::Target;
use crate::nqn::Nqn;
use nvme_spec::discovery::{
    AddressFamily, DiscoveryLogEntry, DiscoveryLogHeader, EFLAG_DUPLICATE_RETURNED_INFORMATION,
    EFLAG_PERSISTENT_CONNECTIONS, SubsystemType, TREQ_SECURE_CHANNEL_NOT_REQUIRED,
    TREQ_SQ_FLOW_CONTROL_DISABLE, TREQ_ZERO_HOST_ID,
};
use nvme_spec::fabrics::CNTLID_DYNAMIC;
use nvme_spec::{U16, U64};
use std::net::{IpAddr, SocketAddr};
use zerocopy::{FromZeros, IntoBytes};

/// ASQSZ of a discovery service that we know nothing of but its place (Base: at least 32 entries).
const REFERRED_QUEUE_ENTRIES: u16 = 32;

/// An address at which the target takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Over which transport. A PCIe function is no listener: the discovery log does not name it.
    pub transport: Transport,
    /// Address and port. For an unspecified address (0.0.0.0, ::) a host is told the one through which it asked.
    pub address: SocketAddr,
    /// PORTID: tells the subsystem's ports apart.
    pub port_id: u16,
}

/// Another discovery service that hosts are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Over which transport it is reached.
    pub transport: Transport,
    /// Where.
    pub address: SocketAddr,
    /// PORTID of its record.
    pub port_id: u16,
}

/// The whole log as this host sees it through the connection at `local`: one record for each of its subsystems and each listener, then the
/// referrals, then this service itself at each listener (Base, "Discovery Log Page": SUBTYPE 03h).
pub(super) fn log(target: &Target, generation: u64, host: &Nqn, local: SocketAddr) -> Vec<u8> {
    let mut records = Vec::new();
    let visible = target
        .subsystems()
        .iter()
        .filter(|subsystem| subsystem.hosts.allows(host));
    for subsystem in visible {
        for listener in target.listeners() {
            let entries = subsystem.limits.queue_entries_max;
            let mut record = record(listener, local, entries);
            if let Some(record) = &mut record {
                record.subtype = SubsystemType::NVM.0;
                record.subnqn = subsystem.nqn.to_field();
            }
            records.extend(record);
        }
    }
    records.extend(target.referrals().iter().filter_map(referral));
    records.extend(current(target, local));
    let mut header = DiscoveryLogHeader::new_zeroed();
    header.generation = U64::new(generation);
    header.records = U64::new(records.len() as u64);
    let mut log = header.as_bytes().to_vec();
    for record in &records {
        log.extend_from_slice(record.as_bytes());
    }
    log
}

/// The records of this service: with keep alive and events, hosts may stay connected to it.
fn current(target: &Target, local: SocketAddr) -> Vec<DiscoveryLogEntry> {
    let entries = target.discovery_limits().queue_entries_max;
    let listeners = target.listeners().iter();
    let mut records: Vec<_> = listeners
        .filter_map(|listener| record(listener, local, entries))
        .collect();
    let duplicate = if records.len() > 1 {
        EFLAG_DUPLICATE_RETURNED_INFORMATION
    } else {
        0
    };
    for record in &mut records {
        record.subtype = SubsystemType::CURRENT_DISCOVERY.0;
        record.subnqn = Nqn::discovery().to_field();
        record.eflags = U16::new(EFLAG_PERSISTENT_CONNECTIONS | duplicate);
    }
    records
}

fn referral(to: &Referral) -> Option<DiscoveryLogEntry> {
    let place = Listener {
        transport: to.transport,
        address: to.address,
        port_id: to.port_id,
    };
    let mut record = record(&place, to.address, REFERRED_QUEUE_ENTRIES)?;
    record.subtype = SubsystemType::REFERRAL.0;
    record.subnqn = Nqn::discovery().to_field();
    Some(record)
}

fn record(listener: &Listener, local: SocketAddr, entries: u16) -> Option<DiscoveryLogEntry> {
    let transport = listener.transport.discovery_type()?;
    let ip = if listener.address.ip().is_unspecified() {
        local.ip()
    } else {
        listener.address.ip()
    }
    .to_canonical();
    let family = match ip {
        IpAddr::V4(_) => AddressFamily::IPV4,
        IpAddr::V6(_) => AddressFamily::IPV6,
    };
    let mut record = DiscoveryLogEntry::new_zeroed();
    record.trtype = transport.0;
    record.adrfam = family.0;
    record.treq =
        TREQ_SECURE_CHANNEL_NOT_REQUIRED | TREQ_SQ_FLOW_CONTROL_DISABLE | TREQ_ZERO_HOST_ID;
    record.port_id = U16::new(listener.port_id);
    record.cntlid = U16::new(CNTLID_DYNAMIC);
    record.admin_queue_entries = U16::new(entries);
    pad(&mut record.trsvcid, &listener.address.port().to_string());
    pad(&mut record.traddr, &ip.to_string());
    Some(record)
}

/// ASCII, left-justified, padded with spaces (Base, "String conventions").
pub(super) fn pad(field: &mut [u8], text: &str) {
    let padded = text.bytes().chain(std::iter::repeat(b' '));
    for (to, from) in field.iter_mut().zip(padded) {
        *to = from;
    }
}
