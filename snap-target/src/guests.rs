//! Devices of virtual machines: sockets at which namespaces of subsystems are virtio disks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontend_nvme::link::Bound;
use frontend_nvme::{Admin, AdminError, Closed, ControllerReport, Life};
use frontend_vhost_user_blk::{Device, DeviceError, DeviceReport, Disk, Door};
use namespace::Namespace;
use nvme::controller::{ControllerId, HostPolicy, Lifetime, Referral, Subsystem, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use crate::config::{FunctionConfig, FunctionDevice, FunctionName};
use crate::limits::DISK_END_MAX;
use crate::locals::Locals;
use crate::manage::Frontend;

/// A device that is to be there: `--vhost-user-blk PATH[,nsid=N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// Where the machine's monitor connects.
    pub socket: PathBuf,
    /// The namespace that it presents.
    pub nsid: u32,
}

impl FromStr for GuestConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, nsid) = match text.rsplit_once(",nsid=") {
            Some((path, nsid)) => {
                let number = nsid.parse().ok().filter(|nsid| *nsid > 0);
                (
                    path,
                    number.ok_or_else(|| format!("{nsid} is no namespace number"))?,
                )
            }
            None => (text, 1),
        };
        if path.is_empty() {
            return Err("it begins with the path of a socket: PATH[,nsid=N]".to_owned());
        }
        Ok(Self {
            socket: path.into(),
            nsid,
        })
    }
}

/// The virtio disks that are there, by the names of their functions.
#[derive(Clone, Debug)]
pub struct Guests {
    places: Arc<Mutex<BTreeMap<FunctionName, Place>>>,
    doors: Vec<Door>,
}

#[derive(Debug)]
struct Place {
    nqn: Nqn,
    nsid: u32,
    device: Device,
}

impl Guests {
    /// None yet. Queues go to the reactors behind `doors`.
    pub fn new(doors: Vec<Door>) -> Self {
        Self {
            places: Arc::default(),
            doors,
        }
    }

    /// Ends them, all at the same time: what is in flight is let end.
    pub fn end(&self) {
        let places = std::mem::take(&mut *self.lock());
        for place in places.values() {
            place.device.begin_end();
        }
        drop(places);
    }

    fn add(&self, config: &FunctionConfig, namespace: &Namespace) -> Result<(), DeviceError> {
        let disk = Disk::of(namespace);
        let device = Device::listen(&config.socket, disk, self.doors.clone())?;
        let place = Place {
            nqn: config.subsystem.clone(),
            nsid: namespace.nsid,
            device,
        };
        self.lock().insert(config.name, place);
        Ok(())
    }

    /// Waits a moment for what is in flight; true: it has not ended, and is not waited for any longer.
    fn remove(&self, name: FunctionName) -> bool {
        let Some(place) = self.lock().remove(&name) else {
            return false;
        };
        place.device.begin_end();
        !ends_in_time(place)
    }

    fn report(&self, name: FunctionName) -> Option<DeviceReport> {
        Some(self.lock().get(&name)?.device.report())
    }

