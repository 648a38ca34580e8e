//! RDMA: its devices, the libraries that reach them, and addresses to listen at.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use verbs::{Verbs, VerbsError};

use super::finding::Finding;

const INSTALL: &str = "apt-get install librdmacm1 ibverbs-providers   (RHEL: dnf install librdmacm libibverbs rdma-core)";
const NO_DEVICE: &str =
    "rdma link show says what there is; in software: rdma link add rxe0 type rxe netdev DEVICE";

/// What there is of RDMA.
#[derive(Clone, Debug)]
pub struct Rdma {
    /// Devices that the kernel has, each with the state of its first port: "4: ACTIVE".
    pub devices: Vec<(String, String)>,
    /// Those of them that programs can open, as a daemon does it.
    pub opened: Result<Vec<String>, VerbsError>,
}

impl Rdma {
    /// Reads /sys, and opens the libraries where there is a device for them.
    pub fn read() -> Rdma {
        let mut devices = Vec::new();
        let all = fs::read_dir("/sys/class/infiniband");
        for entry in all.into_iter().flatten().flatten() {
            devices.push((
                entry.file_name().to_string_lossy().into_owned(),
                port_state(&entry.path()),
            ));
        }
        devices.sort();
        let opened = match devices.is_empty() {
            true => Ok(Vec::new()),
            false => verbs::rdma_core::open().and_then(|verbs| open_all(&verbs)),
        };
        Rdma { devices, opened }
    }
}

fn port_state(device: &Path) -> String {
    fs::read_to_string(device.join("ports/1/state"))
        .map_or_else(|_| "no port".to_owned(), |state| state.trim().to_owned())
}

fn open_all(verbs: &Verbs) -> Result<Vec<String>, VerbsError> {
    // The connection manager, without which no device is of use here.
    verbs.event_channel()?;
    let devices = verbs.devices()?;
    let names = devices.iter().map(|it| it.attributes().name.clone());
    Ok(names.collect())
}

/// Whether RDMA could be used. NVMe/TCP needs none of it.
pub fn rdma(rdma: &Rdma) -> Finding {
    let check = "RDMA";
    if rdma.devices.is_empty() {
        return Finding::ok(check, "no device; NVMe/TCP needs none");
    }
    let names: Vec<String> = rdma
        .devices
        .iter()
        .map(|(name, state)| format!("{name} ({state})"))
        .collect();
    let names = names.join(", ");
    let opened = match &rdma.opened {
        Ok(opened) => opened,
        Err(error) => {
            let (what, mend) = missing(error);
            return Finding::warn(
                check,
                format!("{names}; {what}"),
                "the devices cannot be used from userspace: no NVMe/RDMA",
                mend,
            );
        }
    };
    let closed: Vec<&str> = rdma
        .devices
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !opened.iter().any(|it| it == name))
        .collect();
    if !closed.is_empty() {
        return Finding::warn(
            check,
            format!("{names}; libibverbs does not open {}", closed.join(", ")),
            "no NVMe/RDMA over them",
            format!("{INSTALL}; ls -l /dev/infiniband says who may open them"),
        );
    }
    let is_active = |(_, state): &(String, String)| state.contains("ACTIVE");
    if !rdma.devices.iter().any(is_active) {
        return Finding::warn(
            check,
            names,
            "no port is active: nothing can be sent",
            "rdma link show says which network device each belongs to; ip link set DEVICE up",
        );
    }
    Finding::ok(check, names)
}

/// Listens at an address over RDMA, and lets it go.
pub fn probe_port(address: SocketAddr) -> Result<(), VerbsError> {
    let verbs = verbs::rdma_core::open()?;
    verbs.event_channel()?.listen(address, 1).map(drop)
}

/// Whether a listener over RDMA could stand at an address.
pub fn port(address: SocketAddr, probed: &Result<(), VerbsError>) -> Finding {
    let check = format!("listen rdma://{address}");
    let Err(error) = probed else {
        return Finding::ok(check, "free");
    };
    if let VerbsError::Call { errno, .. } = error
        && *errno == reactor::Errno::EADDRINUSE
    {
        return Finding::warn(
            check,
            "something listens there already",
            "a second listener is refused; nothing is wrong where it is snap-target itself",
            "rdma resource show cm_id says what it is",
        );
    }
    let (what, mend) = missing(error);
    Finding::fail(check, what, "snap-target cannot listen there", mend)
}

