//! What the manager asks of the frontend; tests have one of their own.

use std::sync::Arc;

use frontend_nvme::link::Bound;
use frontend_nvme::{Admin, AdminError, Closed, ControllerReport, Life};
use namespace::Namespace;
use nvme::controller::{ControllerId, HostPolicy, Lifetime, Referral, Subsystem, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

/// The calls of [`Admin`], with its contract: a call returns when the change is in force on every reactor and the hosts were told, or when nothing of it
/// was done.
#[allow(
    missing_docs,
    reason = "each is the call of the same name of frontend_nvme::Admin"
)]
pub trait Frontend: Send {
    fn create_subsystem(&self, subsystem: Subsystem, life: Life) -> Result<(), AdminError>;
    fn delete_subsystem(&self, nqn: &Nqn) -> Result<Closed, AdminError>;
    fn set_hosts(&self, nqn: &Nqn, hosts: HostPolicy) -> Result<Closed, AdminError>;
    fn attach(
        &self,
        nqn: &Nqn,
        namespace: Arc<Namespace>,
        visibility: Visibility,
    ) -> Result<(), AdminError>;
    fn replace(&self, nqn: &Nqn, namespace: Arc<Namespace>) -> Result<Closed, AdminError>;
    /// Whether all who present a namespace can present it at another size; why not.
    fn may_resize(&self, _nqn: &Nqn, _nsid: u32) -> Result<(), String> {
        Ok(())
    }
    fn detach(&self, nqn: &Nqn, nsid: Nsid) -> Result<Closed, AdminError>;
    fn set_visibility(
        &self,
        nqn: &Nqn,
        nsid: Nsid,
        visibility: Visibility,
    ) -> Result<Closed, AdminError>;
    fn add_listener(&self, port_id: u16, listener: Box<dyn Bound>) -> Result<(), AdminError>;
    fn remove_listener(&self, port_id: u16) -> Result<(), AdminError>;
    fn remove_function(&self, port_id: u16) -> Result<Closed, AdminError>;
    fn set_referrals(&self, referrals: Vec<Referral>) -> Result<(), AdminError>;
    fn end_controller(&self, id: ControllerId) -> Result<Closed, AdminError>;
    fn controllers(&self) -> Result<Vec<ControllerReport>, AdminError>;
    fn lifetimes(&self) -> Result<Vec<(Nqn, Lifetime)>, AdminError>;
}

impl Frontend for Admin {
    fn create_subsystem(&self, subsystem: Subsystem, life: Life) -> Result<(), AdminError> {
        self.create_subsystem(subsystem, life)
    }

    fn delete_subsystem(&self, nqn: &Nqn) -> Result<Closed, AdminError> {
        self.delete_subsystem(nqn)
    }

    fn set_hosts(&self, nqn: &Nqn, hosts: HostPolicy) -> Result<Closed, AdminError> {
        self.set_hosts(nqn, hosts)
    }

    fn attach(
        &self,
        nqn: &Nqn,
        namespace: Arc<Namespace>,
        visibility: Visibility,
    ) -> Result<(), AdminError> {
        self.attach(nqn, namespace, visibility)
    }

    fn replace(&self, nqn: &Nqn, namespace: Arc<Namespace>) -> Result<Closed, AdminError> {
        self.replace(nqn, namespace)
    }

    fn detach(&self, nqn: &Nqn, nsid: Nsid) -> Result<Closed, AdminError> {
        self.detach(nqn, nsid)
    }

    fn set_visibility(
        &self,
        nqn: &Nqn,
        nsid: Nsid,
        visibility: Visibility,
    ) -> Result<Closed, AdminError> {
        self.set_visibility(nqn, nsid, visibility)
    }

    fn add_listener(&self, port_id: u16, listener: Box<dyn Bound>) -> Result<(), AdminError> {
        self.add_listener(port_id, listener)
    }

    fn remove_listener(&self, port_id: u16) -> Result<(), AdminError> {
        self.remove_listener(port_id)
    }

    fn remove_function(&self, port_id: u16) -> Result<Closed, AdminError> {
        self.remove_function(port_id)
    }

    fn set_referrals(&self, referrals: Vec<Referral>) -> Result<(), AdminError> {
        self.set_referrals(referrals)
    }

    fn end_controller(&self, id: ControllerId) -> Result<Closed, AdminError> {
        self.end_controller(id)
    }

    fn controllers(&self) -> Result<Vec<ControllerReport>, AdminError> {
        self.controllers()
    }

    fn lifetimes(&self) -> Result<Vec<(Nqn, Lifetime)>, AdminError> {
        self.lifetimes()
    }
}
