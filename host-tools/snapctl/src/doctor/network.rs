//! Ports to listen on.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpListener};

use super::finding::Finding;

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
}
