//! Runs the suite of verbs on the system's RDMA devices, once for each address that is given: it needs a device with that address, to which it connects itself.
//!
//! ```text
//! verbs ADDRESS...
//! ```
//!
//! Each check is one line: what soft-RoCE does otherwise is told with its reason, and counted apart. The last line is 'N passed, N failed', and the exit status is 1 where one
//! failed.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use verbs::conformance::{Difference, Subject, run_each};
use verbs::{Result, Verbs, rdma_core};

/// What soft-RoCE of Linux 6.12 does otherwise, check by check.
const RXE_DIFFERS: &[Difference] = &[
    Difference {
        check: "receives_that_fail_say_why",
        why: "rxe says LOC_QP_OP_ERR to the receiver whatever was wrong with its receive",
        always: true,
    },
    Difference {
        check: "receives_behind_an_error_are_flushed",
        why: "rxe's post_recv makes no system call, so a queue pair in error that has flushed all sees no receive that comes later",
        always: false,
    },
    Difference {
        check: "a_window_gives_no_more_than_its_range",
        why: "rxe holds what a window's key reaches against the registration's bounds, not the window's",
        always: true,
    },
];
/// What does not come within this never comes: some of what soft-RoCE does otherwise is waited for in vain.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait for a descriptor: some things, such as the state of a queue pair, have none.
const NAP_MS: u8 = 10;

fn main() -> ExitCode {
    let mut addresses = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.parse::<IpAddr>() {
            Ok(address) => addresses.push(address),
            Err(error) => {
                eprintln!("verbs: {argument} is no IP address: {error}");
                return ExitCode::from(2);
            }
        }
    }
    match run(&addresses) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("verbs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(addresses: &[IpAddr]) -> Result<bool> {
    let verbs = rdma_core::open()?;
    show_devices(&verbs)?;
    let (mut passed, mut failed, mut differ) = (0, 0, 0);
    for &address in addresses {
        let differs = if is_rxe(&verbs)? { RXE_DIFFERS } else { &[] };
        let subject = Subject::new([verbs.clone(), verbs.clone()], [address; 2], |fds| {
            let mut fds: Vec<PollFd<'_>> = fds
                .iter()
                .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
                .collect();
            // A signal ends the wait early, which does no harm.
            let _woken = poll(&mut fds, PollTimeout::from(NAP_MS));
        });
        let subject = subject.differs(differs).patience(PATIENCE);
        let counts = run_each(&subject, |line| println!("{address} {line}"));
        passed += counts.0;
        failed += counts.1;
        differ += counts.2;
    }
    println!("{differ} differ, as they are said to");
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn is_rxe(verbs: &Verbs) -> Result<bool> {
    let devices = verbs.devices()?;
    Ok(devices
        .iter()
        .any(|device| device.attributes().name.starts_with("rxe")))
}

fn show_devices(verbs: &Verbs) -> Result<()> {
    for device in verbs.devices()? {
        println!("{:?}", device.attributes());
        for gid in device.gids()? {
            println!("{gid:?}");
        }
    }
    Ok(())
}
