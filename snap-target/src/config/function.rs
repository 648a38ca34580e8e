//! `[[function]]`: functions for virtual machines: NVMe controllers and virtio disks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nvme::nqn::Nqn;

use super::check::{Seen, path_in, socket_path};
use super::error::ConfigError;
use super::section::Section;
use super::subsystem::subsystem_of;
use crate::limits::FUNCTIONS_MAX;

const FUNCTION: &[&str] = &["name", "subsystem", "socket", "protocol", "poll", "nsid"];

/// A function for a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionConfig {
    /// What it is called.
    pub name: FunctionName,
    /// Where its client finds it: the path of a Unix socket, or of the block device.
    pub socket: PathBuf,
    /// Whose controller it is, or whose namespace.
    pub subsystem: Nqn,
    /// What the machine sees.
    pub device: FunctionDevice,
}

/// What a machine sees of a function, and how its monitor reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionDevice {
    /// A PCIe NVMe controller with all namespaces of the subsystem, over vfio-user.
    Nvme {
        /// Its doorbells can be mapped, and are polled.
        poll: bool,
    },
    /// A virtio disk, which is one namespace, over vhost-user.
    VirtioBlk {
        /// Which.
        nsid: u32,
    },
    /// A block device of the daemon's own machine, which is one namespace. In a configuration it is `[[ublk]]`.
    Ublk {
        /// Of /dev/ublkbN.
        number: u32,
        /// Which.
        nsid: u32,
    },
}

impl FunctionDevice {
    /// The namespace that it is; none where it has all of its subsystem.
    pub fn nsid(self) -> Option<u32> {
        match self {
            Self::Nvme { .. } => None,
            Self::VirtioBlk { nsid } | Self::Ublk { nsid, .. } => Some(nsid),
        }
    }
}

/// A function that is given by its socket alone: `--vfio-user PATH[,poll]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSocket {
    /// Its path.
    pub path: PathBuf,
    /// See [`FunctionDevice::Nvme`].
    pub poll: bool,
}

impl FromStr for FunctionSocket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, poll) = match text.strip_suffix(",poll") {
            Some(path) => (path, true),
            None => (text, false),
        };
        if path.is_empty() {
            return Err("it begins with the path of a socket: PATH[,poll]".to_owned());
        }
        Ok(Self {
            path: path.into(),
            poll,
        })
    }
}

fn protocol(text: &str) -> Result<bool, String> {
    match text {
        "vfio-user" => Ok(false),
        "vhost-user-blk" => Ok(true),
        _ => Err(format!(
            "{text:?} is no way to a function; write \"vfio-user\" or \"vhost-user-blk\""
        )),
    }
}

/// pf0, pf0vf1, or pf0sf1: a physical function, a virtual one of it, or a scalable one, as a DPU counts them. Here nothing follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionName {
    physical: u16,
    of_it: Option<(Kind, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Virtual,
    Scalable,
}

impl FunctionName {
    /// pfN.
    pub fn physical(number: u16) -> Self {
        Self {
            physical: number,
            of_it: None,
        }
    }

    /// What its host goes by, where it is an NVMe controller.
    pub fn host(self) -> Nqn {
        Nqn::function_host(&self.to_string())
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pf{}", self.physical)?;
        match self.of_it {
            None => Ok(()),
            Some((Kind::Virtual, number)) => write!(f, "vf{number}"),
            Some((Kind::Scalable, number)) => write!(f, "sf{number}"),
        }
    }
}

impl FromStr for FunctionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!("{text:?} names no function; write pf0, pf0vf1 or pf0sf1, with numbers up to 65535 that begin with no zero")
        })
    }
}

fn parse(text: &str) -> Option<FunctionName> {
    let rest = text.strip_prefix("pf")?;
    let split = |mark, kind| Some((rest.split_once(mark)?, kind));
    let found = split("vf", Kind::Virtual).or_else(|| split("sf", Kind::Scalable));
    let (physical, of_it) = match found {
        None => (rest, None),
        Some(((physical, of_it), kind)) => (physical, Some((kind, number(of_it)?))),
    };
    Some(FunctionName {
        physical: number(physical)?,
        of_it,
    })
}

