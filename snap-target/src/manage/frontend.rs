//! What the manager asks of the frontend; tests have one of their own.

use std::sync::Arc;

use frontend_nvme::link::Bound;
use frontend_nvme::{AdminError, Closed, ControllerReport, Life};
use frontend_vhost_user_blk::DeviceReport;
use namespace::Namespace;
use nvme::controller::{ControllerId, HostPolicy, Lifetime, Referral, Subsystem, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use crate::config::{FunctionConfig, FunctionName};

/// The calls of [`frontend_nvme::Admin`], with its contract, and virtio disks: a call returns when the change is in force on every reactor and the hosts were told, or when nothing of it
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
    /// A disk that is the namespace: one for a virtual machine waits for its monitor when this returns.
    fn add_disk(&self, config: &FunctionConfig, namespace: &Namespace) -> Result<(), String>;
    /// It takes nothing more. True: requests of its guest are still under way, and it goes when they have ended.
    fn remove_disk(&self, name: FunctionName) -> bool;
    /// How a virtio disk is.
    fn disk(&self, name: FunctionName) -> Option<DeviceReport>;
    /// How many queues a block device of this machine has, or why it is not there; none: it is about to be.
    fn local(&self, _name: FunctionName) -> Option<Result<u16, String>> {
        None
    }
    /// The lowest number that no block device of this machine has.
    fn free_local(&self) -> u32 {
        0
    }
    fn set_referrals(&self, referrals: Vec<Referral>) -> Result<(), AdminError>;
    fn end_controller(&self, id: ControllerId) -> Result<Closed, AdminError>;
    fn controllers(&self) -> Result<Vec<ControllerReport>, AdminError>;
    fn lifetimes(&self) -> Result<Vec<(Nqn, Lifetime)>, AdminError>;
}
