//! What the contract promises a client beside the change itself.

use std::collections::BTreeSet;

use admin_proto::v1;
use admin_proto::v1::event::Kind;
use admin_proto::v1::event_service_client::EventServiceClient;
use admin_proto::v1::host_service_client::HostServiceClient;
use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::stats_service_client::StatsServiceClient;
use admin_proto::v1::subscribe_response::Message;
use admin_proto::v1::visibility::To;
use initiator::{Initiator, Options};
use tonic::{Code, Status, Streaming};

use crate::admin::{Client, source, start, with_admin};
use crate::target::{Folder, NQN};

const OTHER: &str = "nqn.2026-11.io.example:other";
const HOST: &str = "nqn.2026-11.io.example:a";

fn list(
    client: &Client,
    page_size: u32,
    token: &str,
) -> Result<v1::ListNamespacesResponse, Status> {
    let request = v1::ListNamespacesRequest {
        page_size,
        page_token: token.to_owned(),
        ..v1::ListNamespacesRequest::default()
    };
    client.call(async |channel| {
        NamespaceServiceClient::new(channel)
            .list_namespaces(request)
            .await
    })
}

fn detach(client: &Client, nsid: u32, uuid: &str) -> Result<v1::DetachNamespaceResponse, Status> {
    let request = v1::DetachNamespaceRequest {
        subsystem_nqn: NQN.to_owned(),
        nsid,
        expected_uuid: uuid.to_owned(),
    };
    client.call(async |channel| {
        NamespaceServiceClient::new(channel)
            .detach_namespace(request)
            .await
    })
}

fn subscribe(client: &Client, request: v1::SubscribeRequest) -> Streaming<v1::SubscribeResponse> {
    client
        .call(async |channel| EventServiceClient::new(channel).subscribe(request).await)
        .unwrap()
}

/// The next event of a stream.
fn event(client: &Client, stream: &mut Streaming<v1::SubscribeResponse>) -> v1::Event {
    loop {
        let message = client.runtime.block_on(stream.message()).unwrap().unwrap();
        if let Some(Message::Event(event)) = message.message {
            return event;
        }
    }
}

fn reason(status: &Status) -> v1::Reason {
    admin_proto::detail_of(status.details()).unwrap().reason()
}

/// A list in pages, then the events behind it: nothing is missed, and nothing told twice.
#[test]
fn a_list_says_where_its_events_go_on() {
    let folder = Folder::new("contract-lists");
    let (socket, arguments) = with_admin(&folder);
    let _target = start(&arguments, &["mem:1MiB", "mem:1MiB", "mem:1MiB"]);
    let client = Client::connect(&socket);
    let first = list(&client, 2, "").unwrap();
    let nsids = |page: &v1::ListNamespacesResponse| -> Vec<u32> {
        page.namespaces.iter().map(|it| it.nsid).collect()
    };
    assert_eq!(nsids(&first), [1, 2]);
    let as_of = first.as_of.unwrap();
    client.attach(source(NQN, "mem:2MiB")).unwrap();
    let second = list(&client, 2, &first.next_page_token).unwrap();
    assert_eq!(nsids(&second), [3, 4]);
    assert_eq!(second.next_page_token, "");
    let own = second.as_of.unwrap().sequence;
    assert!(own > as_of.sequence);
    let mut stream = subscribe(
        &client,
        v1::SubscribeRequest {
            from_sequence: as_of.sequence + 1,
            instance: as_of.instance,
            ..v1::SubscribeRequest::default()
        },
    );
    let told = event(&client, &mut stream);
    let Some(Kind::Namespace(attached)) = &told.kind else {
        panic!("{told:?}")
    };
    assert_eq!(
        (attached.change(), attached.nsid),
        (v1::NamespaceChange::Attached, 4)
    );
    assert_eq!(told.sequence, own);
    // Whose doing it was.
    let uid = nix::unistd::geteuid();
    assert_eq!(told.actor, format!("uid {uid} pid {}", std::process::id()));
    let refused = list(&client, 2, "zz").unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::InvalidArgument, v1::Reason::PageToken)
    );
}

