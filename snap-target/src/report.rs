//! What the daemon says when it is ready.

use std::fmt::{Display, Write};

use namespace::{Backing, Namespace};

use crate::config::{FunctionDevice, Place};
use crate::manage::{FunctionLive, Manager, NamespaceLive};
use crate::text::uuid_text;

/// The namespaces as a table, and the lines for a host.
pub fn of(manager: &Manager, place: Option<Place>) -> String {
    let mut out = String::new();
    // A text takes everything.
    let _written = write(&mut out, manager, place);
    out
}

fn write(out: &mut String, manager: &Manager, place: Option<Place>) -> std::fmt::Result {
    let subsystems = &manager.desired().subsystems;
    writeln!(
        out,
        "{:>4}  {:>6}  {:>14}  {:<10}  {:<36}  store",
        "nsid", "lba", "bytes", "access", "uuid"
    )?;
    for (nqn, subsystem) in subsystems {
        if subsystems.len() > 1 {
            writeln!(out, "{nqn}")?;
        }
        for (nsid, config) in &subsystem.namespaces {
            match manager.live_namespace(nqn, *nsid) {
                Some(NamespaceLive::Served(namespace)) => write_one(out, namespace)?,
                _ => writeln!(out, "{nsid:>4}  not served; see the log  {}", config.source)?,
            }
        }
    }
    writeln!(out)?;
    for nqn in subsystems.keys() {
        if let Some(place) = place {
            writeln!(out, "{}", connect_line(place, nqn))?;
        }
    }
    for (name, config) in &manager.desired().functions {
        let (path, nqn) = (config.socket.display(), &config.subsystem);
        match manager.live_function(*name) {
            Some(FunctionLive::Open(_)) => {
                writeln!(out, "function {name} vfio-user {path}: {nqn}")?;
            }
            Some(FunctionLive::Disk) => {
                let protocol = match config.device {
                    FunctionDevice::Ublk { .. } => "ublk",
                    _ => "vhost-user-blk",
                };
                let nsid = config.device.nsid().unwrap_or(0);
                writeln!(out, "function {name} {protocol} {path}: {nqn} nsid {nsid}")?;
            }
            _ => writeln!(out, "function {name} not served; see the log  {path}")?,
        }
    }
    Ok(())
}

/// What a host runs. Where the daemon listens on every address, which of them a host reaches is not known here.
fn connect_line(place: Place, nqn: impl Display) -> String {
    let Place { fabric, address } = place;
    let ip = if address.ip().is_unspecified() {
        "ADDRESS".to_owned()
    } else {
        address.ip().to_string()
    };
    let (fabric, port) = (fabric.name(), address.port());
    format!("nvme connect -t {fabric} -a {ip} -s {port} -n {nqn}")
}

/// The last line, for programs that wait for it.
pub fn ready(place: Option<Place>) -> String {
    place.map_or_else(|| "ready".to_owned(), |place| format!("ready {place}"))
}

fn write_one(out: &mut String, namespace: &Namespace) -> std::fmt::Result {
    let access = if namespace.write_protected {
        "read-only"
    } else {
        "read-write"
    };
    let kind = match &namespace.backing {
        Backing::Raw(_) => "",
        Backing::View { .. } => "volume ",
        // Its name says so.
        Backing::Mixed(_) => "",
    };
    writeln!(
        out,
        "{:>4}  {:>6}  {:>14}  {:<10}  {:<36}  {kind}{}",
        namespace.nsid,
        namespace.lba_bytes,
        namespace.bytes(),
        access,
        uuid_text(&namespace.identity.uuid),
        namespace.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_an_address_that_it_can_reach() {
        for (address, told) in [
            ("192.0.2.7:4420", "192.0.2.7 -s 4420"),
            ("[2001:db8::7]:8009", "2001:db8::7 -s 8009"),
            ("0.0.0.0:4420", "ADDRESS -s 4420"),
            ("[::]:4420", "ADDRESS -s 4420"),
        ] {
            let line = connect_line(address.parse().unwrap(), "nqn.2026-11.io.xio:snap");
            let told = format!("nvme connect -t tcp -a {told} -n nqn.2026-11.io.xio:snap");
            assert_eq!(line, told);
        }
    }
}
