//! What the daemon says when it is ready.

use std::net::SocketAddr;

use namespace::{Backing, Namespace};

use crate::manage::{Manager, NamespaceLive};
use crate::text::uuid_text;

/// Prints the namespaces as a table, the line for a host, and last `ready ADDR:PORT`, for programs that wait for it.
pub fn print(manager: &Manager, address: Option<SocketAddr>) {
    let subsystems = &manager.desired().subsystems;
    println!(
        "{:>4}  {:>6}  {:>14}  {:<10}  {:<36}  store",
        "nsid", "lba", "bytes", "access", "uuid"
    );
    for (nqn, subsystem) in subsystems {
        if subsystems.len() > 1 {
            println!("{nqn}");
        }
        for (nsid, config) in &subsystem.namespaces {
            match manager.live_namespace(nqn, *nsid) {
                Some(NamespaceLive::Served(namespace)) => print_one(namespace),
                _ => println!("{nsid:>4}  not served; see the log  {}", config.source),
            }
        }
    }
    println!();
    let Some(address) = address else {
        println!("ready");
        return;
    };
    for nqn in subsystems.keys() {
        println!(
            "nvme connect -t tcp -a {} -s {} -n {nqn}",
            address.ip(),
            address.port(),
        );
    }
    println!("ready {address}");
}

fn print_one(namespace: &Namespace) {
    let access = if namespace.write_protected {
        "read-only"
    } else {
        "read-write"
    };
    let kind = match &namespace.backing {
        Backing::Raw(_) => "",
        Backing::View { .. } => "volume ",
    };
    println!(
        "{:>4}  {:>6}  {:>14}  {:<10}  {:<36}  {kind}{}",
        namespace.nsid,
        namespace.lba_bytes,
        namespace.bytes(),
        access,
        uuid_text(&namespace.identity.uuid),
        namespace.name
    );
}
