//! Namespaces that nobody changes, and namespaces at the end of a slow line: attached while serving, and kept over a restart.

use std::time::{Duration, Instant};

use admin_proto::v1;
use initiator::Options;
use nvme_spec::Status;
use tonic::Code;

use crate::admin::{Client, source, start, with_admin};
use crate::target::{Folder, NQN, Target, status_of, tokens};

/// The one with this number.
fn namespace(client: &Client, nsid: u32) -> v1::Namespace {
    let mut all = client.namespaces().into_iter();
    all.find(|namespace| namespace.nsid == nsid).unwrap()
}

/// Refused a write, and its read took so long at least.
fn check(target: &Target, client: &Client, content: &[u8], latency: Duration) {
    let told = namespace(client, 2);
    assert_eq!(
        (told.immutable, told.limit.as_str()),
        (true, "200MB/s,latency=100ms")
    );
    assert_eq!(told.write_protection(), v1::WriteProtection::ReadOnly);
    let plain = namespace(client, 3);
    assert_eq!((plain.immutable, plain.limit.as_str()), (false, ""));
    assert_eq!(plain.write_protection(), v1::WriteProtection::None);
    let mut host = target.host(&Options::default());
    let refused = status_of(host.write(2, 0, &[7; 4096]));
    assert_eq!(refused, Status::NAMESPACE_WRITE_PROTECTED.dnr());
    let begun = Instant::now();
    let mut found = vec![0; 4096];
    host.read(2, 0, &mut found).unwrap();
    assert!(found == content[..4096]);
    assert!(begun.elapsed() >= latency, "{:?}", begun.elapsed());
}

#[test]
fn what_is_attached_as_immutable_and_limited_is_so_and_stays_so() {
    let folder = Folder::new("immutable");
    let file = |name: &str| {
        let path = folder.path(name);
        std::fs::write(&path, tokens()).unwrap();
        format!("file:{}", path.display())
    };
    let (fixed, open) = (file("fixed.raw"), file("open.raw"));
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &["mem:1MiB"]);
    let client = Client::connect(&socket);
    let attached = client.attach(v1::AttachNamespaceRequest {
        immutable: true,
        limit: "200MB/s,latency=100000us".to_owned(),
        ..source(NQN, &fixed)
    });
    assert_eq!(attached.unwrap().nsid, 2);
    assert_eq!(client.attach(source(NQN, &open)).unwrap().nsid, 3);
    let latency = Duration::from_millis(100);
    check(&target, &client, &tokens(), latency);

    let long = "9".repeat(129);
    for (limit, why) in [
        (
            "200MB",
            "limit: `200MB` does not name a limit: it begins with a rate",
        ),
        (
            "1kB/s",
            "limit: `1kB/s` does not name a limit: the rate is below 1MiB/s",
        ),
        (&long, "limit: 129 bytes"),
    ] {
        let refused = client.attach(v1::AttachNamespaceRequest {
            limit: limit.to_owned(),
            ..source(NQN, "mem:1MiB")
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().starts_with(why), "{refused}");
    }
    target.kill();
    let target = start(&arguments, &["mem:1MiB"]);
    check(&target, &Client::connect(&socket), &tokens(), latency);
}
