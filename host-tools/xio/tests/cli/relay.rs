//! A way to a target that can be cut, and lead to another one.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Default)]
struct Ways {
    to: Option<SocketAddr>,
    open: Vec<TcpStream>,
}

/// Listens as long as the process lives.
pub struct Relay {
    pub address: SocketAddr,
    ways: Arc<Mutex<Ways>>,
}

impl Relay {
    pub fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ways: Arc<Mutex<Ways>> = Arc::default();
        let of_thread = ways.clone();
        thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let mut ways = of_thread.lock().unwrap();
                // Without a way it is closed at once.
                let Some(target) = ways.to.and_then(|to| TcpStream::connect(to).ok()) else {
                    continue;
                };
                for (from, to) in [(&host, &target), (&target, &host)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                ways.open.extend([host, target]);
            }
        });
        Relay { address, ways }
    }

    /// Cuts every connection; from now on they lead to `to`, or nowhere. Returns how many were cut.
    pub fn lead(&self, to: Option<SocketAddr>) -> usize {
        let mut ways = self.ways.lock().unwrap();
        ways.to = to;
        let cut = ways.open.len() / 2;
        for stream in ways.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        cut
    }
}
