//! The way to the daemon: its Unix socket, or TCP with TLS; and what its refusals mean.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admin_proto::detail_of;
use admin_proto::limits::ANSWER_BYTES_MAX;
use admin_proto::v1::controller_service_client::ControllerServiceClient;
use admin_proto::v1::event_service_client::EventServiceClient;
use admin_proto::v1::function_service_client::FunctionServiceClient;
use admin_proto::v1::host_service_client::HostServiceClient;
use admin_proto::v1::listener_service_client::ListenerServiceClient;
use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::stats_service_client::StatsServiceClient;
use admin_proto::v1::subsystem_service_client::SubsystemServiceClient;
use admin_proto::v1::target_service_client::TargetServiceClient;
use admin_proto::v1::{GetInfoRequest, GetInfoResponse};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status, Streaming};

use crate::cli::Global;
use crate::failure::Failure;
use crate::tls::Tls;

/// A connected daemon.
#[derive(Clone, Debug)]
pub struct Daemon {
    channel: Channel,
    /// How long an answer may take.
    patience: Duration,
    /// Where it is, for people.
    place: String,
    /// Rows of a page that are asked for; 0: as many as fit an answer.
    page_size: u32,
}

/// Connects as the options say.
pub async fn connect(global: &Global) -> Result<Daemon, Failure> {
    let patience = Duration::from_secs(global.timeout.into());
    let (place, channel) = match &global.tcp {
        Some(address) => {
            let tls = Tls::new(global, address)?;
            (address.clone(), connect_tls(&tls, patience).await?)
        }
        None => (
            global.socket.display().to_string(),
            connect_socket(&global.socket, patience).await?,
        ),
    };
    Ok(Daemon {
        channel,
        patience,
        place,
        page_size: global.page_size,
    })
}

async fn connect_socket(path: &Path, patience: Duration) -> Result<Channel, Failure> {
    let connecting = tokio::time::timeout(patience, UnixStream::connect(path)).await;
    let stream = connecting
        .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
        .map_err(|error| Failure::of(code(&error), socket_failed(path, &error)))?;
    channel_over(stream, &path.display()).await
}

/// A channel over a connection that is there. One command, one connection: a second attempt has nothing to connect with, and the first failure is the one
/// that is told.
async fn channel_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    place: &dyn std::fmt::Display,
) -> Result<Channel, Failure> {
    let stream = Arc::new(Mutex::new(Some(stream)));
    let connector = tower::service_fn(move |_| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        std::future::ready(
            stream
                .map(TokioIo::new)
                .ok_or_else(|| io::Error::from(ErrorKind::ConnectionReset)),
        )
    });
    // The name is for the protocol only; the connector does not look at it.
    Endpoint::from_static("http://snap-target")
        .connect_with_connector(connector)
        .await
        .map_err(|error| Failure::unreachable(not_the_protocol(place, &error)))
}

/// The code that a daemon would have given.
fn code(error: &io::Error) -> Code {
    match error.kind() {
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::TimedOut => Code::DeadlineExceeded,
        _ => Code::Unavailable,
    }
}

fn socket_failed(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound => format!(
            "there is no socket {path}: is snap-target running with [admin] in its configuration, and is --socket (XIO_ADMIN_SOCKET) the one named there?"
        ),
        ErrorKind::ConnectionRefused => format!(
            "nothing listens at {path}: snap-target has ended; start it, and look into its log for why it did"
        ),
        ErrorKind::PermissionDenied => format!(
            "{path} may not be opened: it belongs to the user that runs snap-target; run this as that user or as root"
        ),
        ErrorKind::TimedOut => {
            format!("{path} does not take a connection: snap-target hangs; its log may say why")
        }
        _ => format!("connecting to {path}: {error}"),
    }
}

async fn connect_tls(tls: &Tls, patience: Duration) -> Result<Channel, Failure> {
    let address = tls.address();
    let connecting = tokio::time::timeout(patience, tls.connect()).await;
    let connected = connecting.map_err(|_| {
        let seconds = patience.as_secs();
        Failure::unreachable(format!(
            "{address} takes a connection and does not answer within {seconds} s: snap-target hangs, or something else listens there; --timeout SECONDS waits longer"
        ))
    })?;
    let stream = connected.map_err(|error| {
        if let Some(refused) = not_let_in(&address, &error) {
            return refused;
        }
        Failure::unreachable(format!(
            "connecting to {address}: {}; is tcp under [admin] in snap-target's configuration, and do the certificates match?",
            causes(&error)
        ))
    })?;
    channel_over(stream, &address).await
}

/// Of a daemon that refuses our certificate: TLS 1.3 says so by an alert behind the handshake. Asking again does not help.
fn not_let_in(place: &dyn std::fmt::Display, error: &dyn Error) -> Option<Failure> {
    let causes = causes(error);
    let (_, alert) = causes.split_once("received fatal alert: ")?;
    let message = format!(
        "snap-target at {place} does not take our certificate ({alert}): it must be valid now, for clients, and signed by the authority that tls-client-ca names there"
    );
    Some(Failure::of(Code::Unauthenticated, message))
}

