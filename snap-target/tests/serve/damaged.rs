//! A volume that rots while it is served: the operator is told what reads met, and where.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use admin_proto::v1;
use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::target_service_client::TargetServiceClient;
use initiator::Options;
use nvme_spec::Status;

use crate::admin::{Client, source, start, with_admin};
use crate::target::{Folder, NQN, pack, status_of, tokens};

pub fn health(client: &Client) -> v1::GetHealthResponse {
    let asked = client.call(async |channel| {
        TargetServiceClient::new(channel)
            .get_health(v1::GetHealthRequest {})
            .await
    });
    asked.unwrap()
}

#[test]
fn damage_that_reads_meet_is_told_until_the_volume_is_attached_anew() {
    let folder = Folder::new("damaged");
    let path = folder.path("tokens.xvol");
    pack(&path, "u16+lz4", &tokens());
    let (socket, arguments) = with_admin(&folder);
    let target = start(&arguments, &[path.to_str().unwrap()]);
    let client = Client::connect(&socket);
    assert_eq!(client.namespaces()[0].state(), v1::NamespaceState::Ready);
    assert_eq!(health(&client).state(), v1::HealthState::Serving);

    // The payload begins at 32,768 (docs/format.md); this byte is in its first frame.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let flip = || {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 33_000).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], 33_000).unwrap();
    };
    flip();
    let mut host = target.host(&Options::default());
    let mut block = [0; 4096];
    for offset in [4096, 0] {
        let status = status_of(host.read(1, offset, &mut block));
        assert_eq!(status, Status::UNRECOVERED_READ_ERROR.dnr());
    }
    let namespace = client.namespaces().remove(0);
    assert_eq!(namespace.state(), v1::NamespaceState::Degraded);
    let damage = namespace.damage.unwrap();
    assert_eq!((damage.reads, damage.first_lba), (2, Some(1)));
    assert!(
        damage
            .first
            .contains("stream 0, frame 0, at byte 32768 of the volume"),
        "{}",
        damage.first
    );
    let told = health(&client);
    assert_eq!(told.state(), v1::HealthState::Degraded);
    let [problem] = &told.problems[..] else {
        panic!("{told:?}")
    };
    assert_eq!(problem.id, format!("{NQN} nsid 1 damaged"));
    assert_eq!(
        (problem.code(), problem.count),
        (v1::HealthCode::Damaged, 2)
    );
    assert_eq!(problem.since, damage.first_at);
    assert!(problem.text.contains(&damage.first), "{}", problem.text);

    // Brought back, and attached anew.
    flip();
    let detach = v1::DetachNamespaceRequest {
        subsystem_nqn: NQN.to_owned(),
        nsid: 1,
        ..v1::DetachNamespaceRequest::default()
    };
    let detached = client.call(async |channel| {
        NamespaceServiceClient::new(channel)
            .detach_namespace(detach)
            .await
    });
    detached.unwrap();
    let again = client.attach(source(NQN, path.to_str().unwrap())).unwrap();
    assert_eq!(again.state(), v1::NamespaceState::Ready);
    assert_eq!(health(&client).state(), v1::HealthState::Serving);
    host.read(1, 0, &mut block).unwrap();
    assert_eq!(block, tokens()[..4096]);
}
