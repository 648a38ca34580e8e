//! What the state folder promises: crash points, damage, and which word holds.

mod crash;
mod device;
mod folder;
mod overlay;

use std::path::Path;

use crate::config::Config;
use crate::desired::Desired;

/// What a configuration file in /etc/xio says.
fn desired(text: &str) -> Desired {
    let text = format!("[[listener]]\naddress = \"127.0.0.1:4420\"\n{text}");
    Desired::of(&Config::parse(Path::new("/etc/xio/t.toml"), &text).unwrap())
}

const DISKS: &str = r#"
[[subsystem]]
nqn = "nqn.disks"
hosts = ["nqn.host"]
[[subsystem.namespace]]
nsid = 1
store = "file:a.raw"
[[subsystem.namespace]]
nsid = 2
store = "mem:1MiB"
"#;

const MORE: &str = r#"
[[referral]]
address = "192.0.2.1:8009"
[[subsystem]]
nqn = "nqn.more"
allow-any-host = true
serial = "S1"
[[subsystem.namespace]]
volume = "b.xio"
hosts = ["nqn.host"]
read-only = true
[[subsystem.namespace]]
store = "file:e.raw"
immutable = true
limit = "200MB/s,latency=2ms"
[[subsystem.namespace]]
store = "mixed:b++c.xio+file:d.raw+mem:1MiB+null:1GiB"
lba = 512
"#;
