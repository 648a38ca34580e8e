//! The discovery log page (Base, "Discovery Log Page").

use super::Transport;
use super::subsystem::{Subsystem, Target};
use crate::nqn::Nqn;
use nvme_spec::discovery::{
    AddressFamily, DiscoveryLogEntry, DiscoveryLogHeader, EFLAG_DUPLICATE_RETURNED_INFORMATION,
    EFLAG_PERSISTENT_CONNECTIONS, SubsystemType, TREQ_SECURE_CHANNEL_NOT_REQUIRED,
    TREQ_SQ_FLOW_CONTROL_DISABLE, TREQ_ZERO_HOST_ID, TSAS_RDMA,
};
use nvme_spec::fabrics::CNTLID_DYNAMIC;
use nvme_spec::{U16, U64};
use std::net::{IpAddr, SocketAddr};
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of the log's header, and of a record.
const RECORD_BYTES: u64 = 1024;
const _: () = assert!(
    size_of::<DiscoveryLogHeader>() as u64 == RECORD_BYTES
        && size_of::<DiscoveryLogEntry>() as u64 == RECORD_BYTES
);

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

/// What a record of the log is about.
#[derive(Clone, Copy)]
enum Entry<'a> {
    /// A subsystem at a listener.
    Subsystem(&'a Subsystem, &'a Listener),
    /// Another discovery service.
    Referral(&'a Referral),
    /// This service at a listener.
    Current(&'a Listener),
}

/// `bytes` of the log from `offset` on, as this host sees it through the connection at `local`: one record for each of its subsystems and each
/// listener, then the referrals, then this service itself at each listener (Base, "Discovery Log Page": SUBTYPE 03h). Shorter where the log ends;
/// none where it ends before `offset`. Only what is asked for is made: there can be thousands of records, and hosts read them in small pieces.
pub(super) fn log(
    target: &Target,
    generation: u64,
    host: &Nqn,
    local: SocketAddr,
    offset: u64,
    bytes: u32,
) -> Option<Vec<u8>> {
    let entries: Vec<Entry<'_>> = entries(target, host).collect();
    let blocks = 1 + entries.len() as u64;
    if offset > blocks * RECORD_BYTES {
        return None;
    }
    let end = (offset + u64::from(bytes)).div_ceil(RECORD_BYTES);
    let (from, to) = (offset / RECORD_BYTES, end.min(blocks));
    let mut part = Vec::new();
    if from == 0 {
        let mut header = DiscoveryLogHeader::new_zeroed();
        header.generation = U64::new(generation);
        header.records = U64::new(entries.len() as u64);
        part.extend_from_slice(header.as_bytes());
    }
    let place = |block: u64| usize::try_from(block.saturating_sub(1)).unwrap_or(usize::MAX);
    let wanted = entries.get(place(from)..place(to)).unwrap_or(&[]);
    for record in wanted.iter().map(|entry| entry.record(target, local)) {
        part.extend_from_slice(record.as_bytes());
    }
    let begun = usize::try_from(offset % RECORD_BYTES).unwrap_or(0);
    part.drain(..begun.min(part.len()));
    Some(part)
}

fn entries<'a>(target: &'a Target, host: &Nqn) -> impl Iterator<Item = Entry<'a>> {
    // A PCIe function is no listener that a host can be told of.
    let listeners = || {
        let all = target.listeners().iter();
        all.filter(|listener| listener.transport.discovery_type().is_some())
    };
    let visible = target.subsystems().iter();
    let subsystems = visible
        .filter(|subsystem| subsystem.hosts.allows(host))
        .flat_map(move |subsystem| {
            listeners().map(move |listener| Entry::Subsystem(subsystem, listener))
        });
    let referrals = target.referrals().iter();
    let referrals = referrals
        .filter(|referral| referral.transport.discovery_type().is_some())
        .map(Entry::Referral);
    subsystems
        .chain(referrals)
        .chain(listeners().map(Entry::Current))
}

impl Entry<'_> {
    fn record(&self, target: &Target, local: SocketAddr) -> DiscoveryLogEntry {
        match *self {
            Entry::Subsystem(subsystem, listener) => {
                let entries = subsystem.limits.admin_queue_entries_max();
                let mut record = record(listener, local, entries);
                record.subtype = SubsystemType::NVM.0;
                record.subnqn = subsystem.nqn.to_field();
                record
            }
            Entry::Referral(to) => referral(to),
            Entry::Current(listener) => current(target, listener, local),
        }
    }
}

/// The record of this service: with keep alive and events, hosts may stay connected to it.
fn current(target: &Target, listener: &Listener, local: SocketAddr) -> DiscoveryLogEntry {
    let entries = target.discovery_limits().queue_entries_max;
    let mut listeners = target.listeners().iter();
    let is_told_elsewhere =
        listeners.any(|other| other != listener && other.transport.discovery_type().is_some());
    let duplicate = if is_told_elsewhere {
        EFLAG_DUPLICATE_RETURNED_INFORMATION
    } else {
        0
    };
    let mut record = record(listener, local, entries);
    record.subtype = SubsystemType::CURRENT_DISCOVERY.0;
    record.subnqn = Nqn::discovery().to_field();
    record.eflags = U16::new(EFLAG_PERSISTENT_CONNECTIONS | duplicate);
    record
}

fn referral(to: &Referral) -> DiscoveryLogEntry {
    let place = Listener {
        transport: to.transport,
        address: to.address,
        port_id: to.port_id,
    };
    let mut record = record(&place, to.address, REFERRED_QUEUE_ENTRIES);
    record.subtype = SubsystemType::REFERRAL.0;
    record.subnqn = Nqn::discovery().to_field();
    record
}

fn record(listener: &Listener, local: SocketAddr, entries: u16) -> DiscoveryLogEntry {
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
    record.trtype = listener
        .transport
        .discovery_type()
        .map_or(0, |transport| transport.0);
    record.adrfam = family.0;
    record.treq =
        TREQ_SECURE_CHANNEL_NOT_REQUIRED | TREQ_SQ_FLOW_CONTROL_DISABLE | TREQ_ZERO_HOST_ID;
    record.port_id = U16::new(listener.port_id);
    record.cntlid = U16::new(CNTLID_DYNAMIC);
    record.admin_queue_entries = U16::new(entries);
    if listener.transport == Transport::Rdma {
        record.tsas[..TSAS_RDMA.len()].copy_from_slice(&TSAS_RDMA);
    }
    pad(&mut record.trsvcid, &listener.address.port().to_string());
    pad(&mut record.traddr, &ip.to_string());
    record
}

/// ASCII, left-justified, padded with spaces (Base, "String conventions").
pub(super) fn pad(field: &mut [u8], text: &str) {
    let padded = text.bytes().chain(std::iter::repeat(b' '));
    for (to, from) in field.iter_mut().zip(padded) {
        *to = from;
    }
}