fn not_the_protocol(place: &dyn std::fmt::Display, error: &dyn Error) -> String {
    format!(
        "what listens at {place} broke off or does not speak the admin protocol: {}",
        causes(error)
    )
}

/// An error and its causes; many say their cause themselves, it is not said again.
fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

macro_rules! clients {
    ($($name:ident: $client:ident),* $(,)?) => {
        impl Daemon {
            $(
                /// The service of this name.
                pub fn $name(&self) -> $client<Channel> {
                    $client::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
                }
            )*
        }
    };
}

clients! {
    target: TargetServiceClient,
    subsystem: SubsystemServiceClient,
    namespace: NamespaceServiceClient,
    host: HostServiceClient,
    listener: ListenerServiceClient,
    function: FunctionServiceClient,
    controller: ControllerServiceClient,
    stats: StatsServiceClient,
    event: EventServiceClient,
}

impl Daemon {
    /// Waits for an answer, or for a stream to begin.
    pub async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.patience, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.refusal(&status)),
            Err(_) => Err(Failure::of(
                Code::DeadlineExceeded,
                format!(
                    "no answer from {} within {} s: a change, where one was asked for, may have been made nevertheless; --timeout SECONDS waits longer",
                    self.place,
                    self.patience.as_secs()
                ),
            )),
        }
    }

    /// The next message of a stream; none at its end.
    pub async fn message<T>(&self, stream: &mut Streaming<T>) -> Result<Option<T>, Failure> {
        let message = stream.message().await;
        message.map_err(|status| match status.source() {
            // It has spoken the protocol: it is what we took it for.
            Some(source) => Failure::unreachable(format!(
                "the connection to snap-target at {} ended: {}",
                self.place,
                causes(source)
            )),
            None => self.refusal(&status),
        })
    }

    /// The same of a stream that has one to give now and then; a call that is dropped loses nothing.
    pub async fn message_within<T>(
        &self,
        patience: Duration,
        stream: &mut Streaming<T>,
    ) -> Result<Option<T>, Failure> {
        let waiting = tokio::time::timeout(patience, self.message(stream)).await;
        waiting.unwrap_or_else(|_| {
            let (place, seconds) = (&self.place, patience.as_secs());
            Err(Failure::of(
                Code::DeadlineExceeded,
                format!("nothing more from {place} within {seconds} s: snap-target waits for something; its log and `snapctl target health` may say for what"),
            ))
        })
    }

    /// What runs there.
    pub async fn info(&self) -> Result<GetInfoResponse, Failure> {
        self.answer(self.target().get_info(GetInfoRequest {})).await
    }

    /// How long an answer may take.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Rows of a page that are asked for.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Checks that the daemon knows what `flag` asks for: one that is older would ignore it, and do something else.
    pub async fn needs(&self, revision: u32, flag: &str) -> Result<(), Failure> {
        let info = self.info().await?;
        if info.revision >= revision {
            return Ok(());
        }
        Err(Failure::of(
            Code::Unimplemented,
            format!(
                "{flag} needs revision {revision} of the admin contract; snap-target {} at {} has revision {} and would ignore it: nothing was asked of it",
                info.version, self.place, info.revision
            ),
        ))
    }

    /// What a status means for whoever runs the command.
    pub fn refusal(&self, status: &Status) -> Failure {
        // A status with a source was not sent by a daemon: the connection made it.
        if let Some(source) = status.source() {
            return Failure::unreachable(not_the_protocol(&self.place, source));
        }
        let said = status.message();
        let message = match status.code() {
            Code::Unimplemented => format!(
                "snap-target at {} does not know this call: it is older than this snapctl ({}); use the snapctl of its version, `snapctl target show` says it",
                self.place,
                env!("CARGO_PKG_VERSION")
            ),
            Code::Internal | Code::Unknown | Code::DataLoss => format!(
                "a fault of snap-target: {said} (its log says more; `snapctl recorder dump` shows what led to it)"
            ),
            _ => said.to_owned(),
        };
        let detail = detail_of(status.details()).unwrap_or_default();
        Failure::of(status.code(), message).detailed(detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_taken_is_not_a_daemon_that_is_away() {
        let alert = io::Error::other("received fatal alert: CertificateExpired");
        let refused = not_let_in(&"storage1:4421", &alert).unwrap();
        assert!(!refused.is_unreachable());
        let text = refused.to_string();
        assert!(text.contains("(CertificateExpired)"), "{text}");
        let reset = io::Error::from(ErrorKind::ConnectionReset);
        assert!(not_let_in(&"storage1:4421", &reset).is_none());
    }
}
