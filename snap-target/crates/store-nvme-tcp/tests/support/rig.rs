//! What the suite of queues needs of TCP.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use nvme::queue::QueueId;
use nvme::tcp::target::TargetLimits;
use store_nvme::conformance::{Port, Rig, Script};
use store_nvme::queue::{QueueOptions, Transport};
use store_nvme_tcp::TcpTransport;

use super::peer::Peer;

/// With digests or without.
pub struct TcpRig {
    pub header_digest: bool,
    pub data_digest: bool,
    /// How the controller cuts data.
    pub limits: TargetLimits,
}

impl TcpRig {
    pub fn new(header_digest: bool, data_digest: bool) -> TcpRig {
        TcpRig {
            header_digest,
            data_digest,
            limits: TargetLimits::default(),
        }
    }
}

/// A port whose first connection is played.
pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl Rig for TcpRig {
    fn transport(&self) -> &dyn Transport {
        &TcpTransport
    }

    fn options(&self) -> QueueOptions {
        QueueOptions {
            qid: QueueId(1),
            cntlid: 1,
            depth: 32,
            in_capsule_bytes_max: 8 << 10,
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            connect_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
        }
    }

    fn port(&self, script: Script) -> Port {
        let (listener, address) = listen();
        let limits = self.limits;
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            script(&mut Peer::new(stream, &limits));
        });
        Port { address, thread }
    }

    fn nobody(&self) -> SocketAddr {
        listen().1
    }

    fn silent(&self) -> (SocketAddr, Box<dyn std::any::Any>) {
        let (listener, address) = listen();
        (address, Box::new(listener))
    }
}
