//! The admin service: gRPC over a Unix socket, and over TCP with TLS where that was asked for.
//!
//! It runs on a thread and a runtime of its own. What it changes it asks of the manager; it never waits for a store or a reactor itself.

mod answers;
mod caller;
mod certificates;
mod connections;
mod convert;
mod handshake;
mod paging;
mod services;
mod socket;
mod streams;
mod tls;
mod users;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use admin_proto::limits::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};
use admin_proto::v1;
use anyhow::{Context as _, Result};
use telemetry::Telemetry;
use tokio::sync::{Semaphore, oneshot};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::Router;

pub use caller::Roles;
pub use certificates::Certificates;
pub use handshake::ClientRefusals;
pub use streams::Streams;

use certificates::Renewal;

use crate::config::{AdminConfig, AdminTcpConfig};
use crate::events::Hub;
use crate::health::Health;
use crate::limits::{
    ADMIN_CALL_TIME_MAX, ADMIN_CALLS_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_IDLE_CHECK,
};
use crate::manage::Manage;
use crate::signal::Ending;

/// What the services work with. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Changes what is served.
    pub manage: Manage,
    /// What happens.
    pub events: Hub,
    /// How the daemon does.
    pub health: Health,
    /// What it did.
    pub telemetry: Arc<Telemetry>,
    /// What runs here.
    pub info: Arc<Info>,
    /// Ends the daemon.
    pub ending: Ending,
    /// Places for streams.
    pub streams: Streams,
    /// What the holders of certificates may.
    pub roles: Arc<Roles>,
    /// Clients that TLS did not let in.
    pub refusals: ClientRefusals,
}

/// What runs here.
#[derive(Debug)]
pub struct Info {
    /// When it began.
    pub started_at: SystemTime,
    /// Reactor threads.
    pub reactors: u16,
    /// Decoding threads.
    pub workers: usize,
    /// Cache of each reactor.
    pub cache_bytes: usize,
    /// What each reactor may fetch ahead of a namespace's readers.
    pub prefetch_bytes: usize,
    /// The configuration file.
    pub config_file: String,
    /// The state folder.
    pub state_folder: String,
    /// io_uring features in use.
    pub ring_features: Vec<String>,
    /// How long draining may take where nobody says.
    pub drain: Duration,
}

/// The running service; it ends when this is dropped.
pub struct AdminService {
    /// Where it listens over TCP, if it does.
    pub tcp: Option<SocketAddr>,
    renewal: Option<Renewal>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The TCP port, before it is served.
struct TcpPort {
    listener: std::net::TcpListener,
    certificates: Certificates,
}

impl TcpPort {
    fn open(config: &AdminTcpConfig, certificates: Certificates) -> Result<Self> {
        let listener = std::net::TcpListener::bind(config.address)
            .with_context(|| format!("the admin service cannot listen on {}", config.address))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            certificates,
        })
    }
}

/// Listens, and serves on a thread of its own. The certificates are those of the TCP port, which is served where there are some.
///
/// # Errors
/// A socket or an address that cannot be used.
pub fn start(
    config: &AdminConfig,
    certificates: Option<Certificates>,
    context: Context,
) -> Result<AdminService> {
    let (mut tcp, mut renewal) = (None, None);
    if let (Some(of_tcp), Some(certificates)) = (&config.tcp, certificates) {
        tcp = Some(TcpPort::open(of_tcp, certificates.clone())?);
        renewal = Some(Renewal::start(
            of_tcp.clone(),
            certificates,
            context.health.clone(),
        )?);
    }
    // Last: whoever fails before it leaves no socket behind.
    let socket = socket::listen(&config.socket)
        .with_context(|| format!("the admin socket {}", config.socket.display()))?;
    let address = tcp.as_ref().map(|port| port.listener.local_addr());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the admin service's runtime")?;
    let (stop, stopped) = oneshot::channel();
    let path = config.socket.clone();
    let thread = std::thread::Builder::new().name("admin".to_owned());
    let thread = thread.spawn(move || {
        let result = runtime.block_on(async {
            tokio::select! {
                result = serve(socket, tcp, context) => result,
                _ = stopped => Ok(()),
            }
        });
        if let Err(error) = result {
            tracing::error!(error = format!("{error:#}"), "the admin service ended");
        }
        // Streams end here.
        drop(runtime);
        socket::remove(&path);
    })?;
    Ok(AdminService {
        tcp: address.transpose()?,
        renewal,
        stop: Some(stop),
        thread: Some(thread),
    })
}

