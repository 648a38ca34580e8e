//! The admin service of a running daemon, with hosts that see what it changes.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use admin_proto::v1;
use admin_proto::v1::controller_service_client::ControllerServiceClient;
use admin_proto::v1::event_service_client::EventServiceClient;
use admin_proto::v1::host_service_client::HostServiceClient;
use admin_proto::v1::listener_service_client::ListenerServiceClient;
use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::resize_namespace_request::Size;
use admin_proto::v1::stats_service_client::StatsServiceClient;
use admin_proto::v1::subscribe_response::Message;
use admin_proto::v1::subsystem_service_client::SubsystemServiceClient;
use admin_proto::v1::target_service_client::TargetServiceClient;
use admin_proto::v1::visibility::To;
use hyper_util::rt::TokioIo;
use initiator::{Initiator, Options, discover};
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::target::{Folder, NQN, Target};

/// A client of a daemon's socket.
pub struct Client {
    pub runtime: Runtime,
    channel: Channel,
}

impl Client {
    pub fn connect(socket: &Path) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move {
                let stream = tokio::net::UnixStream::connect(socket).await?;
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = runtime
            .block_on(endpoint.connect_with_connector(connector))
            .unwrap();
        Client { runtime, channel }
    }

    /// One call.
    pub fn call<T>(
        &self,
        call: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, Status> {
        let answer = self.runtime.block_on(call(self.channel.clone()));
        answer.map(tonic::Response::into_inner)
    }

    /// Makes a subsystem that nobody may connect to yet.
    pub fn create_subsystem(&self, nqn: &str) {
        let request = v1::CreateSubsystemRequest {
            nqn: nqn.to_owned(),
            ..v1::CreateSubsystemRequest::default()
        };
        self.call(async |channel| {
            SubsystemServiceClient::new(channel)
                .create_subsystem(request)
                .await
        })
        .unwrap();
    }

    pub fn attach(&self, request: v1::AttachNamespaceRequest) -> Result<v1::Namespace, Status> {
        let answer = self.call(async |channel| {
            NamespaceServiceClient::new(channel)
                .attach_namespace(request)
                .await
        })?;
        Ok(answer.namespace.unwrap())
    }

    pub fn namespaces(&self) -> Vec<v1::Namespace> {
        let request = v1::ListNamespacesRequest::default();
        self.call(async |channel| {
            NamespaceServiceClient::new(channel)
                .list_namespaces(request)
                .await
        })
        .unwrap()
        .namespaces
    }
}

/// The address on this machine of a daemon's admin socket, and its arguments.
pub fn with_admin(folder: &Folder) -> (PathBuf, Vec<String>) {
    let (socket, state) = (folder.path("admin.sock"), folder.path("state"));
    let arguments = [
        "--admin".to_owned(),
        socket.to_str().unwrap().to_owned(),
        "--state".to_owned(),
        state.to_str().unwrap().to_owned(),
    ];
    (socket, arguments.to_vec())
}

pub fn start(arguments: &[String], stores: &[&str]) -> Target {
    let mut all: Vec<&str> = arguments.iter().map(String::as_str).collect();
    all.extend(stores);
    Target::start(&all)
}

fn nsids(host: &Initiator) -> Vec<u32> {
    host.namespaces().iter().map(|it| it.nsid.0).collect()
}

pub fn source(nqn: &str, source: &str) -> v1::AttachNamespaceRequest {
    v1::AttachNamespaceRequest {
        subsystem_nqn: nqn.to_owned(),
        source: Some(v1::Source {
            kind: Some(v1::source::Kind::Text(source.to_owned())),
        }),
        ..v1::AttachNamespaceRequest::default()
    }
}

pub fn resize(nsid: u32, bytes: u64, force: bool) -> v1::ResizeNamespaceRequest {
    v1::ResizeNamespaceRequest {
        subsystem_nqn: NQN.to_owned(),
        nsid,
        size: Some(Size::Bytes(bytes)),
        force,
        expected_uuid: String::new(),
    }
}

/// Attached, seen, written, grown, gone; and the same after kill -9 and a restart.
#[test]
fn what_is_changed_while_serving_is_seen_by_hosts_and_survives_a_restart() {
    let folder = Folder::new("admin-life");
    let disk = folder.path("disk.raw");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let disk = format!("file:{}", disk.to_str().unwrap());
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &["mem:1MiB", "null:1MiB"]);
    assert_eq!(
        std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let client = Client::connect(&socket);
    let made = client.attach(source(NQN, &disk)).unwrap();
    assert_eq!(
        (made.nsid, made.bytes, made.source_text.as_str()),
        (3, 1 << 20, disk.as_str())
    );
    assert_eq!(made.origin(), v1::Origin::Admin);
    let mut host = target.host(&Options::default());
    assert_eq!(nsids(&host), [1, 2, 3]);
    host.write(3, 4096, &[7; 4096]).unwrap();
    host.flush(3).unwrap();
    let uuid = host.namespace(3).unwrap().ids;

    let call = |request| {
        client.call(async |channel| {
            NamespaceServiceClient::new(channel)
                .resize_namespace(request)
                .await
        })
    };
    let grown = call(resize(3, 2 << 20, false)).unwrap();
    assert_eq!(
        (grown.bytes_before, grown.namespace.unwrap().bytes),
        (1 << 20, 2 << 20)
    );
    let refused = call(resize(3, 1 << 20, false)).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("force it"), "{refused}");
    assert_eq!(
        call(resize(3, 4097, false)).unwrap_err().code(),
        Code::InvalidArgument
    );
    assert_eq!(
        call(resize(1, 2 << 20, false)).unwrap_err().code(),
        Code::FailedPrecondition
    );
    // The connected host writes what there was, a new one what is there now.
    host.write(3, 0, &[8; 4096]).unwrap();
    let mut later = target.host(&Options::default());
    assert_eq!(later.namespace(3).unwrap().bytes(), 2 << 20);
    assert_eq!(later.namespace(3).unwrap().ids, uuid, "the same disk");
    later.write(3, (2 << 20) - 4096, &[9; 4096]).unwrap();
    later.flush(3).unwrap();

