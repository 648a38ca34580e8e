//! A change of what is served, as steps that can be undone.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use frontend_nvme_tcp::AdminError;
use namespace::Namespace;
use nvme::controller::{HostPolicy, Referral, Transport, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use super::frontend::Frontend;
use super::{ListenerLive, Live, ManageError, NamespaceLive};
use crate::config::ReferralConfig;
use crate::desired::{Desired, PortId, SubsystemBody};

/// One call of the frontend. What it needs has been opened before the first step is taken.
#[derive(Debug)]
pub enum Step {
    CreateSubsystem(Nqn, SubsystemBody),
    DeleteSubsystem(Nqn),
    SetHosts(Nqn, HostPolicy),
    Attach(Nqn, Arc<Namespace>, Visibility),
    Replace(Nqn, Arc<Namespace>),
    Detach(Nqn, u32),
    SetVisibility(Nqn, u32, Visibility),
    AddListener(PortId, TcpListener),
    /// Takes [`Step::RemoveListener`] back: the address is free only after it.
    ListenAgain(PortId, SocketAddr),
    RemoveListener(PortId),
    SetReferrals(Vec<ReferralConfig>),
}

/// Takes all steps, or none: those before one that fails are undone. Returns how to undo them all.
pub fn take_all(
    frontend: &dyn Frontend,
    live: &mut Live,
    before: &Desired,
    steps: Vec<Step>,
) -> Result<Vec<Step>, ManageError> {
    let mut undo = Vec::new();
    for step in steps {
        let mut back = undo_of(&step, live, before);
        match take(frontend, live, step) {
            Ok(()) => undo.append(&mut back),
            Err(error) => {
                undo_all(frontend, live, undo);
                return Err(error);
            }
        }
    }
    Ok(undo)
}

/// Takes steps back, the last one first. What cannot be taken back is logged: the hosts see the state that is reported, or less.
pub fn undo_all(frontend: &dyn Frontend, live: &mut Live, undo: Vec<Step>) {
    for step in undo.into_iter().rev() {
        let what = format!("{step:?}");
        if let Err(error) = take(frontend, live, step) {
            tracing::error!(%error, what, "a change could not be taken back");
        }
    }
}

/// The steps that take a step back, in the order of being pushed: the last one is taken first.
fn undo_of(step: &Step, live: &Live, before: &Desired) -> Vec<Step> {
    match step {
        Step::CreateSubsystem(nqn, _) => vec![Step::DeleteSubsystem(nqn.clone())],
        Step::DeleteSubsystem(nqn) => undo_delete(nqn, live, before),
        Step::SetHosts(nqn, _) => {
            let there = before.subsystems.get(nqn);
            there
                .map(|it| Step::SetHosts(nqn.clone(), it.body.hosts.clone()))
                .into_iter()
                .collect()
        }
        Step::Attach(nqn, namespace, _) => vec![Step::Detach(nqn.clone(), namespace.nsid)],
        Step::Replace(nqn, namespace) => {
            let served = live.served(nqn, namespace.nsid);
            // A name of its own in the process, as every attachment has.
            let back = served.map(|old| Arc::new(again(old)));
            back.map(|old| Step::Replace(nqn.clone(), old))
                .into_iter()
                .collect()
        }
        Step::Detach(nqn, nsid) => {
            let served = live.served(nqn, *nsid).map(|old| Arc::new(again(old)));
            let sees = before.namespace(nqn, *nsid).map(|it| &it.visibility);
            served
                .zip(sees)
                .map(|(old, sees)| Step::Attach(nqn.clone(), old, sees.clone()))
                .into_iter()
                .collect()
        }
        Step::SetVisibility(nqn, nsid, _) => {
            let sees = before.namespace(nqn, *nsid).map(|it| &it.visibility);
            sees.map(|sees| Step::SetVisibility(nqn.clone(), *nsid, sees.clone()))
                .into_iter()
                .collect()
        }
        Step::AddListener(port_id, _) | Step::ListenAgain(port_id, _) => {
            vec![Step::RemoveListener(*port_id)]
        }
        Step::RemoveListener(port_id) => match live.listeners.get(port_id) {
            Some(ListenerLive::Open(address)) => vec![Step::ListenAgain(*port_id, *address)],
            _ => Vec::new(),
        },
        Step::SetReferrals(_) => vec![Step::SetReferrals(
            before.referrals.values().cloned().collect(),
        )],
    }
}

fn undo_delete(nqn: &Nqn, live: &Live, before: &Desired) -> Vec<Step> {
    let Some(subsystem) = before.subsystems.get(nqn) else {
        return Vec::new();
    };
    let mut steps: Vec<Step> = subsystem
        .namespaces
        .values()
        .filter_map(|it| {
            let old = live.served(nqn, it.nsid)?;
            let old = Arc::new(again(old));
            Some(Step::Attach(nqn.clone(), old, it.visibility.clone()))
        })
        .collect();
    steps.push(Step::CreateSubsystem(nqn.clone(), subsystem.body.clone()));
    steps
}

/// The same disk under another key: engines let go of the one that was detached in their own time.
fn again(old: &Arc<Namespace>) -> Namespace {
    let mut again = Namespace::clone(old);
    again.key = namespace::NamespaceKey::next();
    again
}

fn take(frontend: &dyn Frontend, live: &mut Live, step: Step) -> Result<(), ManageError> {
    match step {
        Step::CreateSubsystem(nqn, body) => {
            frontend.create_subsystem(subsystem_of(nqn, body))?;
        }
        Step::DeleteSubsystem(nqn) => {
            closed(frontend.delete_subsystem(&nqn))?;
            live.namespaces.retain(|(of, _), _| *of != nqn);
        }
        Step::SetHosts(nqn, hosts) => frontend.set_hosts(&nqn, hosts)?,
        Step::Attach(nqn, namespace, visibility) => {
            frontend.attach(&nqn, namespace.clone(), visibility)?;
            let key = (nqn, namespace.nsid);
            live.namespaces
                .insert(key, NamespaceLive::Served(namespace));
        }
        Step::Replace(nqn, namespace) => {
            closed(frontend.replace(&nqn, namespace.clone()))?;
            let key = (nqn, namespace.nsid);
            live.namespaces
                .insert(key, NamespaceLive::Served(namespace));
        }
        Step::Detach(nqn, nsid) => {
            if live.served(&nqn, nsid).is_some() {
                closed(frontend.detach(&nqn, Nsid(nsid)))?;
            }
            live.namespaces.remove(&(nqn, nsid));
        }
        Step::SetVisibility(nqn, nsid, visibility) => {
            if live.served(&nqn, nsid).is_some() {
                frontend.set_visibility(&nqn, Nsid(nsid), visibility)?;
            }
        }
        Step::AddListener(port_id, listener) => {
            let address = listener
                .local_addr()
                .map_err(|error| ManageError::Internal(error.to_string()))?;
            frontend.add_listener(port_id, listener)?;
            live.listeners.insert(port_id, ListenerLive::Open(address));
        }
        Step::ListenAgain(port_id, address) => {
            frontend.add_listener(port_id, listen(address)?)?;
            live.listeners.insert(port_id, ListenerLive::Open(address));
        }
        Step::RemoveListener(port_id) => {
            if matches!(live.listeners.get(&port_id), Some(ListenerLive::Open(_))) {
                frontend.remove_listener(port_id)?;
            }
            live.listeners.remove(&port_id);
        }
        Step::SetReferrals(all) => {
            frontend.set_referrals(all.iter().map(referral_of).collect())?;
        }
    }
    Ok(())
}

/// Hosts no longer see it; that a store has not answered yet is no reason to take it back.
fn closed(result: Result<(), AdminError>) -> Result<(), AdminError> {
    match result {
        Err(error @ AdminError::StillClosing { .. }) => {
            tracing::warn!(%error, "a store takes long to close");
            Ok(())
        }
        other => other,
    }
}

fn subsystem_of(nqn: Nqn, body: SubsystemBody) -> nvme::controller::Subsystem {
    let mut subsystem = frontend_nvme_tcp::subsystem(nqn, body.hosts, body.limits);
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

/// Listens, or says why not.
pub fn listen(address: SocketAddr) -> Result<TcpListener, ManageError> {
    frontend_nvme_tcp::bind(address).map_err(|error| {
        ManageError::Precondition(format!(
            "cannot listen on {address}: {error}; take an address of this machine and a free port"
        ))
    })
}