/// What was attached in place of what the command line names is not the command line's; and a source has one line.
#[test]
fn a_disk_says_who_made_it_and_what_it_is() {
    let folder = Folder::new("contract-origin");
    let (socket, arguments) = with_admin(&folder);
    let _target = start(&arguments, &["null:1MiB", "mem:1536KiB"]);
    let client = Client::connect(&socket);
    let resized = v1::ResizeNamespaceRequest {
        subsystem_nqn: NQN.to_owned(),
        nsid: 1,
        size: Some(v1::resize_namespace_request::Size::Bytes(3 << 20)),
        ..v1::ResizeNamespaceRequest::default()
    };
    client
        .call(async |channel| {
            NamespaceServiceClient::new(channel)
                .resize_namespace(resized)
                .await
        })
        .unwrap();
    let made = || -> Vec<(String, v1::Origin)> {
        let all = client.namespaces().into_iter();
        all.map(|it| (it.source_text.clone(), it.origin()))
            .collect()
    };
    let (config, admin) = (v1::Origin::Config, v1::Origin::Admin);
    let row = |text: &str, origin| (text.to_owned(), origin);
    assert_eq!(
        made(),
        [row("null:3MiB", config), row("mem:1536KiB", config)]
    );
    detach(&client, 2, "").unwrap();
    let again = v1::AttachNamespaceRequest {
        nsid: 2,
        ..source(NQN, "mem:1000448")
    };
    client.attach(again).unwrap();
    assert_eq!(made(), [row("null:3MiB", config), row("mem:977KiB", admin)]);
    for text in ["file:/tmp/a\nb", "file:/tmp/a\0b", "/tmp/\u{1b}[31m"] {
        let refused = client.attach(source(NQN, text)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{text:?}: {refused}");
        assert_eq!(refused.message().lines().count(), 1);
    }
    let stats = client
        .call(async |channel| {
            let request = v1::GetStatsRequest::default();
            StatsServiceClient::new(channel).get_stats(request).await
        })
        .unwrap();
    for (subsystem, nsid, reason) in [
        ("nqn.2026-11.io.example:none", 0, v1::Reason::NoSubsystem),
        (NQN, 1000, v1::Reason::NoNamespace),
    ] {
        let filter = v1::StatsFilter {
            subsystem_nqn: subsystem.to_owned(),
            nsid,
            ..v1::StatsFilter::default()
        };
        let request = v1::GetStatsRequest {
            filter: Some(filter),
        };
        let refused = client
            .call(async |channel| StatsServiceClient::new(channel).get_stats(request).await)
            .unwrap_err();
        assert_eq!(self::reason(&refused), reason);
        assert_eq!(refused.code(), Code::NotFound);
    }
    let rows: Vec<_> = stats.namespaces.iter().collect();
    let key = |row: &&v1::NamespaceStats| {
        let disk = (row.namespace_uuid.clone(), row.nsid);
        (row.subsystem_nqn.clone(), disk)
    };
    assert!(rows.is_sorted_by_key(key), "{rows:?}");
}

/// The disk that is meant, and no other one that has its number by now; and each has counters of its own.
#[test]
fn a_disk_is_taken_away_by_its_uuid() {
    let folder = Folder::new("contract-uuid");
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&socket);
    let was = list(&client, 0, "").unwrap().namespaces.remove(0).uuid;
    let mut first = target.host(&Options::default());
    first.write(1, 0, &[1; 4096]).unwrap();
    assert!(!detach(&client, 1, &was).unwrap().closing);
    let is = client.attach(source(NQN, "mem:1MiB")).unwrap();
    assert_eq!(is.nsid, 1);
    let refused = detach(&client, 1, &was).unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::FailedPrecondition, v1::Reason::OtherUuid)
    );
    let refused = detach(&client, 1, "one").unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused)),
        (Code::InvalidArgument, v1::Reason::Field)
    );
    let mut host = target.host(&Options::default());
    host.write(1, 0, &[1; 8192]).unwrap();
    first.read(1, 0, &mut [0; 4096]).unwrap();
    let stats = client
        .call(async |channel| {
            StatsServiceClient::new(channel)
                .get_stats(v1::GetStatsRequest::default())
                .await
        })
        .unwrap();
    // What each host wrote, and its queues that count there now.
    let counted = |uuid: &str| -> BTreeSet<(u64, Option<u32>)> {
        let rows = stats.hosts.iter().filter(|row| row.namespace_uuid == uuid);
        rows.map(|row| (row.written_bytes, row.queues)).collect()
    };
    // Nobody counts on the disk that is gone: its row may be given away.
    assert_eq!(counted(&was), BTreeSet::from([(4096, Some(0))]));
    let both = BTreeSet::from([(0, Some(1)), (8192, Some(1))]);
    assert_eq!(counted(&is.uuid), both);
    assert!(stats.hosts.iter().all(|row| row.row_since.is_some()));
    let disks = stats.namespaces.iter();
    let disks: Vec<_> = disks
        .map(|row| (row.namespace_uuid.as_str(), row.nsid, row.written_bytes))
        .collect();
    assert!(disks.contains(&(&was, 0, 4096)), "{disks:?}");
    assert!(disks.contains(&(&is.uuid, 1, 8192)), "{disks:?}");
    detach(&client, 1, &is.uuid).unwrap();
}