    // What the command line made goes, too, and stays away.
    client
        .call(async |channel| {
            let request = v1::DetachNamespaceRequest {
                subsystem_nqn: NQN.to_owned(),
                nsid: 2,
                expected_uuid: String::new(),
            };
            NamespaceServiceClient::new(channel)
                .detach_namespace(request)
                .await
        })
        .unwrap();
    assert_eq!(nsids(&target.host(&Options::default())), [1, 3]);
    target.kill();
    // The socket that it left is replaced.
    let target = start(&arguments, &["mem:1MiB", "null:1MiB"]);
    let mut host = target.host(&Options::default());
    assert_eq!(nsids(&host), [1, 3]);
    assert_eq!(host.namespace(3).unwrap().ids, uuid);
    let mut found = vec![0; 2 << 20];
    host.read(3, 0, &mut found).unwrap();
    assert_eq!((found[0], found[4096], found[(2 << 20) - 1]), (8, 7, 9));
    assert_eq!(target.terminate(), Some(0));
    assert!(!socket.exists(), "an orderly end takes its socket away");
}

/// Subsystems, who may connect, and who sees what.
/// As many connections as there may be, and nothing on them: the operator's command waits until the first of them end.
#[test]
fn clients_that_ask_nothing_do_not_keep_the_operator_out() {
    let folder = Folder::new("silent-clients");
    let (socket, arguments) = with_admin(&folder);
    let _target = start(&arguments, &["mem:1MiB"]);
    let silent: Vec<_> = (0..70)
        .map(|_| std::os::unix::net::UnixStream::connect(&socket).unwrap())
        .collect();
    let client = Client::connect(&socket);
    let asked = client.call(async |channel| {
        let mut client = TargetServiceClient::new(channel);
        let by = std::time::Duration::from_secs(60);
        let answer = tokio::time::timeout(by, client.get_info(v1::GetInfoRequest {})).await;
        answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("nobody let us in")))
    });
    assert_eq!(asked.unwrap().revision, admin_proto::REVISION);
    drop(silent);
}

