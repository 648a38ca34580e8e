//! Block devices of this machine: namespaces of subsystems as /dev/ublkbN.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use admin_proto::v1::HealthCode;
use anyhow::{Result, bail};
use frontend_ublk::{DEVICES_MAX, Device, DeviceError, Disk, Door};
use namespace::Namespace;
use nvme::nqn::Nqn;

use crate::config::FunctionName;
use crate::guests::ends_in_time;
use crate::health::Health;
use crate::limits::{LOCAL_WAIT_MAX, LOCALS_START_MAX};

/// Numbers of ublk devices (UBLK_MINORS).
pub const NUMBERS: u32 = 1 << 20;

/// A device that is to be there: `--ublk N[,nsid=N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalConfig {
    /// /dev/ublkbN.
    pub number: u32,
    /// The namespace that it presents.
    pub nsid: u32,
}

impl FromStr for LocalConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, nsid) = match text.split_once(",nsid=") {
            Some((number, nsid)) => {
                let parsed = nsid.parse().ok().filter(|nsid| *nsid > 0);
                (
                    number,
                    parsed.ok_or_else(|| format!("{nsid} is no namespace number"))?,
                )
            }
            None => (text, 1),
        };
        let number = number.parse().ok().filter(|number| *number < NUMBERS);
        let number = number.ok_or_else(|| {
            format!("it is N[,nsid=N], where N is the number of /dev/ublkbN, below {NUMBERS}")
        })?;
        Ok(Self { number, nsid })
    }
}

