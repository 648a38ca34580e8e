//! What the suite of queues needs of RDMA: a fabric in memory with two nodes.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nvme::queue::QueueId;
use store_nvme::conformance::{Port, Rig, Script};
use store_nvme::queue::{QueueOptions, Transport};
use store_nvme_rdma::RdmaTransport;
use verbs::memory::{Fabric, Node};
use verbs::{EventChannel, Listener};

use super::peer::{Conduct, Peer, requested};

pub const HOST: &str = "10.0.0.1";
pub const TARGET: &str = "10.0.0.2";

pub struct RdmaRig {
    pub fabric: Fabric,
    pub host: Node,
    pub target: Node,
    pub transport: RdmaTransport,
    pub conduct: Conduct,
    addresses: [IpAddr; 2],
    /// No port is used twice: a request that an earlier check gave up may still be on its way to where it was sent.
    next_port: AtomicU16,
}

impl RdmaRig {
    pub fn new() -> RdmaRig {
        RdmaRig::at([HOST, TARGET])
    }

    pub fn at(addresses: [&str; 2]) -> RdmaRig {
        let fabric = Fabric::real_time(1).unwrap();
        let addresses = addresses.map(|address| address.parse().unwrap());
        let [host, target] = addresses.map(|address| fabric.node(&[address]).unwrap());
        let transport = RdmaTransport::new(host.verbs());
        RdmaRig {
            fabric,
            host,
            target,
            transport,
            conduct: Conduct::default(),
            addresses,
            next_port: AtomicU16::new(4420),
        }
    }

    pub fn listen(&self) -> (EventChannel, Listener, SocketAddr) {
        let channel = self.target.verbs().event_channel().unwrap();
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        let at = SocketAddr::new(self.addresses[1], port);
        let listener = channel.listen(at, 8).unwrap();
        let address = listener.local_address().unwrap();
        (channel, listener, address)
    }
}

impl Rig for RdmaRig {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn options(&self) -> QueueOptions {
        QueueOptions {
            qid: QueueId(1),
            cntlid: 1,
            depth: 32,
            in_capsule_bytes_max: 8 << 10,
            header_digest: false,
            data_digest: false,
            connect_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
        }
    }

    fn fills_in_place(&self) -> bool {
        false
    }

    fn port(&self, script: Script) -> Port {
        let (channel, listener, address) = self.listen();
        let conduct = self.conduct;
        let thread = std::thread::spawn(move || {
            let request = requested(&channel, &listener);
            script(&mut Peer::accept(channel, request, conduct));
        });
        Port { address, thread }
    }

    fn nobody(&self) -> SocketAddr {
        self.listen().2
    }

    fn silent(&self) -> (SocketAddr, Box<dyn std::any::Any>) {
        let (channel, listener, address) = self.listen();
        (address, Box::new((channel, listener)))
    }
}
