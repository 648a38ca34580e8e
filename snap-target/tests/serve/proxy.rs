//! A way to a daemon over loopback that a test makes silent, holds up, cuts, and heals.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Behind the data of a PDU (NVMe/TCP, "DDGST").
const DATA_DIGEST_BYTES: usize = 4;

pub struct Proxy {
    pub address: String,
    way: Arc<Way>,
}

#[derive(Default)]
struct Way {
    /// What the host sends goes nowhere.
    swallows: AtomicBool,
    /// Bytes of hosts that went on.
    carried: AtomicU64,
    delay: Mutex<Delay>,
    delay_changed: Condvar,
    connections: Mutex<Vec<Connection>>,
    /// What their hosts have lost.
    lost: Mutex<Vec<Connection>>,
}

struct Connection {
    host: TcpStream,
    there: TcpStream,
    /// Ends when the far end has closed its half.
    pump_back: JoinHandle<()>,
}

/// What a network keeps of one direction: the far end notices nothing, not even that the host has left.
#[derive(Default)]
struct Delay {
    is_on: bool,
    /// The far end does not hear that the host has left.
    hides_end: bool,
    /// What is held, of each connection that had something.
    held: Vec<Vec<u8>>,
}

impl Proxy {
    pub fn before(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let way = Arc::new(Way::default());
        let (target, of_thread) = (target.to_owned(), way.clone());
        std::thread::spawn(move || {
            for host in listener.incoming() {
                let (Ok(host), Ok(there)) = (host, TcpStream::connect(&target)) else {
                    continue;
                };
                of_thread.carry(&host, &there);
            }
        });
        Proxy { address, way }
    }

    pub fn swallow(&self) {
        self.way.swallows.store(true, Ordering::SeqCst);
    }

    /// Ends what is connected.
    pub fn cut(&self) {
        for connection in self.way.connections.lock().unwrap().drain(..) {
            let _ = connection.host.shutdown(Shutdown::Both);
            let _ = connection.there.shutdown(Shutdown::Both);
        }
    }

    pub fn heal(&self) {
        self.way.swallows.store(false, Ordering::SeqCst);
    }

    /// What the host sends stays in the network from now on.
    pub fn hold(&self) {
        let mut delay = self.way.delay.lock().unwrap();
        (delay.is_on, delay.hides_end) = (true, true);
    }

    /// Bytes of hosts that went on so far.
    pub fn carried(&self) -> u64 {
        self.way.carried.load(Ordering::SeqCst)
    }

    /// Whether these data are among what is held, and the digest behind them: without it they are no whole write.
    pub fn holds(&self, data: &[u8]) -> bool {
        let delay = self.way.delay.lock().unwrap();
        let whole = data.len() + DATA_DIGEST_BYTES;
        let mut windows = delay.held.iter().flat_map(|of| of.windows(whole));
        windows.any(|window| window.starts_with(data))
    }

    /// The host loses what is connected; the far end does not hear of it.
    pub fn cut_from_host(&self) {
        let lost = std::mem::take(&mut *self.way.connections.lock().unwrap());
        for connection in &lost {
            let _ = connection.host.shutdown(Shutdown::Both);
        }
        self.way.lost.lock().unwrap().extend(lost);
    }

    /// What was held arrives, however late; that its host has left does not.
    pub fn let_arrive(&self) {
        self.way.delay.lock().unwrap().is_on = false;
        self.way.delay_changed.notify_all();
    }

    /// The same, and that its host has left. Returns when the far end has closed all that its host had lost: it has then done what it ever does
    /// with those bytes.
    pub fn release(&self) {
        self.way.delay.lock().unwrap().hides_end = false;
        self.let_arrive();
        for connection in self.way.lost.lock().unwrap().drain(..) {
            connection.pump_back.join().unwrap();
        }
    }
}

impl Way {
    fn carry(self: &Arc<Self>, host: &TcpStream, there: &TcpStream) {
        for end in [host, there] {
            end.set_nodelay(true).unwrap();
        }
        let clone = |end: &TcpStream| end.try_clone().unwrap();
        let (from, to, way) = (clone(host), clone(there), self.clone());
        std::thread::spawn(move || way.pump_out(from, to));
        let (from, to) = (clone(there), clone(host));
        let connection = Connection {
            host: clone(host),
            there: clone(there),
            pump_back: std::thread::spawn(move || pump_back(from, to)),
        };
        self.connections.lock().unwrap().push(connection);
    }

    fn pump_out(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        let mut held = None;
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let sent = &buffer[..count];
            if self.swallows.load(Ordering::SeqCst) {
                continue;
            }
            let late = match self.hold(&mut held, sent) {
                Held::Yes => continue,
                Held::No { late } => late,
            };
            self.carried.fetch_add(count as u64, Ordering::SeqCst);
            // A far end that has given the connection up refuses it.
            if to
                .write_all(&late)
                .and_then(|()| to.write_all(sent))
                .is_err()
            {
                break;
            }
        }
        let mut delay = self.delay.lock().unwrap();
        while delay.is_on {
            delay = self.delay_changed.wait(delay).unwrap();
        }
        drop(delay);
        match self.hold(&mut held, &[]) {
            // The far end does not hear that the host has left: it is to do all that it would do with what comes late.
            Held::No { late } if !late.is_empty() => {
                let _ = to.write_all(&late);
            }
            _ => {
                // Before what comes late on another connection, it would be the end of that one too.
                let mut delay = self.delay.lock().unwrap();
                while delay.hides_end {
                    delay = self.delay_changed.wait(delay).unwrap();
                }
                let _ = to.shutdown(Shutdown::Write);
            }
        }
    }

    /// Keeps what is sent while there is a delay; `held` is where this connection's lies.
    fn hold(&self, held: &mut Option<usize>, sent: &[u8]) -> Held {
        let mut delay = self.delay.lock().unwrap();
        if !delay.is_on {
            let late = held.take().map(|at| std::mem::take(&mut delay.held[at]));
            return Held::No {
                late: late.unwrap_or_default(),
            };
        }
        let at = *held.get_or_insert_with(|| {
            delay.held.push(Vec::new());
            delay.held.len() - 1
        });
        delay.held[at].extend_from_slice(sent);
        Held::Yes
    }
}

/// Whether what is sent is held; if not, what was held before it goes first.
enum Held {
    Yes,
    No { late: Vec<u8> },
}

/// A host that is gone does not end what the far end says: the far end's own end does.
fn pump_back(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let _ = to.write_all(&buffer[..count]);
    }
    let _ = to.shutdown(Shutdown::Both);
}
