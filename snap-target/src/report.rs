//! What the daemon says when it is ready.

use std::fmt::{Display, Write};
use std::net::SocketAddr;

use namespace::{Backing, Namespace};

use crate::manage::{Manager, NamespaceLive};
use crate::text::uuid_text;

/// The namespaces as a table, and the lines for a host.
pub fn of(manager: &Manager, address: Option<SocketAddr>) -> String {
    let mut out = String::new();
    // A text takes everything.
    let _written = write(&mut out, manager, address);
    out
}

fn write(out: &mut String, manager: &Manager, address: Option<SocketAddr>) -> std::fmt::Result {
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
        if let Some(address) = address {
            writeln!(out, "{}", connect_line(address, nqn))?;
        }
    }
    Ok(())
}

/// What a host runs. Where the daemon listens on every address, which of them a host reaches is not known here.
fn connect_line(address: SocketAddr, nqn: impl Display) -> String {
    let ip = if address.ip().is_unspecified() {
        "ADDRESS".to_owned()
    } else {
        address.ip().to_string()
    };
    format!("nvme connect -t tcp -a {ip} -s {} -n {nqn}", address.port())
}

/// The last line, for programs that wait for it.
pub fn ready(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "ready".to_owned(), |address| format!("ready {address}"))
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