/// Where a device of a number is.
pub fn path_of(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

/// For how many devices reactors are to have room, where a configuration names so many: others are made while serving, if the driver is there.
pub fn room_for(configured: usize) -> usize {
    match Path::new("/dev/ublk-control").exists() {
        true => DEVICES_MAX,
        false => configured,
    }
}

/// The devices, each with what it presents.
#[derive(Clone, Debug)]
pub struct Locals {
    places: Arc<Mutex<Vec<Place>>>,
    /// As many as reactors have room for.
    room: usize,
    doors: Vec<Door>,
    health: Health,
}

#[derive(Debug)]
struct Place {
    /// Of one that was made while serving.
    name: Option<FunctionName>,
    config: LocalConfig,
    nqn: Nqn,
    /// None: its namespace is not there.
    started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    device: Device,
    told: Told,
}

/// Whether a device has come to be there, and with how many queues; none: not yet.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Outcome>);

#[derive(Debug, Default)]
struct Outcome {
    result: Mutex<Option<Result<u16, String>>>,
    changed: Condvar,
}

impl Told {
    fn set(&self, result: Result<u16, String>) {
        let Outcome {
            result: told,
            changed,
        } = &*self.0;
        *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        changed.notify_all();
    }

    fn wait(&self, until: Instant) -> Option<Result<u16, String>> {
        let Outcome { result, changed } = &*self.0;
        let result = result.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let waited = changed.wait_timeout_while(result, left, |it| it.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Started {
    /// Has a device be there. The kernel reads it meanwhile, which is not waited for.
    fn begin(
        number: u32,
        place: &str,
        disk: Disk,
        doors: &[Door],
        health: &Health,
    ) -> Result<Self, DeviceError> {
        let told = Told::default();
        let (tell, health) = (told.clone(), health.clone());
        let then = move |result: Result<u16, DeviceError>| {
            let subject = path_of(number).display().to_string();
            match &result {
                Ok(_) => health.well(&subject),
                Err(error) => {
                    tracing::error!(%error, "a block device of this machine is not there");
                    health.problem(&subject, HealthCode::Device, error.to_string());
                }
            }
            tell.set(result.map_err(|error| error.to_string()));
        };
        let device = Device::start(number, place, disk, doors.to_vec(), then)?;
        Ok(Self { device, told })
    }
}

impl Locals {
    /// For devices of these namespaces, which are not there yet. Queues go to the reactors behind `doors`, which have room for so many.
    pub fn new(
        configs: &[(Nqn, LocalConfig)],
        room: usize,
        doors: Vec<Door>,
        health: Health,
    ) -> Self {
        let place = |(nqn, config): &(Nqn, LocalConfig)| Place {
            name: None,
            config: *config,
            nqn: nqn.clone(),
            started: None,
        };
        Self {
            places: Arc::new(Mutex::new(configs.iter().map(place).collect())),
            room,
            doors,
            health,
        }
    }

    /// Makes one more while serving. It is there when this returns, or will be: the kernel may have to end what the last daemon had.
    ///
    /// # Errors
    /// Why not.
    pub fn add(
        &self,
        name: FunctionName,
        nqn: &Nqn,
        number: u32,
        namespace: &Namespace,
    ) -> Result<(), String> {
        let mut places = self.lock();
        let path = path_of(number);
        if places.iter().any(|place| place.config.number == number) {
            return Err(format!(
                "{} is a device of this daemon's already; take another number",
                path.display()
            ));
        }
        if places.len() >= self.room {
            return Err(format!(
                "this daemon has room for {} block devices of this machine; at most {DEVICES_MAX}, where the driver is there when it starts: modprobe ublk_drv, then restart it",
                self.room
            ));
        }
        let (place, disk) = (stamped_place(nqn, namespace.nsid), Disk::of(namespace));
        let started = Started::begin(number, &place, disk, &self.doors, &self.health);
        let started = started.map_err(|error| error.to_string())?;
        if let Some(Err(why)) = started.told.wait(Instant::now() + LOCAL_WAIT_MAX) {
            self.health.well(&path.display().to_string());
            return Err(why);
        }
        places.push(Place {
            name: Some(name),
            config: LocalConfig {
                number,
                nsid: namespace.nsid,
            },
            nqn: nqn.clone(),
            started: Some(started),
        });
        Ok(())
    }

    /// Deletes one that was made so. Waits a moment for what is in flight; true: it has not ended, and is not waited for any longer.
    pub fn remove(&self, name: FunctionName) -> bool {
        let mut places = self.lock();
        let found = places.iter().position(|place| place.name == Some(name));
        let Some(place) = found.map(|at| places.remove(at)) else {
            return false;
        };
        drop(places);
        let path = path_of(place.config.number);
        if let Some(started) = &place.started {
            started.device.begin_delete();
        }
        let has_ended = ends_in_time(place);
        // Behind it: a start that fails meanwhile is told.
        self.health.well(&path.display().to_string());
        !has_ended
    }

    /// How many queues one that was made so has, or why it is not there; none: it is about to be.
    pub fn state(&self, name: FunctionName) -> Option<Result<u16, String>> {
        let places = self.lock();
        let place = places.iter().find(|place| place.name == Some(name))?;
        place.started.as_ref()?.told.wait(Instant::now())
    }

    /// The lowest number that nobody has.
    pub fn free_number(&self) -> u32 {
        let places = self.lock();
        let is_free = |number: &u32| {
            let is_ours = places.iter().any(|place| place.config.number == *number);
            !is_ours && !Path::new(&format!("/dev/ublkc{number}")).exists()
        };
        (0..NUMBERS).find(is_free).unwrap_or(0)
    }

    /// That each of them is there; waits for those that are about to be.
    ///
    /// # Errors
    /// The first that is not, and why.
    pub fn check(&self) -> Result<()> {
        let until = Instant::now() + LOCALS_START_MAX;
        for place in &*self.lock() {
            let LocalConfig { number, nsid } = place.config;
            let Some(started) = &place.started else {
                bail!("--ublk {number},nsid={nsid}: its namespace is not there");
            };
            match started.told.wait(until) {
                Some(Ok(_)) => {}
                Some(Err(why)) => bail!("--ublk {number},nsid={nsid}: {why}"),
                None => {
                    bail!("--ublk {number},nsid={nsid}: it is not there after {LOCALS_START_MAX:?}")
                }
            }
        }
        Ok(())
    }

    /// Where they are, a line a device.
    pub fn report(&self) -> String {
        let line = |place: &Place| {
            let LocalConfig { number, nsid } = place.config;
            format!("ublk {} nsid {nsid}\n", path_of(number).display())
        };
        let places = self.lock();
        let configured = places.iter().filter(|place| place.name.is_none());
        configured.map(line).collect()
    }

    /// That a namespace may get another size: each device that presents it can.
    ///
    /// # Errors
    /// Why not.
    pub fn may_resize(&self, nqn: &Nqn, nsid: u32) -> Result<(), DeviceError> {
        let places = self.lock();
        let mut presenting = places
            .iter()
            .filter(|place| place.nqn == *nqn && place.config.nsid == nsid);
        presenting.try_for_each(|place| match &place.started {
            Some(started) if !started.device.is_over() => started.device.may_resize(),
            _ => Ok(()),
        })
    }

    /// Ends them, all at the same time: what is in flight is let end.
    pub fn end(&self) {
        let places = std::mem::take(&mut *self.lock());
        for started in places.iter().filter_map(|place| place.started.as_ref()) {
            started.device.begin_end();
        }
        drop(places);
    }

    /// A namespace is there, at every reactor; or it is there as another one, of the same content.
    pub fn is_there(&self, nqn: &Nqn, namespace: &Namespace) {
        for place in &mut *self.lock() {
            if place.nqn != *nqn || place.config.nsid != namespace.nsid {
                continue;
            }
            let disk = Disk::of(namespace);
            let served = place.started.as_ref().filter(|it| !it.device.is_over());
            let followed = match served {
                Some(started) => {
                    started.device.set_disk(disk);
                    Ok(())
                }
                None => {
                    let name = stamped_place(nqn, namespace.nsid);
                    let number = place.config.number;
                    let begun = Started::begin(number, &name, disk, &self.doors, &self.health);
                    begun.map(|started| place.started = Some(started))
                }
            };
            if let Err(error) = followed {
                tracing::error!(%error, "a block device of this machine is not there");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the kernel keeps with a device of a namespace, whoever made it.
fn stamped_place(nqn: &Nqn, nsid: u32) -> String {
    format!("{nqn} {nsid}")
}

/// The devices of a subsystem's namespaces, as a configuration says them.
///
/// # Errors
/// Two of one number, or too many.
pub fn of_subsystem(nqn: &Nqn, configs: &[LocalConfig]) -> Result<Vec<(Nqn, LocalConfig)>> {
    let mut numbers = HashSet::new();
    for config in configs {
        if !numbers.insert(config.number) {
            bail!("two devices of the number {}", config.number);
        }
    }
    if configs.len() > DEVICES_MAX {
        bail!("at most {DEVICES_MAX} devices");
    }
    Ok(configs
        .iter()
        .map(|config| (nqn.clone(), *config))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_number_and_a_namespace() {
        let of = |text: &str| text.parse::<LocalConfig>();
        let device = |number, nsid| Ok(LocalConfig { number, nsid });
        assert_eq!(of("0"), device(0, 1));
        assert_eq!(of("7,nsid=3"), device(7, 3));
        assert_eq!(of("1048575"), device((1 << 20) - 1, 1));
        for text in [
            "",
            ",nsid=1",
            "x",
            "-1",
            "1048576",
            "0,nsid=",
            "0,nsid=0",
            "0,nsid=1,nsid=2",
            "0,nsid=4294967296",
            "/dev/ublkb0",
        ] {
            assert!(of(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn two_devices_have_two_numbers() {
        let nqn = Nqn::parse("nqn.2026-11.io.xio:test").unwrap();
        let of = |texts: &[&str]| {
            let configs: Vec<LocalConfig> =
                texts.iter().map(|text| text.parse().unwrap()).collect();
            of_subsystem(&nqn, &configs).map(|all| all.len())
        };
        assert_eq!(of(&["0", "1", "2,nsid=2"]).unwrap(), 3);
        let error = of(&["3", "3,nsid=2"]).unwrap_err().to_string();
        assert!(error.contains("number 3"), "{error}");
        let many: Vec<String> = (0..17).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(of(&many[..16]).unwrap(), 16);
        assert!(of(&many).is_err());
    }
}
