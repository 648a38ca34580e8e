//! Tells a service manager what the daemon does: systemd's protocol, sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// It serves.
pub const READY: &str = "READY=1";
/// It is on its way out.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state to the socket that NOTIFY_SOCKET names, if it names one. That nobody hears is no reason not to serve.
pub fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(name.as_bytes(), state) {
        tracing::warn!(%error, socket = %name.display(), "the service manager cannot be told");
    }
}

fn send(name: &[u8], state: &str) -> std::io::Result<()> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reaches_a_socket_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("@xio-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        for (listener, name) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.as_os_str().as_bytes(),
            ),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                name.as_bytes(),
            ),
        ] {
            send(name, READY).unwrap();
            let mut got = [0; 32];
            let len = listener.recv(&mut got).unwrap();
            assert_eq!(&got[..len], b"READY=1");
        }
    }
}
