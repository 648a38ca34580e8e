//! TLS of a running daemon: certificates that change, and clients that are not let in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use admin_proto::v1;
use admin_proto::v1::target_service_client::TargetServiceClient;
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::admin::Client;
use crate::target::{Folder, NQN, Target};

const PATIENCE: Duration = Duration::from_secs(30);

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Authority { pem, issuer }
    }

    /// A certificate for localhost, and its key.
    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        (pem, key.serialize_pem())
    }

    /// A client that trusts this authority and has a certificate of that one.
    fn client(&self, certified_by: &Authority) -> ClientTlsConfig {
        let (pem, key) = certified_by.sign(|_| ());
        let identity = Identity::from_pem(pem, key);
        self.client_without().identity(identity)
    }

    fn client_without(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.pem))
            .domain_name("localhost")
    }
}

/// A daemon with an admin port, and what it logs.
struct Daemon {
    folder: Folder,
    target: Target,
    url: String,
    runtime: tokio::runtime::Runtime,
}

impl Daemon {
    fn start(name: &str, authority: &Authority) -> Daemon {
        let folder = Folder::new(name);
        write_all(&folder, authority);
        let file = folder.path("t.toml");
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\nsocket = \"s\"\ntcp = \"127.0.0.1:0\"\ntls-cert = \"cert\"\ntls-key = \"key\"\ntls-client-ca = \"ca\"\n[metrics]\naddress = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n"
        );
        std::fs::write(&file, text).unwrap();
        let target = Target::start_configured_logged(&file, &folder.path("log"));
        let url = target.said("admin ").to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Daemon {
            folder,
            target,
            url,
            runtime,
        }
    }

    /// Whether a client is answered.
    fn answers(&self, tls: ClientTlsConfig) -> bool {
        self.runtime.block_on(async {
            let endpoint = Endpoint::from_shared(self.url.clone()).unwrap();
            let Ok(channel) = endpoint.tls_config(tls).unwrap().connect().await else {
                return false;
            };
            let mut client = TargetServiceClient::new(channel);
            client.get_info(v1::GetInfoRequest {}).await.is_ok()
        })
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("https://").unwrap()
    }

    fn health(&self) -> Vec<v1::HealthProblem> {
        let client = Client::connect(&self.folder.path("s"));
        let answer = client.call(async |channel| {
            let mut client = TargetServiceClient::new(channel);
            client.get_health(v1::GetHealthRequest {}).await
        });
        answer.unwrap().problems
    }

    /// Lines of the log with a text, once there are so many.
    fn logged(&self, text: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let log = std::fs::read_to_string(self.folder.path("log")).unwrap();
            let lines = log.lines().filter(|line| line.contains(text));
            let lines: Vec<_> = lines.map(str::to_owned).collect();
            if lines.len() >= count {
                return lines;
            }
            assert!(start.elapsed() < PATIENCE, "{text}: {log}");
            std::thread::yield_now();
        }
    }
}

/// By renaming, as programs that renew certificates do.
fn put(folder: &Folder, name: &str, text: &str) {
    let next = folder.path("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(&next, folder.path(name)).unwrap();
}

fn write_all(folder: &Folder, authority: &Authority) {
    let (cert, key) = authority.sign(|_| ());
    for (name, pem) in [("cert", &cert), ("key", &key), ("ca", &authority.pem)] {
        put(folder, name, pem);
    }
}

/// The next client meets the new certificate and is measured by the new authority; one that is connected stays; files that cannot be used change nothing.
#[test]
fn certificates_are_renewed_while_serving() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let daemon = Daemon::start("tls-renewed", &before);
    assert!(daemon.answers(before.client(&before)));
    let connected = daemon.runtime.block_on(async {
        let endpoint = Endpoint::from_shared(daemon.url.clone()).unwrap();
        let endpoint = endpoint.tls_config(before.client(&before)).unwrap();
        endpoint.connect().await.unwrap()
    });

    put(&daemon.folder, "key", "nothing\n");
    daemon.target.signal(Signal::SIGHUP);
    let told = daemon.logged("certificates cannot be renewed", 1);
    assert!(
        told[0].contains("the ones before stay in force"),
        "{told:?}"
    );
    let problems = daemon.health();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].code(), v1::HealthCode::Certificate);
    assert!(daemon.answers(before.client(&before)));

    write_all(&daemon.folder, &after);
    daemon.target.signal(Signal::SIGHUP);
    let start = Instant::now();
    while !daemon.answers(after.client(&after)) {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(daemon.health(), []);
    assert!(!daemon.answers(before.client(&before)), "not trusted here");
    assert!(!daemon.answers(after.client(&before)), "not trusted there");
    let mut client = TargetServiceClient::new(connected);
    let answer = client.get_info(v1::GetInfoRequest {});
    assert!(daemon.runtime.block_on(answer).is_ok());
    assert_eq!(daemon.logged("certificates cannot be renewed", 1).len(), 1);
}

/// Without a signal, too, as programs that renew certificates leave it.
#[test]
fn files_that_were_replaced_are_noticed() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let daemon = Daemon::start("tls-noticed", &before);
    write_all(&daemon.folder, &after);
    let start = Instant::now();
    while !daemon.answers(after.client(&after)) {
        assert!(start.elapsed() < PATIENCE);
    }
}

/// Each leaves a line with its address and the reason, and is counted.
#[test]
fn a_client_that_is_refused_is_told_in_the_log() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let daemon = Daemon::start("tls-refused", &authority);
    let refused = |tls: ClientTlsConfig, why: &str| {
        assert!(!daemon.answers(tls), "{why}");
        let line = &daemon.logged(why, 1)[0];
        assert!(line.contains("peer=127.0.0.1:"), "{line}");
    };
    refused(authority.client_without(), "it shows no certificate");
    refused(
        authority.client(&stranger),
        "its certificate is not signed by an authority in tls-client-ca",
    );
    let (pem, key) = authority.sign(|params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let expired = authority.client_without();
    refused(
        expired.identity(Identity::from_pem(pem, key)),
        "its certificate has expired",
    );
    refused(stranger.client(&authority), "it refused in turn");
    let mut plain = TcpStream::connect(daemon.address()).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let line = &daemon.logged("it does not speak TLS", 1)[0];
    let port = plain.local_addr().unwrap().port();
    assert!(line.contains(&format!("peer=127.0.0.1:{port}")), "{line}");
    drop(TcpStream::connect(daemon.address()).unwrap());
    daemon.logged("it left before the handshake was over", 1);
    assert!(daemon.answers(authority.client(&authority)));

    let metrics = daemon.target.said("metrics http://");
    let metrics = metrics.strip_suffix("/metrics").unwrap();
    let page = page(metrics);
    for reason in ["no_certificate", "unknown_issuer", "expired", "protocol"] {
        let prefix = format!("xio_admin_clients_refused_total{{reason=\"{reason}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&prefix));
        assert!(line.is_some_and(|count| count != "0"), "{reason}");
    }
}

fn page(metrics: &str) -> String {
    let mut stream = TcpStream::connect(metrics).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