    /// A namespace is there, at every reactor; or it is there as another one, of the same content.
    fn is_there(&self, nqn: &Nqn, namespace: &Namespace) {
        for (name, place) in &*self.lock() {
            if place.nqn == *nqn
                && place.nsid == namespace.nsid
                && !place.device.set_disk(Disk::of(namespace))
            {
                tracing::error!(
                    %name,
                    "another disk is not put under a guest's: its requests fail until the function is deleted, and made anew"
                );
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FunctionName, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits a moment for a device's end, which its drop waits for. False: it goes on without anybody who waits.
pub fn ends_in_time(device: impl Send + 'static) -> bool {
    let (tell, ended) = sync_channel(1);
    let thread = std::thread::Builder::new().name("disk-end".to_owned());
    let spawned = thread.spawn(move || {
        drop(device);
        // Nobody may wait any more.
        let _told = tell.send(());
    });
    // Without a thread it has ended by now: what the closure had is dropped.
    spawned.is_err() || ended.recv_timeout(DISK_END_MAX).is_ok()
}

const _: () = assert!(
    frontend_vhost_user_blk::SHARE_QUEUES_MAX <= frontend_nvme::LODGER_QUEUES_MAX
        && frontend_vhost_user_blk::QUEUE_OPS_MAX <= frontend_nvme::LODGER_QUEUE_OPS_MAX,
    "a reactor has room for the queues of virtual machines"
);

/// The target, and the devices that hear of its namespaces.
pub struct WithDevices {
    /// The target.
    pub admin: Admin,
    /// Those of virtual machines.
    pub guests: Guests,
    /// Those of this machine.
    pub locals: Locals,
}

impl WithDevices {
    fn is_there(&self, nqn: &Nqn, namespace: &Namespace) {
        self.guests.is_there(nqn, namespace);
        self.locals.is_there(nqn, namespace);
    }
}

impl Frontend for WithDevices {
    fn attach(
        &self,
        nqn: &Nqn,
        namespace: Arc<Namespace>,
        visibility: Visibility,
    ) -> Result<(), AdminError> {
        self.admin.attach(nqn, namespace.clone(), visibility)?;
        self.is_there(nqn, &namespace);
        Ok(())
    }

    fn replace(&self, nqn: &Nqn, namespace: Arc<Namespace>) -> Result<Closed, AdminError> {
        let closed = self.admin.replace(nqn, namespace.clone())?;
        self.is_there(nqn, &namespace);
        Ok(closed)
    }

    fn may_resize(&self, nqn: &Nqn, nsid: u32) -> Result<(), String> {
        let may = self.locals.may_resize(nqn, nsid);
        may.map_err(|error| error.to_string())
    }

    fn create_subsystem(&self, subsystem: Subsystem, life: Life) -> Result<(), AdminError> {
        self.admin.create_subsystem(subsystem, life)
    }

    fn delete_subsystem(&self, nqn: &Nqn) -> Result<Closed, AdminError> {
        self.admin.delete_subsystem(nqn)
    }

    fn add_disk(&self, config: &FunctionConfig, namespace: &Namespace) -> Result<(), String> {
        let (name, nqn) = (config.name, &config.subsystem);
        if let FunctionDevice::Ublk { number, .. } = config.device {
            return self.locals.add(name, nqn, number, namespace);
        }
        let added = self.guests.add(config, namespace);
        added.map_err(|error| error.to_string())
    }

    fn remove_disk(&self, name: FunctionName) -> bool {
        self.guests.remove(name) || self.locals.remove(name)
    }

    fn local(&self, name: FunctionName) -> Option<Result<u16, String>> {
        self.locals.state(name)
    }

    fn free_local(&self) -> u32 {
        self.locals.free_number()
    }

    fn disk(&self, name: FunctionName) -> Option<DeviceReport> {
        self.guests.report(name)
    }

    fn remove_function(&self, port_id: u16) -> Result<Closed, AdminError> {
        self.admin.remove_function(port_id)
    }

    fn set_hosts(&self, nqn: &Nqn, hosts: HostPolicy) -> Result<Closed, AdminError> {
        self.admin.set_hosts(nqn, hosts)
    }

    fn detach(&self, nqn: &Nqn, nsid: Nsid) -> Result<Closed, AdminError> {
        self.admin.detach(nqn, nsid)
    }

    fn set_visibility(
        &self,
        nqn: &Nqn,
        nsid: Nsid,
        visibility: Visibility,
    ) -> Result<Closed, AdminError> {
        self.admin.set_visibility(nqn, nsid, visibility)
    }

    fn add_listener(&self, port_id: u16, listener: Box<dyn Bound>) -> Result<(), AdminError> {
        self.admin.add_listener(port_id, listener)
    }

    fn remove_listener(&self, port_id: u16) -> Result<(), AdminError> {
        self.admin.remove_listener(port_id)
    }

    fn set_referrals(&self, referrals: Vec<Referral>) -> Result<(), AdminError> {
        self.admin.set_referrals(referrals)
    }

    fn end_controller(&self, id: ControllerId) -> Result<Closed, AdminError> {
        self.admin.end_controller(id)
    }

    fn controllers(&self) -> Result<Vec<ControllerReport>, AdminError> {
        self.admin.controllers()
    }

    fn lifetimes(&self) -> Result<Vec<(Nqn, Lifetime)>, AdminError> {
        self.admin.lifetimes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_path_and_a_namespace() {
        let of = |text: &str| text.parse::<GuestConfig>();
        let device = |socket: &str, nsid| {
            Ok(GuestConfig {
                socket: socket.into(),
                nsid,
            })
        };
        assert_eq!(of("/run/vm0"), device("/run/vm0", 1));
        assert_eq!(of("/run/vm0,nsid=7"), device("/run/vm0", 7));
        // A path may have anything in it.
        assert_eq!(of("/run/a,b"), device("/run/a,b", 1));
        assert_eq!(of("a,nsid=1,nsid=2"), device("a,nsid=1", 2));
        for text in [
            "",
            ",nsid=1",
            "a,nsid=",
            "a,nsid=0",
            "a,nsid=-1",
            "a,nsid=x",
            "a,nsid=4294967296",
        ] {
            assert!(of(text).is_err(), "{text:?}");
        }
    }
}
