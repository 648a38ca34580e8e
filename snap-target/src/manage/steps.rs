//! A change of what is served: one call of the frontend, and what is live after it.

use std::sync::Arc;

use admin_proto::v1::{ObjectKind, Reason};
use frontend_nvme::link::Bound;
use frontend_nvme::{Closed, Life};
use namespace::Namespace;
use nvme::controller::{HostPolicy, Referral, Transport, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use super::frontend::Frontend;
use super::{FunctionLive, ListenerLive, Live, ManageError, NamespaceLive};
use crate::config::{FunctionConfig, FunctionName, Place, ReferralConfig};
use crate::desired::{PortId, SubsystemBody};
use crate::identity::Nodes;

/// One call of the frontend. What it needs has been opened before it is taken.
#[derive(Debug)]
pub enum Step {
    CreateSubsystem(Nqn, Box<(SubsystemBody, Life)>),
    /// With its functions.
    DeleteSubsystem(Nqn, Vec<FunctionName>),
    SetHosts(Nqn, HostPolicy),
    Attach(Nqn, Arc<Namespace>, Nodes, Visibility),
    Replace(Nqn, Arc<Namespace>),
    Detach(Nqn, u32),
    SetVisibility(Nqn, u32, Visibility),
    AddListener(PortId, Place, Box<dyn Bound>),
    RemoveListener(PortId),
    AddFunction(FunctionName, PortId, Box<dyn Bound>),
    AddDisk(Box<FunctionConfig>, Arc<Namespace>),
    RemoveFunction(FunctionName),
    SetReferrals(Vec<ReferralConfig>),
}

/// Takes a step, or says why nothing of it was done. Returns what it left.
pub fn take(frontend: &dyn Frontend, live: &mut Live, step: Step) -> Result<Closed, ManageError> {
    let mut closed = Closed::Done;
    match step {
        Step::CreateSubsystem(nqn, made) => {
            let (body, life) = *made;
            frontend.create_subsystem(subsystem_of(nqn, body), life)?;
        }
        Step::DeleteSubsystem(nqn, functions) => {
            closed = frontend.delete_subsystem(&nqn)?;
            // Their controllers have ended with it.
            for name in functions {
                remove_disk(frontend, live, name);
                if let Some(number) = live.function_number(name)
                    && let Err(error) = frontend.remove_function(number)
                {
                    tracing::error!(%name, %error, "the socket of a function stays, and gives nobody a controller");
                }
                live.functions.remove(&name);
            }
            live.namespaces.retain(|(of, _), _| *of != nqn);
            live.nodes.retain(|(of, _), _| *of != nqn);
        }
        Step::SetHosts(nqn, hosts) => closed = frontend.set_hosts(&nqn, hosts)?,
        Step::Attach(nqn, namespace, nodes, visibility) => {
            frontend.attach(&nqn, namespace.clone(), visibility)?;
            let key = (nqn, namespace.nsid);
            live.nodes.insert(key.clone(), nodes);
            live.namespaces
                .insert(key, NamespaceLive::Served(namespace));
        }
        Step::Replace(nqn, namespace) => {
            closed = frontend.replace(&nqn, namespace.clone())?;
            let key = (nqn, namespace.nsid);
            live.namespaces
                .insert(key, NamespaceLive::Served(namespace));
        }
        Step::Detach(nqn, nsid) => {
            if live.served(&nqn, nsid).is_some() {
                closed = frontend.detach(&nqn, Nsid(nsid))?;
            }
            let key = (nqn, nsid);
            live.namespaces.remove(&key);
            live.nodes.remove(&key);
        }
        Step::SetVisibility(nqn, nsid, visibility) => {
            if live.served(&nqn, nsid).is_some() {
                closed = frontend.set_visibility(&nqn, Nsid(nsid), visibility)?;
            }
        }
        Step::AddListener(port_id, place, listener) => {
            let trouble = listener.trouble();
            frontend.add_listener(port_id, listener)?;
            live.listeners.insert(port_id, ListenerLive::Open(place));
            live.troubles
                .extend(trouble.map(|trouble| (port_id, trouble)));
        }
        Step::RemoveListener(port_id) => {
            if matches!(live.listeners.get(&port_id), Some(ListenerLive::Open(_))) {
                frontend.remove_listener(port_id)?;
            }
            live.listeners.remove(&port_id);
            live.troubles.remove(&port_id);
        }
        Step::AddFunction(name, number, port) => {
            frontend.add_listener(number, port)?;
            live.functions.insert(name, FunctionLive::Open(number));
        }
        Step::AddDisk(config, namespace) => {
            let added = frontend.add_disk(&config, &namespace);
            added.map_err(|why| {
                let text = format!("function {} cannot be had: {why}", config.name);
                ManageError::new(Reason::AddressRefused, text)
                    .about(ObjectKind::Function, config.name)
            })?;
            live.functions.insert(config.name, FunctionLive::Disk);
        }
        Step::RemoveFunction(name) => {
            remove_disk(frontend, live, name);
            if let Some(number) = live.function_number(name) {
                closed = frontend.remove_function(number)?;
            }
            live.functions.remove(&name);
        }
        Step::SetReferrals(all) => {
            frontend.set_referrals(all.iter().map(referral_of).collect())?;
        }
    }
    Ok(closed)
}

fn remove_disk(frontend: &dyn Frontend, live: &Live, name: FunctionName) {
    let is_disk = matches!(live.functions.get(&name), Some(FunctionLive::Disk));
    if is_disk && frontend.remove_disk(name) {
        tracing::warn!(%name, "requests of its client are still under way; it goes when they have ended");
    }
}

fn subsystem_of(nqn: Nqn, body: SubsystemBody) -> nvme::controller::Subsystem {
    let mut subsystem = frontend_nvme::subsystem(nqn, body.hosts, body.limits);
    if let Some(serial) = body.serial {
        subsystem.serial = serial;
    }
    if let Some(model) = body.model {
        subsystem.model = model;
    }
    subsystem
}

fn referral_of(config: &ReferralConfig) -> Referral {
    Referral {
        transport: Transport::Tcp,
        address: config.address,
        port_id: config.port_id,
    }
}