impl AdminService {
    /// Has the files of the certificates read again. False where there are none.
    pub fn renew(&self) -> bool {
        self.renewal.as_ref().map(Renewal::ask).is_some()
    }
}

impl Drop for AdminService {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _told = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

async fn serve(
    socket: std::os::unix::net::UnixListener,
    tcp: Option<TcpPort>,
    context: Context,
) -> Result<()> {
    // Of their own for each: who fills the TCP port does not keep the operator from the socket.
    let places = || Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    let unix = tokio::net::UnixListener::from_std(socket)?;
    let unix =
        routes(server(), &context).serve_with_incoming(connections::incoming(unix, places()));
    let Some(port) = tcp else {
        return Ok(unix.await?);
    };
    let listener = tokio::net::TcpListener::from_std(port.listener)?;
    let incoming = connections::incoming_tls(
        listener,
        places(),
        port.certificates,
        context.refusals.clone(),
    );
    let tcp = routes(server(), &context).serve_with_incoming(incoming);
    until_first(unix, tcp).await?;
    Ok(())
}

/// Waits for the socket's end. That of the TCP port is a line of the log: it does not take the socket along.
async fn until_first<E: std::fmt::Display>(
    unix: impl Future<Output = Result<(), E>>,
    tcp: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    let tcp = async {
        if let Err(error) = tcp.await {
            tracing::error!(%error, "the admin service over TCP ended; the socket is served");
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = unix => ended,
        () = tcp => Ok(()),
    }
}

/// The services, each behind the check of who asks.
fn routes(mut server: Server, context: &Context) -> Router {
    macro_rules! limited {
        ($module:ident :: $server:ident) => {
            InterceptedService::new(
                v1::$module::$server::new(context.clone())
                    .max_decoding_message_size(REQUEST_BYTES_MAX)
                    .max_encoding_message_size(ANSWER_BYTES_MAX),
                {
                    let roles = context.roles.clone();
                    move |request| caller::check(request, &roles)
                },
            )
        };
    }
    server
        .add_service(limited!(target_service_server::TargetServiceServer))
        .add_service(limited!(subsystem_service_server::SubsystemServiceServer))
        .add_service(limited!(namespace_service_server::NamespaceServiceServer))
        .add_service(limited!(host_service_server::HostServiceServer))
        .add_service(limited!(listener_service_server::ListenerServiceServer))
        .add_service(limited!(function_service_server::FunctionServiceServer))
        .add_service(limited!(controller_service_server::ControllerServiceServer))
        .add_service(limited!(event_service_server::EventServiceServer))
        .add_service(limited!(stats_service_server::StatsServiceServer))
}

/// A server within its limits.
fn server() -> Server {
    Server::builder()
        .timeout(ADMIN_CALL_TIME_MAX)
        .concurrency_limit_per_connection(ADMIN_CALLS_MAX)
        .max_concurrent_streams(u32::try_from(ADMIN_CALLS_MAX).ok())
        .http2_keepalive_interval(Some(ADMIN_IDLE_CHECK))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::until_first;

    #[tokio::test(start_paused = true)]
    async fn the_tcp_port_does_not_take_the_socket_along() {
        let day = Duration::from_secs(86_400);
        for ended in [Err("the port failed"), Ok(())] {
            let served = until_first(pending(), ready(ended));
            assert!(tokio::time::timeout(day, served).await.is_err());
        }
        assert_eq!(until_first(ready(Err("e")), pending()).await, Err("e"));
    }
}
