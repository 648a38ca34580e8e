//! TLS to the daemon's TCP port, each side with a certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::cli::Global;
use crate::failure::Failure;

/// The way to a daemon.
pub struct Tls {
    address: String,
    /// What its certificate has to say.
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Tls {
    /// The certificates and the key that the options name.
    ///
    /// # Errors
    /// What of them is missing or cannot be used, with the file.
    pub fn new(global: &Global, address: &str) -> Result<Tls, Failure> {
        let host = host_of(address)?;
        let Some(ca) = &global.tls_ca else {
            return Err(Failure::usage(format!(
                "--tcp {address} needs --tls-ca FILE: the certificate that vouches for the daemon"
            )));
        };
        let (Some(cert), Some(key)) = (&global.tls_cert, &global.tls_key) else {
            return Err(Failure::usage(format!(
                "--tcp {address} needs --tls-cert FILE and --tls-key FILE: the daemon asks who we are"
            )));
        };
        let name = global.tls_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|error| Failure::usage(format!("--tcp {address}: {error}")))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca)? {
            let added = roots.add(root);
            added.map_err(|error| Failure::here(format!("{}: {error}", ca.display())))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::here(error.to_string()))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(cert)?, private_key(key)?);
        let mut config = config.map_err(|error| {
            Failure::here(format!(
                "--tls-key {} does not go with --tls-cert {}: {error}",
                key.display(),
                cert.display(),
            ))
        })?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Tls {
            address: address.to_owned(),
            name,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Where the daemon is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Connects, and waits for the daemon's first word: in TLS 1.3 a client is through with the handshake before the daemon has looked at its certificate. What
    /// comes is the beginning of HTTP/2 (RFC 9113, 3.4), or the alert that says why we are not let in; once we had written something, the end of the
    /// connection could overtake that.
    pub async fn connect(&self) -> io::Result<BufReader<TlsStream<TcpStream>>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        let mut stream = BufReader::new(stream);
        if stream.fill_buf().await?.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(stream)
    }
}

/// The host of HOST:PORT, as a certificate names it.
fn host_of(address: &str) -> Result<&str, Failure> {
    match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => {
            Ok(host.trim_start_matches('[').trim_end_matches(']'))
        }
        _ => Err(Failure::usage(format!(
            "--tcp {address}: the port is missing; write HOST:PORT, for example storage1:5512"
        ))),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::here(format!("reading {}: {error}", path.display())))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(Failure::here(format!(
            "{}: there is no certificate (PEM) in it",
            path.display()
        ))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|_| Failure::here(format!("{}: there is no key (PEM) in it", path.display())))
}
