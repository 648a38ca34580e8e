//! A device over its socket, as a monitor and a guest's driver use it: both are the tests' own.

mod disks;
mod hostile;
mod kept;
mod monitor;
mod served;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../frontend-nvme-tcp/tests/support/held.rs"]
mod held;