/// One function has one name: no signs, no zeros in front.
fn number(text: &str) -> Option<u16> {
    let number: u16 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// `protocol`, and what goes with one of them only.
fn device(section: &Section<'_>) -> Result<FunctionDevice, ConfigError> {
    let is_virtio = section.parsed("protocol", protocol)?;
    let poll = section.flag("poll")?;
    let nsid = section.number("nsid", 1..=nvme::controller::NAMESPACES_MAX)?;
    if is_virtio.is_some_and(|it| it.value) {
        if let Some(poll) = poll.filter(|it| it.value) {
            return Err(section.wrong(
                &poll,
                "is of a function with protocol = \"vfio-user\"; a virtio disk has no doorbells that could be polled",
            ));
        }
        let nsid = nsid.map_or(1, |it| it.value);
        return Ok(FunctionDevice::VirtioBlk { nsid });
    }
    if let Some(nsid) = nsid {
        return Err(section.wrong(
            &nsid,
            "is of a function with protocol = \"vhost-user-blk\"; one over vfio-user has all namespaces of its subsystem",
        ));
    }
    let poll = poll.is_some_and(|it| it.value);
    Ok(FunctionDevice::Nvme { poll })
}

/// All of the file.
pub fn functions(top: &Section<'_>, folder: &Path) -> Result<Vec<FunctionConfig>, ConfigError> {
    let mut all = Vec::new();
    let (mut names, mut sockets) = (Seen::new(), Seen::new());
    for section in top.tables("function", FUNCTIONS_MAX, FUNCTION)? {
        let name = section.parsed("name", str::parse::<FunctionName>)?;
        let name = section.required(name, "name", "for example name = \"pf0vf1\"")?;
        let what = name.value.to_string();
        names.add(&section, name.value, &what, name.span, "name")?;
        let subsystem = subsystem_of(&section)?;
        let socket = section.parsed("socket", |path| path_in(folder, path))?;
        let socket =
            section.required(socket, "socket", "for example socket = \"/run/xio/pf0vf1\"")?;
        let path = socket_path(&section, &socket)?;
        let what = path.display().to_string();
        sockets.add(&section, path.clone(), &what, socket.span, "socket")?;
        let device = device(&section)?;
        all.push(FunctionConfig {
            name: name.value,
            socket: path,
            subsystem: subsystem.value,
            device,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_in_one_way() {
        for text in ["pf0", "pf12", "pf0vf1", "pf65535sf65535", "pf3sf0"] {
            let name: FunctionName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
        }
        for text in [
            "",
            "pf",
            "pf-1",
            "pf+1",
            "pf00",
            "pf01",
            "PF0",
            "pf0vf",
            "pfvf1",
            "pf0vf01",
            "pf0vf1sf2",
            "pf0vf1vf2",
            "pf0 ",
            "pf65536",
            "pf0xf1",
            "vf1",
        ] {
            assert!(text.parse::<FunctionName>().is_err(), "{text:?}");
        }
        assert_eq!(FunctionName::physical(7).to_string(), "pf7");
    }

    #[test]
    fn a_socket_says_whether_its_function_is_polled() {
        for (text, path, poll) in [
            ("/run/vm0", "/run/vm0", false),
            ("/run/vm0,poll", "/run/vm0", true),
            ("a,b,poll", "a,b", true),
            ("/run/vm0,pol", "/run/vm0,pol", false),
        ] {
            let socket: FunctionSocket = text.parse().unwrap();
            assert_eq!(
                (socket.path.as_path(), socket.poll),
                (Path::new(path), poll)
            );
        }
        for text in ["", ",poll"] {
            assert!(text.parse::<FunctionSocket>().is_err(), "{text:?}");
        }
    }
}
