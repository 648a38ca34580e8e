//! Handshakes of the TCP port: who gets through, and why others do not. A client that is refused sees an alert of TLS at best; the reason is here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{CertificateError, Error as TlsError};
use tokio_rustls::server::TlsStream;

use super::certificates::Certificates;
use super::connections::Connection;
use crate::limits::ADMIN_HANDSHAKE_MAX;

/// Why a client did not get through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It showed no certificate.
    NoCertificate,
    /// Its certificate is no authority's that is trusted here.
    UnknownIssuer,
    /// Its certificate's time is over, or has not begun.
    Expired(String),
    /// Its certificate is no good for another reason.
    Certificate(String),
    /// What it speaks is not TLS, or not one that is spoken here.
    Protocol(String),
    /// It does not trust this daemon's certificate, or said so in another way.
    Alert(String),
    /// It said nothing more for too long.
    Silent,
    /// It went.
    Gone(String),
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|it| it.downcast_ref::<TlsError>());
        match inner {
            Some(TlsError::NoCertificatesPresented) => Self::NoCertificate,
            Some(TlsError::InvalidCertificate(why)) => Self::of_certificate(why),
            Some(TlsError::AlertReceived(alert)) => Self::Alert(format!("{alert:?}")),
            Some(other) => Self::Protocol(other.to_string()),
            None if error.kind() == io::ErrorKind::TimedOut => Self::Silent,
            None => Self::Gone(error.to_string()),
        }
    }

    fn of_certificate(why: &CertificateError) -> Self {
        let text = TlsError::InvalidCertificate(why.clone()).to_string();
        match why {
            // An authority that was made anew keeps its name: then it is the signature that does not fit.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::Expired(text),
            _ => Self::Certificate(text),
        }
    }

    /// One line for a person.
    fn text(&self) -> String {
        match self {
            Self::NoCertificate => "it shows no certificate".to_owned(),
            Self::UnknownIssuer => {
                "its certificate is not signed by an authority in tls-client-ca".to_owned()
            }
            Self::Expired(why) => format!("its certificate has expired or is not valid yet: {why}"),
            Self::Certificate(why) => format!("its certificate cannot be used: {why}"),
            Self::Protocol(why) => format!("it does not speak TLS as it is spoken here: {why}"),
            Self::Alert(alert) => {
                format!("it refused in turn, mostly for want of trust in tls-cert: {alert}")
            }
            Self::Silent => format!(
                "its handshake was not over within {} s",
                ADMIN_HANDSHAKE_MAX.as_secs()
            ),
            Self::Gone(why) => format!("it left before the handshake was over: {why}"),
        }
    }

    /// Where it is counted.
    fn index(&self) -> usize {
        match self {
            Self::NoCertificate => 0,
            Self::UnknownIssuer => 1,
            Self::Expired(_) => 2,
            Self::Certificate(_) => 3,
            Self::Protocol(_) => 4,
            Self::Alert(_) => 5,
            Self::Silent => 6,
            Self::Gone(_) => 7,
        }
    }
}

/// The metric's names of the reasons, by [`Refusal::index`].
const REASONS: [&str; 8] = [
    "no_certificate",
    "unknown_issuer",
    "expired",
    "certificate",
    "protocol",
    "alert",
    "silent",
    "gone",
];

/// How often clients did not get through, by reason. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ClientRefusals(Arc<[AtomicU64; REASONS.len()]>);

impl ClientRefusals {
    fn count(&self, refusal: &Refusal) {
        if let Some(counter) = self.0.get(refusal.index()) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often, by reason.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|counter| counter.load(Ordering::Relaxed));
        REASONS.into_iter().zip(counts).collect()
    }
}

/// A client's way in: its connection when it has proven who it is.
pub async fn welcome(
    connection: Connection<TcpStream>,
    certificates: &Certificates,
    refusals: &ClientRefusals,
) -> Option<TlsStream<Connection<TcpStream>>> {
    let peer = connection.peer_address();
    let acceptor = TlsAcceptor::from(certificates.now().server);
    let refusal = match timeout(ADMIN_HANDSHAKE_MAX, acceptor.accept(connection)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => Refusal::of(&error),
        Err(_) => Refusal::Silent,
    };
    refusals.count(&refusal);
    // The log has so many of these and no more (LogLimit).
    tracing::warn!(
        peer = peer.map(tracing::field::display),
        "a client of the admin service's TCP port is refused: {}",
        refusal.text()
    );
    None
}
