//! TLS of the TCP port. It is made at the start: what cannot be used ends the start, and names its file.

use std::error::Error;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use x509_parser::pem::Pem;

use crate::config::AdminTcpConfig;
use crate::limits::ADMIN_HANDSHAKE_MAX;

/// A server that lets in who has a certificate of the authority.
///
/// # Errors
/// Which key of the configuration, and its file, cannot be used, and why.
pub fn server(server: Server, config: &AdminTcpConfig) -> Result<Server> {
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
    let with_identity = ServerTlsConfig::new()
        .identity(Identity::from_pem(cert_pem, key_pem))
        .timeout(ADMIN_HANDSHAKE_MAX);
    // Without the authority first: then it is the key that does not fit.
    let tried = server.clone().tls_config(with_identity.clone());
    tried.map_err(|error| {
        anyhow!(
            "tls-key {}: it is not the private key (PEM) of the certificate {}: {}",
            key.display(),
            cert.display(),
            innermost(&error)
        )
    })?;
    let whole = with_identity.client_ca_root(Certificate::from_pem(authority));
    server.tls_config(whole).map_err(|error| {
        let (file, why) = (client_ca.display(), innermost(&error));
        anyhow!("tls-client-ca {file}: it cannot vouch for clients: {why}")
    })
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

/// What tonic says is that its transport failed.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}
