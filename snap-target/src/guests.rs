//! Devices of virtual machines: sockets at which namespaces of subsystems are virtio disks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use frontend_nvme::link::Bound;
use frontend_nvme::{Admin, AdminError, Closed, ControllerReport, Life};
use frontend_vhost_user_blk::{Device, Disk, Door};
use namespace::Namespace;
use nvme::controller::{ControllerId, HostPolicy, Lifetime, Referral, Subsystem, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use crate::limits::VIRTIO_DISKS_MAX;
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

/// The devices, each with what it presents.
#[derive(Clone, Debug)]
pub struct Guests {
    places: Arc<Mutex<Vec<Place>>>,
    doors: Vec<Door>,
}

#[derive(Debug)]
struct Place {
    config: GuestConfig,
    nqn: Nqn,
    /// None: its namespace is not there, or it could not listen; why.
    device: Result<Device, String>,
}

impl Guests {
    /// For devices of these namespaces, which are not there yet. Queues go to the reactors behind `doors`.
    pub fn new(configs: &[(Nqn, GuestConfig)], doors: Vec<Door>) -> Self {
        let place = |(nqn, config): &(Nqn, GuestConfig)| Place {
            config: config.clone(),
            nqn: nqn.clone(),
            device: Err("its namespace is not there".to_owned()),
        };
        Self {
            places: Arc::new(Mutex::new(configs.iter().map(place).collect())),
            doors,
        }
    }

    /// That each of them listens.
    ///
    /// # Errors
    /// The first that does not, and why.
    pub fn check(&self) -> Result<()> {
        for place in &*self.lock() {
            if let Err(why) = &place.device {
                let GuestConfig { socket, nsid } = &place.config;
                bail!("--vhost-user-blk {},nsid={nsid}: {why}", socket.display());
            }
        }
        Ok(())
    }

    /// What a monitor is started with, a line a device.
    pub fn report(&self) -> String {
        let line = |place: &Place| {
            let GuestConfig { socket, nsid } = &place.config;
            format!("vhost-user-blk {} nsid {nsid}\n", socket.display())
        };
        self.lock().iter().map(line).collect()
    }

    /// Ends them, all at the same time: what is in flight is let end.
    pub fn end(&self) {
        let places = std::mem::take(&mut *self.lock());
        for device in places.iter().filter_map(|place| place.device.as_ref().ok()) {
            device.begin_end();
        }
        drop(places);
    }

    /// A namespace is there, at every reactor; or it is there as another one, of the same content.
    fn is_there(&self, nqn: &Nqn, namespace: &Namespace) {
        for place in &mut *self.lock() {
            if place.nqn != *nqn || place.config.nsid != namespace.nsid {
                continue;
            }
            let disk = Disk::of(namespace);
            match &place.device {
                Ok(device) => {
                    if !device.set_disk(disk) {
                        tracing::error!(
                            socket = %device.path().display(),
                            "another disk is not put under a guest's: its requests fail until the daemon is started anew"
                        );
                    }
                }
                Err(_) => {
                    let listening = Device::listen(&place.config.socket, disk, self.doors.clone());
                    place.device = listening.map_err(|error| {
                        tracing::error!(%error, "a device of a virtual machine is not there");
                        error.to_string()
                    });
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const _: () = assert!(
    frontend_vhost_user_blk::SHARE_QUEUES_MAX <= frontend_nvme::LODGER_QUEUES_MAX
        && frontend_vhost_user_blk::QUEUE_OPS_MAX <= frontend_nvme::LODGER_QUEUE_OPS_MAX,
    "a reactor has room for the queues of virtual machines"
);

/// The devices of a subsystem's namespaces, as a configuration says them.
///
/// # Errors
/// Two at one socket; more than there may be.
pub fn of_subsystem(nqn: &Nqn, configs: &[GuestConfig]) -> Result<Vec<(Nqn, GuestConfig)>> {
    if configs.len() > VIRTIO_DISKS_MAX {
        bail!(
            "{} devices of virtual machines, and there may be {VIRTIO_DISKS_MAX}; serve the others by another target",
            configs.len()
        );
    }
    let mut sockets = HashMap::new();
    for config in configs {
        if sockets.insert(&config.socket, ()).is_some() {
            bail!("two devices at {}", config.socket.display());
        }
    }
    let all = configs.iter().map(|config| (nqn.clone(), config.clone()));
    Ok(all.collect())
}

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

    #[test]
    fn two_devices_have_two_sockets() {
        let nqn = Nqn::parse("nqn.2026-11.io.xio:test").unwrap();
        let of = |texts: &[&str]| {
            let configs: Vec<GuestConfig> =
                texts.iter().map(|text| text.parse().unwrap()).collect();
            of_subsystem(&nqn, &configs).map(|all| all.len())
        };
        assert_eq!(of(&["/run/a", "/run/b", "/run/c,nsid=2"]).unwrap(), 3);
        let error = of(&["/run/a", "/run/a,nsid=2"]).unwrap_err().to_string();
        assert!(error.contains("/run/a"), "{error}");
        let many: Vec<String> = (0..65).map(|number| format!("/run/{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(of(&many[..64]).unwrap(), 64);
        let error = of(&many).unwrap_err().to_string();
        assert!(error.contains("65 devices"), "{error}");
    }
}