/// What is missing, and the line that mends it.
fn missing(error: &VerbsError) -> (String, String) {
    match error {
        VerbsError::LibraryMissing { library, cause } => (
            format!("{library} was not found ({cause})"),
            INSTALL.to_owned(),
        ),
        VerbsError::SymbolMissing { .. } => (error.to_string(), INSTALL.to_owned()),
        VerbsError::Call {
            call,
            subject,
            errno,
            advice,
        } => {
            let mend = if advice.is_empty() { NO_DEVICE } else { advice };
            (
                format!("{call} failed on {subject}: {errno}"),
                mend.to_owned(),
            )
        }
        _ => (error.to_string(), NO_DEVICE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use reactor::Errno;

    use super::*;
    use crate::doctor::finding::Verdict;

    fn no_library() -> VerbsError {
        VerbsError::LibraryMissing {
            library: "librdmacm.so.1",
            cause: "cannot open shared object file".to_owned(),
        }
    }

    fn refused(call: &'static str, errno: Errno, advice: &'static str) -> VerbsError {
        VerbsError::Call {
            call,
            subject: "it".to_owned(),
            errno,
            advice,
        }
    }

    #[test]
    fn rdma_warns_only_where_there_is_a_device_that_cannot_be_used() {
        let find = |opened: Result<&[&str], VerbsError>, devices: &[(&str, &str)]| {
            rdma(&Rdma {
                devices: devices
                    .iter()
                    .map(|(name, state)| ((*name).to_owned(), (*state).to_owned()))
                    .collect(),
                opened: opened.map(|names| names.iter().map(ToString::to_string).collect()),
            })
        };
        let (up, down) = (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN"));
        assert_eq!(find(Err(no_library()), &[]).verdict, Verdict::Ok);
        assert_eq!(find(Ok(&[]), &[]).verdict, Verdict::Ok);
        assert_eq!(
            find(Ok(&["mlx5_0", "mlx5_1"]), &[up, down]).verdict,
            Verdict::Ok
        );
        assert_eq!(find(Ok(&["mlx5_1"]), &[down]).verdict, Verdict::Warn);
        let half = find(Ok(&["mlx5_0"]), &[up, down]);
        assert_eq!(half.verdict, Verdict::Warn);
        assert!(half.found.ends_with("does not open mlx5_1"), "{half:?}");
        let without = find(Err(no_library()), &[up]);
        assert_eq!(without.verdict, Verdict::Warn);
        assert!(without.found.contains("librdmacm.so.1"), "{without:?}");
        assert_eq!(without.mend.as_deref(), Some(INSTALL));
        let advice = "modprobe rdma_ucm";
        let no_cm = refused("rdma_create_event_channel", Errno::ENOENT, advice);
        let no_cm = find(Err(no_cm), &[up]);
        assert_eq!(no_cm.mend.as_deref(), Some(advice));
    }

    #[test]
    fn a_listener_over_rdma_fails_with_what_is_missing() {
        let address: SocketAddr = "192.0.2.7:4420".parse().unwrap();
        let find = |error| port(address, &Err(error));
        assert_eq!(port(address, &Ok(())).verdict, Verdict::Ok);
        assert_eq!(find(no_library()).mend.as_deref(), Some(INSTALL));
        assert_eq!(find(no_library()).verdict, Verdict::Fail);
        let taken = refused("rdma_listen", Errno::EADDRINUSE, "");
        assert_eq!(find(taken).verdict, Verdict::Warn);
        let elsewhere = find(refused("rdma_bind_addr", Errno::ENODEV, ""));
        assert_eq!(elsewhere.verdict, Verdict::Fail);
        assert_eq!(elsewhere.check, "listen rdma://192.0.2.7:4420");
        assert_eq!(elsewhere.mend.as_deref(), Some(NO_DEVICE));
    }
}
