//! The systemd unit: it fits the configuration that is documented, and what it starts says what its type promises.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::target::{Folder, Target};

const UNIT: &str = include_str!("../../dist/snap-target.service");
const EXAMPLE: &str = include_str!("../../../docs/snap-target.toml");

/// The values of a key.
fn all<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().split('#').next().unwrap_or_default().trim())
        .map(|value| value.trim_matches('"'))
        .collect()
}

/// The value of a key that is there once.
fn once<'t>(text: &'t str, key: &str) -> &'t str {
    let values = all(text, key);
    let [value] = values.as_slice() else {
        panic!("{key}: {values:?}")
    };
    value
}

#[test]
fn the_unit_fits_the_documented_configuration() {
    let command = "/usr/bin/snap-target --config /etc/xio/snap-target.toml";
    assert_eq!(once(UNIT, "ExecStart"), command);
    let runtime = format!("/run/{}/", once(UNIT, "RuntimeDirectory"));
    // The admin service's, and a PCIe function's.
    let sockets = all(EXAMPLE, "socket");
    assert_eq!(sockets.len(), 2, "{sockets:?}");
    assert!(
        sockets.iter().all(|socket| socket.starts_with(&runtime)),
        "{runtime}"
    );
    let state = format!("/var/lib/{}", once(UNIT, "StateDirectory"));
    assert_eq!(once(EXAMPLE, "state"), state);
    // Draining, flushing, and threads that hang: limits.rs.
    let drain: u64 = once(EXAMPLE, "drain")
        .trim_end_matches('s')
        .parse()
        .unwrap();
    let stop: u64 = once(UNIT, "TimeoutStopSec").parse().unwrap();
    assert!(stop > drain + 20 + 5, "{stop} s");
    // A daemon that is told to end is not started again.
    assert_eq!(once(UNIT, "Restart"), "on-failure");
}

#[test]
fn a_service_says_when_it_is_ready_and_when_it_stops() {
    assert_eq!(once(UNIT, "Type"), "notify");
    let folder = Folder::new("unit");
    let (file, socket) = (folder.path("t.toml"), folder.path("notify"));
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let heard = || {
        let mut said = [0; 64];
        let length = manager.recv(&mut said).unwrap();
        String::from_utf8(said[..length].to_vec()).unwrap()
    };
    std::fs::write(&file, "[[listener]]\naddress = \"127.0.0.1:0\"\n").unwrap();
    let target = Target::start_notifying(&file, &socket);
    assert_eq!(heard(), "READY=1");
    assert_eq!(target.terminate(), Some(0));
    assert_eq!(heard(), "STOPPING=1");
}