#[test]
fn hosts_see_and_reach_what_they_may() {
    let folder = Folder::new("admin-hosts");
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &[]);
    let client = Client::connect(&socket);
    let other = "nqn.2026-11.io.example:other";
    let (a, b) = ("nqn.2026-11.io.example:a", "nqn.2026-11.io.example:b");
    client.create_subsystem(other);
    client.attach(source(other, "mem:1MiB")).unwrap();
    let only_a = v1::Visibility {
        to: Some(To::Only(v1::HostList {
            nqns: vec![a.to_owned()],
        })),
    };
    client
        .attach(v1::AttachNamespaceRequest {
            visible_to: Some(only_a),
            ..source(other, "mem:2MiB")
        })
        .unwrap();
    let as_host = |name: &str| Options {
        hostnqn: name.to_owned(),
        ..Options::default()
    };
    let connect = |name| Initiator::connect(&target.address, other, &as_host(name));
    assert!(connect(a).is_err(), "nobody is allowed yet");
    let allow = |names: &[&str]| {
        client.call(async |channel| {
            let request = v1::AllowHostsRequest {
                subsystem_nqn: other.to_owned(),
                host_nqns: names.iter().map(|&name| name.to_owned()).collect(),
                any: false,
            };
            HostServiceClient::new(channel).allow_hosts(request).await
        })
    };
    allow(&[a, b]).unwrap();
    let (of_a, of_b) = (connect(a).unwrap(), connect(b).unwrap());
    assert_eq!((nsids(&of_a), nsids(&of_b)), (vec![1, 2], vec![1]));
    let controllers = client
        .call(async |channel| {
            let request = v1::ListControllersRequest {
                host_nqn: a.to_owned(),
                ..v1::ListControllersRequest::default()
            };
            ControllerServiceClient::new(channel)
                .list_controllers(request)
                .await
        })
        .unwrap()
        .controllers;
    let [controller] = controllers.as_slice() else {
        panic!("one controller of {a}: {controllers:?}")
    };
    assert_eq!(controller.subsystem_nqn, other);
    let denied = client
        .call(async |channel| {
            let request = v1::DenyHostsRequest {
                subsystem_nqn: other.to_owned(),
                host_nqns: vec![a.to_owned()],
                any: false,
            };
            HostServiceClient::new(channel).deny_hosts(request).await
        })
        .unwrap();
    assert_eq!(denied.controllers_ended, 1);
    assert!(connect(a).is_err());
    assert!(connect(b).is_ok());
    let error = allow(&["not-a-name"]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("host_nqns: "), "{error}");
    let error = client.attach(source("nqn.none", "mem:1MiB")).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let error = client.attach(source(other, "/no/such/file")).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    let error = client.attach(source(other, "relative.xio")).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let error = client
        .attach(v1::AttachNamespaceRequest {
            nsid: 1,
            ..source(other, "mem:1MiB")
        })
        .unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    assert_eq!(
        client.namespaces().len(),
        2,
        "a refused request changes nothing"
    );
}

/// A second port is served and told, and goes.
#[test]
fn listeners_and_referrals_come_and_go() {
    let folder = Folder::new("admin-ports");
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&socket);
    let add = |address: &str| {
        client.call(async |channel| {
            let request = v1::AddListenerRequest {
                address: address.to_owned(),
                ..v1::AddListenerRequest::default()
            };
            ListenerServiceClient::new(channel)
                .add_listener(request)
                .await
        })
    };
    let second = add("127.0.0.1:0").unwrap().listener.unwrap();
    assert_eq!(second.port_id, 2);
    assert_eq!(
        add(&second.address).unwrap_err().code(),
        Code::AlreadyExists
    );
    Initiator::connect(&second.address, NQN, &Options::default()).unwrap();
    let records = discover(&target.address, &Options::default()).unwrap();
    assert_eq!(
        records.len(),
        4,
        "the subsystem and the service: {records:?}"
    );
    client
        .call(async |channel| {
            let request = v1::RemoveListenerRequest {
                port_id: 2,
                force: false,
            };
            ListenerServiceClient::new(channel)
                .remove_listener(request)
                .await
        })
        .unwrap();
    assert!(
        TcpStream::connect(&second.address).is_err(),
        "nobody listens there"
    );
    let refer = || {
        client.call(async |channel| {
            let request = v1::AddReferralRequest {
                address: "192.0.2.1:8009".to_owned(),
                ..v1::AddReferralRequest::default()
            };
            ListenerServiceClient::new(channel)
                .add_referral(request)
                .await
        })
    };
    refer().unwrap();
    assert_eq!(refer().unwrap_err().code(), Code::AlreadyExists);
    let records = discover(&target.address, &Options::default()).unwrap();
    assert!(
        records.iter().any(|it| it.address == "192.0.2.1"),
        "{records:?}"
    );
}

