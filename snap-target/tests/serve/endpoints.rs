//! Metrics, signals, and the admin service over TCP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use admin_proto::v1;
use admin_proto::v1::event_service_client::EventServiceClient;
use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::target_service_client::TargetServiceClient;
use nix::sys::signal::Signal;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::admin::source;
use crate::target::{Folder, NQN, Target, pack, tokens};

/// GET /metrics, and nothing else.
#[test]
fn metrics_are_served_on_request() {
    let folder = Folder::new("metrics");
    let file = folder.path("t.toml");
    let volume = folder.path("tokens.xvol");
    pack(&volume, "u16", &tokens()[..8000]);
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[metrics]\naddress = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n[[subsystem.namespace]]\nvolume = {volume:?}\n"
    );
    std::fs::write(&file, text).unwrap();
    let target = Target::start_configured(&file);
    let address = target
        .said("metrics http://")
        .strip_suffix("/metrics")
        .unwrap()
        .to_owned();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("# TYPE "), "{answer}");
    assert!(
        answer.contains("xio_health{code=\"listener\"} 0\n"),
        "{answer}"
    );
    // As the admin service has it: file:PATH would be the same file byte for byte.
    let source = format!("source=\"{}\",kind=\"view\"", volume.display());
    assert!(answer.contains(&source), "{answer}");
    let refused = "xio_hosts_refused_total{reason=\"not_allowed\"} 0\n";
    assert!(answer.contains(refused), "{answer}");
    let answer = ask("POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let answer = ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let long = format!(
        "GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n",
        "a".repeat(100_000)
    );
    let mut stream = TcpStream::connect(&address).unwrap();
    // It may close before all is written.
    let _written = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _read = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

/// Held until the daemon looks: the lowest number first, so that the end comes last.
#[test]
fn signals_do_what_they_are_said_to_do() {
    let folder = Folder::new("signals");
    let log = folder.path("log");
    let target = Target::start_logged(&["mem:1MiB"], &log);
    target.signal(Signal::SIGHUP);
    target.signal(Signal::SIGUSR1);
    assert_eq!(target.terminate(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    let places: Vec<_> = [
        "SIGHUP: the configuration is read at the start only",
        "flight recorder, oldest first:\n",
        "started\n",
        "flight recorder ends\n",
    ]
    .iter()
    .map(|part| text.find(part))
    .collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{places:?}: {text}"
    );
}

/// A start that fails names the key of the configuration and the file, in one line, and leaves no socket.
#[test]
fn what_tls_cannot_use_ends_the_start() {
    let folder = Folder::new("admin-tls-wrong");
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/tls");
    let [cert, key, ca, other] =
        ["server.pem", "server.key", "ca.pem", "client.key"].map(|name| tls.join(name));
    let empty = folder.path("empty.pem");
    std::fs::write(&empty, "nothing\n").unwrap();
    let missing = folder.path("missing.pem");
    let not_the_key = format!(
        "tls-key {}: it is not the private key (PEM) of",
        other.display()
    );
    let no_key = format!(
        "tls-key {}: it is not the private key (PEM) of",
        empty.display()
    );
    let in_it = |key: &str| {
        format!(
            "{key} {}: there is no certificate (PEM) in it",
            empty.display()
        )
    };
    let (no_cert, no_ca) = (in_it("tls-cert"), in_it("tls-client-ca"));
    let away = format!("tls-client-ca {}: No such file", missing.display());
    let cases = [
        ([&cert, &other, &ca], not_the_key),
        ([&cert, &empty, &ca], no_key),
        ([&empty, &key, &ca], no_cert),
        ([&cert, &key, &empty], no_ca),
        ([&cert, &key, &missing], away),
    ];
    let file = folder.path("t.toml");
    for ([cert, key, ca], expected) in cases {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\nsocket = \"s\"\ntcp = \"127.0.0.1:0\"\ntls-cert = {cert:?}\ntls-key = {key:?}\ntls-client-ca = {ca:?}\n"
        );
        std::fs::write(&file, text).unwrap();
        let ended = Command::new(env!("CARGO_BIN_EXE_snap-target"))
            .args(["--config", file.to_str().unwrap(), "--log", "warn"])
            .output()
            .unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let beginning = format!("snap-target: the admin service's TLS: {expected}");
        assert!(said.starts_with(&beginning), "{said}");
        assert_eq!(ended.stdout, b"", "it was never ready");
        assert!(!folder.path("s").exists());
    }
}

/// Over TCP the service is there with TLS only, and here only for clients whose certificate the authority signed.
#[test]
fn tcp_needs_tls_and_a_certificate() {
    let folder = Folder::new("admin-tls");
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/tls");
    let pem = |name: &str| std::fs::read(tls.join(name)).unwrap();
    let file = folder.path("t.toml");
    let roles = "tls-announce = [\"localhost\"]\n";
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\nsocket = \"s\"\ntcp = \"127.0.0.1:0\"\ntls-cert = {:?}\ntls-key = {:?}\ntls-client-ca = {:?}\n{roles}",
        tls.join("server.pem"),
        tls.join("server.key"),
        tls.join("ca.pem")
    );
    std::fs::write(&file, text).unwrap();
    let target = Target::start_configured(&file);
    let url = target.said("admin ").to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let asked = |url: &str, tls: Option<ClientTlsConfig>| {
        runtime.block_on(async {
            let mut endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
            if let Some(tls) = tls {
                endpoint = endpoint.tls_config(tls).unwrap();
            }
            let channel = endpoint
                .connect()
                .await
                .map_err(|error| error.to_string())?;
            let mut client = TargetServiceClient::new(channel);
            let info = client.get_info(v1::GetInfoRequest {}).await;
            info.map(|_| ()).map_err(|error| error.to_string())
        })
    };
    let trusting = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(pem("ca.pem")))
        .domain_name("localhost");
    let known = trusting
        .clone()
        .identity(Identity::from_pem(pem("client.pem"), pem("client.key")));
    assert_eq!(asked(&url, Some(known.clone())), Ok(()));
    // Its certificate names localhost, which may announce and no more.
    let (published, attached) = runtime.block_on(async {
        let endpoint = Endpoint::from_shared(url.clone()).unwrap();
        let channel = endpoint.tls_config(known).unwrap().connect().await.unwrap();
        let request = v1::PublishRequest {
            host_nqn: "nqn.2026-11.io.example:a".to_owned(),
            ..v1::PublishRequest::default()
        };
        let mut events = EventServiceClient::new(channel.clone());
        let published = events.publish(request).await.unwrap().into_inner();
        let mut namespaces = NamespaceServiceClient::new(channel);
        let request = source(NQN, "mem:1MiB");
        (published, namespaces.attach_namespace(request).await)
    });
    assert_eq!(published.sequence, 1);
    let refused = attached.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let detail = admin_proto::detail_of(refused.details()).unwrap();
    assert_eq!(detail.reason(), v1::Reason::Role);
    assert!(refused.message().contains("needs `change`"), "{refused}");
    assert!(
        asked(&url, Some(trusting)).is_err(),
        "without a certificate"
    );
    assert!(
        asked(&url.replace("https", "http"), None).is_err(),
        "without TLS"
    );
}
