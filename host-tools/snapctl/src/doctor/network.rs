//! Ports to listen on, and RDMA.

use std::fs;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use super::finding::Finding;
use super::library;

/// Binds an address as a listener does, and lets it go.
pub fn probe_port(address: SocketAddr) -> Result<(), Error> {
    TcpListener::bind(address).map(drop)
}

/// Whether an address is free to listen on.
pub fn port(address: SocketAddr, probed: &Result<(), Error>) -> Finding {
    let check = format!("listen {address}");
    let Err(error) = probed else {
        return Finding::ok(check, "free");
    };
    let number = address.port();
    match error.kind() {
        ErrorKind::AddrInUse => Finding::warn(
            check,
            "something listens there already",
            "a second listener is refused; nothing is wrong where it is snap-target itself",
            format!("ss -ltnp 'sport = :{number}' says what it is"),
        ),
        ErrorKind::AddrNotAvailable => Finding::fail(
            check,
            "no interface of this machine has the address",
            "snap-target cannot listen there",
            "ip address show lists those that it has",
        ),
        ErrorKind::PermissionDenied => Finding::fail(
            check,
            "the port is not for this user",
            "snap-target cannot listen there",
            format!(
                "a port above 1023, or: sysctl -w net.ipv4.ip_unprivileged_port_start={number}"
            ),
        ),
        _ => Finding::fail(
            check,
            error.to_string(),
            "snap-target cannot listen there",
            "another address",
        ),
    }
}

/// What there is of RDMA.
#[derive(Clone, Debug)]
pub struct Rdma {
    /// libibverbs and librdmacm: loaded, or why not.
    pub libraries: Result<(), String>,
    /// Devices, each with the state of its first port: "4: ACTIVE".
    pub devices: Vec<(String, String)>,
}

impl Rdma {
    /// Loads the libraries and reads /sys.
    pub fn read() -> Rdma {
        let libraries =
            library::load("libibverbs.so.1").and_then(|()| library::load("librdmacm.so.1"));
        let mut devices = Vec::new();
        for entry in fs::read_dir("/sys/class/infiniband")
            .into_iter()
            .flatten()
            .flatten()
        {
            devices.push((
                entry.file_name().to_string_lossy().into_owned(),
                port_state(&entry.path()),
            ));
        }
        devices.sort();
        Rdma { libraries, devices }
    }
}

fn port_state(device: &Path) -> String {
    fs::read_to_string(device.join("ports/1/state"))
        .map_or_else(|_| "no port".to_owned(), |state| state.trim().to_owned())
}

/// Whether RDMA could be used. NVMe/TCP needs none of it.
pub fn rdma(rdma: &Rdma) -> Finding {
    let check = "RDMA";
    let names: Vec<String> = rdma
        .devices
        .iter()
        .map(|(name, state)| format!("{name} ({state})"))
        .collect();
    let names = names.join(", ");
    match &rdma.libraries {
        _ if rdma.devices.is_empty() => Finding::ok(check, "no device; NVMe/TCP needs none"),
        Err(why) => Finding::warn(
            check,
            format!("{names}; {why}"),
            "the devices cannot be used from userspace",
            "apt-get install libibverbs1 librdmacm1 ibverbs-providers   (RHEL: dnf install rdma-core libibverbs librdmacm)",
        ),
        Ok(())
            if !rdma
                .devices
                .iter()
                .any(|(_, state)| state.contains("ACTIVE")) =>
        {
            Finding::warn(
                check,
                names,
                "no port is active: nothing can be sent",
                "rdma link show says which network device each belongs to; ip link set DEVICE up",
            )
        }
        Ok(()) => Finding::ok(check, names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_port_that_is_taken_warns_and_one_that_cannot_be_had_fails() {
        let address: SocketAddr = "192.0.2.7:420".parse().unwrap();
        let verdict = |kind: ErrorKind| port(address, &Err(kind.into())).verdict;
        assert_eq!(port(address, &Ok(())).verdict, Verdict::Ok);
        assert_eq!(verdict(ErrorKind::AddrInUse), Verdict::Warn);
        assert_eq!(verdict(ErrorKind::AddrNotAvailable), Verdict::Fail);
        assert_eq!(verdict(ErrorKind::PermissionDenied), Verdict::Fail);
        assert_eq!(verdict(ErrorKind::OutOfMemory), Verdict::Fail);
        let taken = port(address, &Err(ErrorKind::AddrInUse.into()));
        assert_eq!(
            taken.mend.as_deref(),
            Some("ss -ltnp 'sport = :420' says what it is")
        );
    }

    #[test]
    fn probing_sees_a_listener() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        assert_eq!(
            probe_port(address).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert!(probe_port("127.0.0.1:0".parse().unwrap()).is_ok());
    }

    #[test]
    fn rdma_warns_only_where_there_is_a_device_that_cannot_be_used() {
        let verdict = |libraries: Result<(), &str>, devices: &[(&str, &str)]| {
            let facts = Rdma {
                libraries: libraries.map_err(str::to_owned),
                devices: devices
                    .iter()
                    .map(|(name, state)| ((*name).to_owned(), (*state).to_owned()))
                    .collect(),
            };
            rdma(&facts).verdict
        };
        let (up, down) = (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN"));
        assert_eq!(verdict(Err("not there"), &[]), Verdict::Ok);
        assert_eq!(verdict(Ok(()), &[]), Verdict::Ok);
        assert_eq!(verdict(Ok(()), &[up, down]), Verdict::Ok);
        assert_eq!(verdict(Ok(()), &[down]), Verdict::Warn);
        assert_eq!(verdict(Err("not there"), &[up]), Verdict::Warn);
    }
}
