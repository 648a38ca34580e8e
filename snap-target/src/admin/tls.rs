//! TLS of the TCP port: what the three files make of it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_parser::pem::Pem;

use super::caller::expiry_of;
use crate::config::AdminTcpConfig;

/// HTTP/2, which gRPC is spoken over.
const ALPN_H2: &[u8] = b"h2";

/// What a TLS server says and asks.
#[derive(Clone, Debug)]
pub struct Identity {
    /// For the handshakes.
    pub server: Arc<ServerConfig>,
    /// When its certificate expires, in seconds since 1970.
    pub expiry: Option<i64>,
}

/// A server that lets in who has a certificate of the authority.
///
/// # Errors
/// Which key of the configuration, and its file, cannot be used, and why.
pub fn identity(config: &AdminTcpConfig) -> Result<Identity> {
    let AdminTcpConfig {
        cert,
        key,
        client_ca,
        ..
    } = config;
    let (cert_pem, key_pem) = (read("tls-cert", cert)?, read("tls-key", key)?);
    let authority = read("tls-client-ca", client_ca)?;
    require_certificate("tls-cert", cert, &cert_pem)?;
    require_certificate("tls-client-ca", client_ca, &authority)?;
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(&authority, &provider).map_err(|error| {
        let file = client_ca.display();
        anyhow!("tls-client-ca {file}: it cannot vouch for clients: {error}")
    })?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&cert_pem)
        .collect::<Result<_, _>>()
        .with_context(|| format!("tls-cert {}", cert.display()))?;
    let not_its_key = |error: &dyn std::fmt::Display| {
        anyhow!(
            "tls-key {}: it is not the private key (PEM) of the certificate {}: {error}",
            key.display(),
            cert.display(),
        )
    };
    let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| not_its_key(&error))?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| not_its_key(&error))?;
    server.alpn_protocols.push(ALPN_H2.to_vec());
    Ok(Identity {
        server: Arc::new(server),
        expiry: expiry_of(&cert_pem),
    })
}

fn verifier(
    authority: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn tokio_rustls::rustls::server::danger::ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    let all: Vec<_> = CertificateDer::pem_slice_iter(authority).collect::<Result<_, _>>()?;
    roots.add_parsable_certificates(all);
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    Ok(builder.build()?)
}

fn read(key: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{key} {}", path.display()))
}

/// Other things may stand beside it.
fn require_certificate(key: &str, path: &Path, pem: &[u8]) -> Result<()> {
    let is_certificate = |block: &Pem| block.label == "CERTIFICATE" && block.parse_x509().is_ok();
    if Pem::iter_from_buffer(pem)
        .flatten()
        .any(|it| is_certificate(&it))
    {
        return Ok(());
    }
    bail!(
        "{key} {}: there is no certificate (PEM) in it",
        path.display()
    )
}
