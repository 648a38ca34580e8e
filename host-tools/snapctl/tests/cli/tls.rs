//! Over TCP, with certificates made for the test.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::fake::Fake;
use super::support::{Ran, snapctl};

/// An authority, and what it signed.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for a name, and its key.
    pub fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (self.sign_params(params, &key), key.serialize_pem())
    }

    /// A certificate for what has this key.
    pub fn sign_params(&self, params: CertificateParams, key: &KeyPair) -> String {
        params.signed_by(key, &self.issuer).unwrap().pem()
    }
}

pub fn write(folder: &Path, name: &str, text: &str) -> String {
    let path: PathBuf = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What listens takes connections, and says nothing at all.
#[test]
fn a_peer_that_is_silent_is_not_waited_for_longer_than_was_said() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("admin");
    let folder = TempDir::new().unwrap();
    let [ca, cert, key] = [("ca", &authority.pem), ("cert", &cert), ("key", &key)]
        .map(|(name, pem)| write(folder.path(), name, pem));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let arguments = [
        "target",
        "show",
        "--timeout",
        "1",
        "--tcp",
        &address,
        "--tls-ca",
        &ca,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    let ran = snapctl(None, &arguments);
    assert_eq!((ran.status, ran.stdout.as_str()), (7, ""));
    assert_eq!(
        ran.stderr,
        format!(
            "error: {address} takes a connection and does not answer within 1 s: snap-target hangs, or something else listens there; --timeout SECONDS waits longer\n"
        )
    );
}

#[test]
fn the_daemon_is_reached_over_tls_by_those_who_have_a_certificate() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (server_cert, server_key) = authority.sign("storage1.example.org");
    let (client_cert, client_key) = authority.sign("admin");
    let (other_cert, other_key) = stranger.sign("admin");
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(server_cert, server_key))
        .client_ca_root(Certificate::from_pem(&authority.pem));
    let (fake, address) = Fake::start_tls(tls);
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| write(folder.path(), name, text);
    let (ca, other_ca) = (
        file("ca.pem", &authority.pem),
        file("other.pem", &stranger.pem),
    );
    let (cert, key) = (file("cert.pem", &client_cert), file("key.pem", &client_key));
    let (other_cert, other_key) = (
        file("other-cert.pem", &other_cert),
        file("other-key.pem", &other_key),
    );
    let address = address.to_string();
    let show = |ca: &str, more: &[&str]| {
        let arguments = [
            &[
                "target",
                "show",
                "--tcp",
                &address,
                "--tls-name",
                "storage1.example.org",
                "--tls-ca",
                ca,
            ],
            more,
        ]
        .concat();
        snapctl(None, &arguments)
    };

    let ran = show(&ca, &["--tls-cert", &cert, "--tls-key", &key]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("storage1"), "{}", ran.stdout);
    assert_eq!(fake.asked(), ["GetInfoRequest"]);

    let unreachable = |ran: &Ran| {
        assert_eq!((ran.status, ran.stdout.as_str()), (7, ""));
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    };
    // With a certificate that the daemon's authority did not sign, each time; with an authority that did not sign the daemon's, and with another name than its.
    for _ in 0..20 {
        let refused = show(&ca, &["--tls-cert", &other_cert, "--tls-key", &other_key]);
        let why = format!(
            "error: snap-target at {address} does not take our certificate (DecryptError): it must be valid now, for clients, and signed by the authority that tls-client-ca names there\n"
        );
        assert_eq!((refused.status, refused.stderr.as_str()), (6, why.as_str()));
    }
    unreachable(&show(&other_ca, &["--tls-cert", &cert, "--tls-key", &key]));
    let other_name = [
        "target",
        "show",
        "--tcp",
        &address,
        "--tls-ca",
        &ca,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    unreachable(&snapctl(None, &other_name));
    assert_eq!(fake.asked(), [""; 0]);
}

/// What is wrong here is said before anything is asked, with the file.
#[test]
fn a_certificate_or_key_that_cannot_be_used_is_named() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("admin");
    let (_, other_key) = authority.sign("admin");
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| write(folder.path(), name, text);
    let [ca, cert, key] =
        [("ca", &authority.pem), ("cert", &cert), ("key", &key)].map(|(name, pem)| file(name, pem));
    let (other_key, empty) = (file("other-key", &other_key), file("empty", "nothing"));
    let show = |tcp: &str, ca: &str, cert: &str, key: &str| {
        let options = ["--tls-ca", ca, "--tls-cert", cert, "--tls-key", key];
        let ran = snapctl(
            None,
            &[&["target", "show", "--tcp", tcp][..], &options].concat(),
        );
        (ran.status, ran.stderr)
    };
    let away = "127.0.0.1:1";
    let none = |name: &str| {
        (
            3,
            format!("error: {name}: there is no certificate (PEM) in it\n"),
        )
    };
    assert_eq!(show(away, &empty, &cert, &key), none(&empty));
    assert_eq!(show(away, &ca, &empty, &key), none(&empty));
    let (status, said) = show(away, &ca, &cert, &other_key);
    let beginning = format!("error: --tls-key {other_key} does not go with --tls-cert {cert}: ");
    assert!(
        status == 3 && said.starts_with(&beginning),
        "{status} {said}"
    );
    for tcp in ["127.0.0.1", "storage1:", "[::1]", "storage1:http"] {
        let expected = format!(
            "error: --tcp {tcp}: the port is missing; write HOST:PORT, for example storage1:5512\n"
        );
        assert_eq!(show(tcp, &ca, &cert, &key), (2, expected));
    }
}
