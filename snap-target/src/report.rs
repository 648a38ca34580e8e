//! What the daemon says when it is ready.

use std::net::SocketAddr;

use namespace::{Backing, NamespaceSet};

use crate::config::Config;

/// Prints the namespaces as a table, the line for a host, and last `ready ADDR:PORT`, for programs that wait for it.
pub fn print(config: &Config, address: SocketAddr, set: &NamespaceSet) {
    println!(
        "{:>4}  {:>6}  {:>14}  {:<10}  {:<36}  store",
        "nsid", "lba", "bytes", "access", "uuid"
    );
    for namespace in set.all() {
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
    println!();
    for subsystem in &config.subsystems {
        println!(
            "nvme connect -t tcp -a {} -s {} -n {}",
            address.ip(),
            address.port(),
            subsystem.nqn
        );
    }
    println!("ready {address}");
}

/// RFC 9562 text.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let [a, b, c, d, e] = [
        &uuid[..4],
        &uuid[4..6],
        &uuid[6..8],
        &uuid[8..10],
        &uuid[10..],
    ]
    .map(hex);
    format!("{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_is_printed_in_the_order_of_its_bytes() {
        let bytes: [u8; 16] = std::array::from_fn(|index| u8::try_from(index * 17).unwrap());
        assert_eq!(
            super::uuid_text(&bytes),
            "00112233-4455-6677-8899-aabbccddeeff"
        );
    }
}
