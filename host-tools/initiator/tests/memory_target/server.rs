//! A target in this process: the machines of the `nvme` crate behind plain blocking sockets, with disks in memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use nvme::Time;
use nvme::controller::ControllerLimits;
use nvme::simulation::target::{Disk, MemoryTarget, TargetQueue};
use nvme::tcp::target::TargetLimits;

/// A server on a port of its own, until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub target: Arc<Mutex<MemoryTarget>>,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(disks: Vec<Disk>, limits: TargetLimits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let controllers = ControllerLimits {
            queue_entries_max: limits.queue_entries_max,
            transfer_bytes_max: limits.transfer_bytes_max,
            capsule_data_bytes: limits.capsule_data_bytes,
            io_queues_max: 3,
            ..ControllerLimits::default()
        };
        let target = MemoryTarget::new(disks, controllers, limits, address);
        let target = Arc::new(Mutex::new(target));
        let stopping = Arc::new(AtomicBool::new(false));
        let acceptor = {
            let (target, stopping) = (Arc::clone(&target), Arc::clone(&stopping));
            std::thread::spawn(move || accept(&listener, &target, &stopping))
        };
        Server {
            address,
            target,
            stopping,
            acceptor: Some(acceptor),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, target: &Arc<Mutex<MemoryTarget>>, stopping: &AtomicBool) {
    let started = Instant::now();
    let mut served = Vec::new();
    for stream in listener.incoming() {
        if stopping.load(Ordering::Acquire) {
            break;
        }
        let (stream, target) = (stream.unwrap(), Arc::clone(target));
        served.push(std::thread::spawn(move || serve(stream, &target, started)));
    }
    for thread in served {
        thread.join().unwrap();
    }
}

/// One connection, until either end closes it.
fn serve(mut stream: TcpStream, target: &Mutex<MemoryTarget>, started: Instant) {
    stream.set_nodelay(true).unwrap();
    let now = || Time::ZERO + started.elapsed();
    let mut queue = TargetQueue::new(&target.lock().unwrap(), now());
    let mut received = vec![0; 256 << 10];
    let mut out = Vec::new();
    while let Ok(count @ 1..) = stream.read(&mut received) {
        let mut rest = &received[..count];
        loop {
            let mut target = target.lock().unwrap();
            let used = queue.receive(rest, &mut target, now());
            rest = &rest[used..];
            out.clear();
            queue.transmit(&mut out);
            drop(target);
            if stream.write_all(&out).is_err() || rest.is_empty() || queue.ended.is_some() {
                break;
            }
        }
        if queue.ended.is_some() {
            break;
        }
    }
    queue.close(&mut target.lock().unwrap(), now());
}