/// Shown to some, used by one, hidden again.
#[test]
fn a_namespace_says_who_uses_it() {
    let folder = Folder::new("contract-users");
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&socket);
    let nobody = v1::Visibility {
        to: Some(To::Only(v1::HostList::default())),
    };
    let hidden = v1::AttachNamespaceRequest {
        visible_to: Some(nobody),
        ..source(NQN, "mem:1MiB")
    };
    client.attach(hidden).unwrap();
    let shown = client
        .call(async |channel| {
            let request = v1::ShowToRequest {
                subsystem_nqn: NQN.to_owned(),
                nsid: 2,
                host_nqns: vec![HOST.to_owned()],
                expected_uuid: String::new(),
            };
            NamespaceServiceClient::new(channel).show_to(request).await
        })
        .unwrap();
    let only = |hosts: &[&str]| {
        let nqns = hosts.iter().map(|host| (*host).to_owned()).collect();
        Some(To::Only(v1::HostList { nqns }))
    };
    assert_eq!(
        shown.namespace.unwrap().visible_to.unwrap().to,
        only(&[HOST])
    );
    let options = Options {
        hostnqn: HOST.to_owned(),
        ..Options::default()
    };
    let mut host = target.host(&options);
    let _other = target.host(&Options::default());
    let used_by = || {
        let request = v1::GetNamespaceRequest {
            subsystem_nqn: NQN.to_owned(),
            nsid: 2,
        };
        let answer = client.call(async |channel| {
            NamespaceServiceClient::new(channel)
                .get_namespace(request)
                .await
        });
        answer.unwrap().hosts
    };
    let [before] = &used_by()[..] else {
        panic!("one host sees it")
    };
    assert_eq!((before.host_nqn.as_str(), before.controllers), (HOST, 1));
    assert_eq!((before.last_io_at, before.registrant), (None, false));
    host.write(2, 0, &[1; 4096]).unwrap();
    assert!(used_by()[0].last_io_at.is_some());
    let hidden = client
        .call(async |channel| {
            let request = v1::HideFromRequest {
                subsystem_nqn: NQN.to_owned(),
                nsid: 2,
                host_nqns: vec![HOST.to_owned(), "nqn.stranger".to_owned()],
                expected_uuid: String::new(),
            };
            NamespaceServiceClient::new(channel)
                .hide_from(request)
                .await
        })
        .unwrap();
    assert_eq!(hidden.not_listed, ["nqn.stranger"]);
    assert_eq!(used_by(), []);
}

/// "My host cannot connect": who, from where, why, and once.
#[test]
fn a_host_that_is_refused_is_an_event() {
    let folder = Folder::new("contract-refused");
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &[]);
    let client = Client::connect(&socket);
    client.create_subsystem(OTHER);
    let mut stream = subscribe(
        &client,
        v1::SubscribeRequest {
            topics: vec![v1::Topic::Host.into()],
            ..v1::SubscribeRequest::default()
        },
    );
    let options = Options {
        hostnqn: HOST.to_owned(),
        ..Options::default()
    };
    for _ in 0..3 {
        assert!(Initiator::connect(&target.address, OTHER, &options).is_err());
    }
    let told = event(&client, &mut stream);
    let Some(Kind::HostRefused(refused)) = &told.kind else {
        panic!("{told:?}")
    };
    assert_eq!(
        (refused.subsystem_nqn.as_str(), refused.host_nqn.as_str()),
        (OTHER, HOST)
    );
    assert_eq!(
        (refused.reason(), refused.times),
        (v1::RefusedReason::NotAllowed, 1)
    );
    assert!(
        refused.peer_address.starts_with("127.0.0.1:"),
        "{refused:?}"
    );
    // Told once: the next event is that it may connect now.
    client
        .call(async |channel| {
            let request = v1::AllowHostsRequest {
                subsystem_nqn: OTHER.to_owned(),
                host_nqns: vec![HOST.to_owned()],
                any: false,
            };
            HostServiceClient::new(channel).allow_hosts(request).await
        })
        .unwrap();
    let told = event(&client, &mut stream);
    let Some(Kind::Host(allowed)) = &told.kind else {
        panic!("{told:?}")
    };
    assert_eq!(
        (allowed.change(), allowed.host_nqn.as_str()),
        (v1::HostChange::Allowed, HOST)
    );
    Initiator::connect(&target.address, OTHER, &options).unwrap();
}
