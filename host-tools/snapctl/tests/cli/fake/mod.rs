//! A daemon that answers from samples and remembers what it was asked.

pub mod samples;
mod services;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use admin_proto::v1::controller_service_server::ControllerServiceServer;
use admin_proto::v1::event_service_server::EventServiceServer;
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
#[derive(Clone, Debug, Default)]
pub struct Shared {
    asked: Arc<Mutex<Vec<String>>>,
    refusal: Arc<Mutex<Option<Status>>>,
    stays_open: Arc<AtomicBool>,
}

impl Shared {
    /// Remembers a request; refuses it where that was arranged.
    fn note(&self, request: &impl Debug) -> Result<(), Status> {
        self.asked.lock().unwrap().push(format!("{request:?}"));
        match self.refusal.lock().unwrap().clone() {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }
}

impl Shared {
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
        let folder = TempDir::new().unwrap();
        // Bound before it is served: whoever connects from now on is queued.
        let listener =
            std::os::unix::net::UnixListener::bind(folder.path().join("admin.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        Fake::serving(folder, Server::builder(), move || {
            UnixListenerStream::new(UnixListener::from_std(listener).unwrap())
        })
    }

    /// Over TCP, with TLS.
    pub fn start_tls(tls: ServerTlsConfig) -> (Fake, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().tls_config(tls).unwrap();
        let fake = Fake::serving(TempDir::new().unwrap(), server, move || {
            TcpListenerStream::new(TcpListener::from_std(listener).unwrap())
        });
        (fake, address)
    }

    fn serving<I, IO>(
        folder: TempDir,
        server: Server,
        incoming: impl FnOnce() -> I + Send + 'static,
    ) -> Fake
    where
        I: Stream<Item = std::io::Result<IO>>,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        let shared = Shared::default();
        let (end, ended) = oneshot::channel();
        let serving = shared.clone();
        let thread = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(async { serve(server, incoming(), serving, ended).await });
        });
        Fake {
            shared,
            folder,
            end: Some(end),
            thread: Some(thread),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// Every call from now on is answered with this status.
    pub fn refuse(&self, status: Status) {
        *self.shared.refusal.lock().unwrap() = Some(status);
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
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
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
