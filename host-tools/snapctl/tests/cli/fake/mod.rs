//! A daemon that answers from samples and remembers what it was asked.

pub mod samples;
mod services;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use samples::{FIRST, Start};

use admin_proto::v1::controller_service_server::ControllerServiceServer;
use admin_proto::v1::event_service_server::EventServiceServer;
use admin_proto::v1::function_service_server::FunctionServiceServer;
use admin_proto::v1::host_service_server::HostServiceServer;
use admin_proto::v1::listener_service_server::ListenerServiceServer;
use admin_proto::v1::namespace_service_server::NamespaceServiceServer;
use admin_proto::v1::stats_service_server::StatsServiceServer;
use admin_proto::v1::subsystem_service_server::SubsystemServiceServer;
use admin_proto::v1::target_service_server::TargetServiceServer;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio_stream::Stream;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::Status;
use tonic::transport::server::Connected;
use tonic::transport::{Server, ServerTlsConfig};

/// What the calls share.
#[derive(Clone, Debug)]
pub struct Shared {
    asked: Arc<Mutex<Vec<String>>>,
    /// How the requests begin that are refused, and how.
    refusal: Arc<Mutex<Option<(String, Status)>>>,
    stays_open: Arc<AtomicBool>,
    start: Arc<Mutex<Start>>,
}

impl Default for Shared {
    fn default() -> Self {
        Shared {
            asked: Arc::default(),
            refusal: Arc::default(),
            stays_open: Arc::default(),
            start: Arc::new(Mutex::new(FIRST)),
        }
    }
}

impl Shared {
    /// Remembers a request; refuses it where that was arranged.
    fn note(&self, request: &impl Debug) -> Result<(), Status> {
        let request = format!("{request:?}");
        let refusal = self.refusal.lock().unwrap().clone();
        let refused = refusal.filter(|(name, _)| request.starts_with(name));
        self.asked.lock().unwrap().push(request);
        refused.map_or(Ok(()), |(_, status)| Err(status))
    }

    fn start(&self) -> Start {
        self.start.lock().unwrap().clone()
    }

    /// Whether streams stay open when all is said.
    fn stays_open(&self) -> bool {
        self.stays_open.load(Ordering::Relaxed)
    }
}

/// A running fake; it ends when it is dropped.
pub struct Fake {
    shared: Shared,
    folder: TempDir,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    /// At a Unix socket.
    pub fn start() -> Fake {
        let mut fake = Fake::new();
        let listener = listen(&fake.folder);
        fake.serve(Server::builder(), move || {
            UnixListenerStream::new(UnixListener::from_std(listener).unwrap())
        });
        fake
    }

    /// Over TCP, with TLS.
    pub fn start_tls(tls: ServerTlsConfig) -> (Fake, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().tls_config(tls).unwrap();
        let mut fake = Fake::new();
        fake.serve(server, move || {
            TcpListenerStream::new(TcpListener::from_std(listener).unwrap())
        });
        (fake, address)
    }

    fn new() -> Fake {
        Fake {
            shared: Shared::default(),
            folder: TempDir::new().unwrap(),
            end: None,
            thread: None,
        }
    }

    fn serve<I, IO>(&mut self, server: Server, incoming: impl FnOnce() -> I + Send + 'static)
    where
        I: Stream<Item = std::io::Result<IO>>,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        let (end, ended) = oneshot::channel();
        let serving = self.shared.clone();
        self.end = Some(end);
        self.thread = Some(std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(async { serve(server, incoming(), serving, ended).await });
        }));
    }

    fn end(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// Every call from now on is answered with this status.
    pub fn refuse(&self, status: Status) {
        self.refuse_only("", status);
    }

    /// Every call whose request has this name is.
    pub fn refuse_only(&self, name: &str, status: Status) {
        *self.shared.refusal.lock().unwrap() = Some((name.to_owned(), status));
    }

    /// Calls are answered by this start of the daemon from now on.
    pub fn be(&self, start: Start) {
        *self.shared.start.lock().unwrap() = start;
    }

    /// Ends, and serves at the same socket again.
    pub fn restart(&mut self, start: Start) {
        self.end();
        std::fs::remove_file(self.socket()).unwrap();
        self.be(start);
        let listener = listen(&self.folder);
        self.serve(Server::builder(), move || {
            UnixListenerStream::new(UnixListener::from_std(listener).unwrap())
        });
    }

    /// Streams stay open from now on when all is said.
    pub fn stay_open(&self) {
        self.shared.stays_open.store(true, Ordering::Relaxed);
    }

    /// What was asked since the last look.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.asked.lock().unwrap())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.end();
    }
}

/// Bound before it is served: whoever connects from now on is queued.
fn listen(folder: &TempDir) -> std::os::unix::net::UnixListener {
    let path = folder.path().join("admin.sock");
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

async fn serve<I, IO>(mut server: Server, incoming: I, shared: Shared, ended: oneshot::Receiver<()>)
where
    I: Stream<Item = std::io::Result<IO>>,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let serving = server
        .add_service(TargetServiceServer::new(shared.clone()))
        .add_service(SubsystemServiceServer::new(shared.clone()))
        .add_service(NamespaceServiceServer::new(shared.clone()))
        .add_service(HostServiceServer::new(shared.clone()))
        .add_service(ListenerServiceServer::new(shared.clone()))
        .add_service(FunctionServiceServer::new(shared.clone()))
        .add_service(ControllerServiceServer::new(shared.clone()))
        .add_service(StatsServiceServer::new(shared.clone()))
        .add_service(EventServiceServer::new(shared))
        .serve_with_incoming(incoming);
    // Not a graceful end: a stream that nobody ends would keep it.
    tokio::select! {
        served = serving => served.unwrap(),
        _ = ended => {}
    }
}
