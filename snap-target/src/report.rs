//! What the daemon says when it is ready.

use std::fmt::Write;
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
            writeln!(
                out,
                "nvme connect -t tcp -a {} -s {} -n {nqn}",
                address.ip(),
                address.port(),
            )?;
        }
    }
    Ok(())
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
