//! What is to be served: the configuration, and what the admin plane made of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use nvme::controller::{ControllerLimits, HostPolicy};
use nvme::nqn::Nqn;

use crate::config::{
    Config, FunctionConfig, FunctionName, ListenerConfig, NamespaceConfig, ReferralConfig,
    SubsystemConfig,
};
use crate::limits::HOSTS_MAX;

/// PORTID of a listener.
pub type PortId = u16;

/// Everything that changes while serving, by its key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// By name.
    pub subsystems: BTreeMap<Nqn, Subsystem>,
    /// By port id.
    pub listeners: BTreeMap<PortId, ListenerConfig>,
    /// By name.
    pub functions: BTreeMap<FunctionName, FunctionConfig>,
    /// By address.
    pub referrals: BTreeMap<SocketAddr, ReferralConfig>,
    /// Hosts that were denied while serving, by subsystem, in the order in which they were: whatever the configuration comes to say, they stay out.
    pub denied: BTreeMap<Nqn, Vec<Nqn>>,
    /// Of subsystems with denials that the configuration no longer has: the list that was in force. It holds if they come back and allow any host.
    pub left_lists: BTreeMap<Nqn, Vec<Nqn>>,
}

/// A subsystem and its namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct Subsystem {
    /// What it is besides its namespaces.
    pub body: SubsystemBody,
    /// By NSID.
    pub namespaces: BTreeMap<u32, NamespaceConfig>,
}

/// A subsystem without its name and its namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemBody {
    /// SN; none: made from the name.
    pub serial: Option<String>,
    /// MN; none: the daemon's.
    pub model: Option<String>,
    /// Who may connect.
    pub hosts: HostPolicy,
    /// What its controllers may take.
    pub limits: ControllerLimits,
}

impl Desired {
    /// What a configuration says.
    pub fn of(config: &Config) -> Self {
        let subsystem = |it: &SubsystemConfig| {
            let body = SubsystemBody {
                serial: it.serial.clone(),
                model: it.model.clone(),
                hosts: it.hosts.clone(),
                limits: it.limits,
            };
            let namespaces = it.namespaces.iter().map(|one| (one.nsid, one.clone()));
            Subsystem {
                body,
                namespaces: namespaces.collect(),
            }
        };
        Self {
            subsystems: config
                .subsystems
                .iter()
                .map(|it| (it.nqn.clone(), subsystem(it)))
                .collect(),
            listeners: config
                .listeners
                .iter()
                .map(|it| (it.port_id, it.clone()))
                .collect(),
            functions: config
                .functions
                .iter()
                .map(|it| (it.name, it.clone()))
                .collect(),
            referrals: config
                .referrals
                .iter()
                .map(|it| (it.address, it.clone()))
                .collect(),
            denied: BTreeMap::new(),
            left_lists: BTreeMap::new(),
        }
    }

    /// The functions whose clients get controllers of a subsystem, by name.
    pub fn functions_of<'d>(&'d self, nqn: &Nqn) -> impl Iterator<Item = &'d FunctionConfig> {
        let all = self.functions.values();
        all.filter(move |config| config.subsystem == *nqn)
    }

    /// These are denied from now on. `named` are those that the configuration lets in: of them none is forgotten where there are more than may be.
    pub fn deny(&mut self, nqn: &Nqn, hosts: &[Nqn], named: Option<&HostPolicy>) {
        if hosts.is_empty() {
            return;
        }
        let denied = self.denied.entry(nqn.clone()).or_default();
        denied.retain(|host| !hosts.contains(host));
        denied.extend_from_slice(hosts);
        let is_named =
            |host: &Nqn| matches!(named, Some(HostPolicy::Only(list)) if list.contains(host));
        while denied.len() > HOSTS_MAX {
            let oldest = denied.iter().position(|host| !is_named(host));
            denied.remove(oldest.unwrap_or(0));
        }
    }

    /// Whom the admin plane lets in is denied no longer.
    pub fn let_in(&mut self, nqn: &Nqn, hosts: &HostPolicy) {
        if let Some(denied) = self.denied.get_mut(nqn) {
            denied.retain(|host| !hosts.allows(host));
            if denied.is_empty() {
                self.denied.remove(nqn);
            }
        }
    }

    /// A namespace of a subsystem.
    pub fn namespace(&self, nqn: &Nqn, nsid: u32) -> Option<&NamespaceConfig> {
        self.subsystems.get(nqn)?.namespaces.get(&nsid)
    }
}