/// Told as it happens, again from a number on, and what a host says to the others.
#[test]
fn events_are_streamed_and_replayed() {
    let folder = Folder::new("admin-events");
    let (socket, arguments) = with_admin(&folder);
    let _target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&socket);
    let subscribe = |topics: Vec<v1::Topic>, from_sequence, instance: &str| {
        let request = v1::SubscribeRequest {
            topics: topics.into_iter().map(i32::from).collect(),
            from_sequence,
            instance: instance.to_owned(),
            from_announcement: 0,
        };
        client
            .call(async |channel| EventServiceClient::new(channel).subscribe(request).await)
            .unwrap()
    };
    let next = |stream: &mut tonic::Streaming<v1::SubscribeResponse>| {
        let message = client.runtime.block_on(stream.message());
        message.unwrap().unwrap().message.unwrap()
    };
    let mut stream = subscribe(vec![v1::Topic::Namespace, v1::Topic::Announcement], 0, "");
    let Message::Started(started) = next(&mut stream) else {
        panic!("it begins with `started`")
    };
    client.attach(source(NQN, "mem:2MiB")).unwrap();
    let Message::Event(attached) = next(&mut stream) else {
        panic!("an event")
    };
    let Some(v1::event::Kind::Namespace(namespace)) = &attached.kind else {
        panic!("{attached:?}")
    };
    assert_eq!(
        (namespace.change(), namespace.nsid, namespace.bytes),
        (v1::NamespaceChange::Attached, 2, 2 << 20)
    );
    let publish = |payload: usize| {
        client.call(async |channel| {
            let request = v1::PublishRequest {
                host_nqn: "nqn.host".to_owned(),
                epoch: Some(3),
                position: Some(4),
                payload: vec![1; payload],
                ..v1::PublishRequest::default()
            };
            EventServiceClient::new(channel).publish(request).await
        })
    };
    let sequence = publish(4096).unwrap().sequence;
    assert_eq!(publish(4097).unwrap_err().code(), Code::InvalidArgument);
    let Message::Announcement(said) = next(&mut stream) else {
        panic!("an announcement")
    };
    assert_eq!((said.sequence, sequence), (1, 1));
    assert_eq!(
        (said.epoch, said.position, said.payload.len()),
        (Some(3), Some(4), 4096)
    );
    assert!(!said.verified, "the socket proves no host");
    // Again, from the first on; then as of another start.
    let mut again = subscribe(vec![v1::Topic::Namespace], 1, &started.instance);
    assert!(matches!(next(&mut again), Message::Started(_)));
    assert_eq!(next(&mut again), Message::Event(attached));
    let mut other = subscribe(Vec::new(), 99, "another");
    assert!(matches!(next(&mut other), Message::Started(_)));
    let Message::Gap(gap) = next(&mut other) else {
        panic!("a gap")
    };
    assert_eq!(gap.reason(), v1::GapReason::Restarted);
    let Message::Event(first) = next(&mut other) else {
        panic!("an event")
    };
    assert_eq!(first.sequence, 1);
}

/// What it is, what it counted, what it recorded; and an end that was asked for.
#[test]
fn a_daemon_tells_of_itself_and_ends_when_asked() {
    let folder = Folder::new("admin-target");
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&socket);
    let info = client
        .call(async |channel| {
            TargetServiceClient::new(channel)
                .get_info(v1::GetInfoRequest {})
                .await
        })
        .unwrap();
    assert_eq!(info.instance.len(), 32);
    assert_eq!(info.state_folder, folder.path("state").to_str().unwrap());
    let health = client
        .call(async |channel| {
            TargetServiceClient::new(channel)
                .get_health(v1::GetHealthRequest {})
                .await
        })
        .unwrap();
    assert_eq!(health.state(), v1::HealthState::Serving);
    let mut host = target.host(&Options::default());
    host.write(1, 0, &[1; 8192]).unwrap();
    let stats = client
        .call(async |channel| {
            StatsServiceClient::new(channel)
                .get_stats(v1::GetStatsRequest::default())
                .await
        })
        .unwrap();
    let written: u64 = stats.hosts.iter().map(|row| row.written_bytes).sum();
    assert_eq!(written, 8192, "{:?}", stats.hosts);
    let dump = client
        .call(async |channel| {
            TargetServiceClient::new(channel)
                .dump_recorder(v1::DumpRecorderRequest { last: 0 })
                .await
        })
        .and_then(|mut stream| client.runtime.block_on(stream.message()))
        .unwrap()
        .unwrap();
    assert!(
        dump.events
            .iter()
            .any(|event| event.kind == "host connected"),
        "{dump:?}"
    );
    // A second daemon on the same folder is refused.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_snap-target"))
        .args(["mem:1MiB", "--listen", "127.0.0.1:0", "--state"])
        .arg(folder.path("state"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("is in use by another snap-target"), "{text}");
    client
        .call(async |channel| {
            TargetServiceClient::new(channel)
                .drain(v1::DrainRequest { deadline_ms: 0 })
                .await
        })
        .unwrap();
    assert_eq!(target.wait(), Some(0));
}
