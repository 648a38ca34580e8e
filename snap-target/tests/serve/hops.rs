//! Bytes of each hop, from the store to the host: what is counted, against arithmetic and against what the other end counted.

use admin_proto::v1;
use admin_proto::v1::stats_service_client::StatsServiceClient;
use initiator::{Initiator, Options};

use crate::admin::{Client, start, with_admin};
use crate::target::{Folder, NQN, Target, pack, tokens};

/// A host's read: as Linux cuts them.
pub const READ_BYTES: usize = 128 << 10;
/// Whole reads, and whole blocks of what is stored for them whatever the chain.
pub const SOURCE_BYTES: usize = 12 * READ_BYTES;
/// Of NVMe/TCP: a command capsule; the header of a data PDU, with the SUCCESS flag for a response; a data digest.
pub const COMMAND_BYTES: u64 = 72;
pub const DATA_HEADER_BYTES: u64 = 24;
pub const DIGEST_BYTES: u64 = 4;
/// What a queue of a remote store begins with: ICReq and Connect with its data and their digest; ICResp and a response.
const QUEUE_SENT_BYTES: u64 = 128 + COMMAND_BYTES + 1024 + DIGEST_BYTES;
const QUEUE_RECEIVED_BYTES: u64 = 128 + 24;

/// A daemon with an admin service.
pub struct Node {
    pub target: Target,
    client: Client,
    _folder: Folder,
}

impl Node {
    /// Of one reactor, so that a store has one queue; without read-ahead, which goes by measured times.
    pub fn start(folder: &Folder, name: &str, more: &[&str], stores: &[&str]) -> Node {
        let of_node = Folder::new(&format!("{}-{name}", folder.name()));
        let (socket, mut arguments) = with_admin(&of_node);
        arguments.extend(["--reactors", "1", "--prefetch", "off"].map(str::to_owned));
        arguments.extend(more.iter().map(|&it| it.to_owned()));
        let target = start(&arguments, stores);
        let client = Client::connect(&socket);
        Node {
            target,
            client,
            _folder: of_node,
        }
    }

    fn stats(&self) -> v1::StatsSnapshot {
        let request = v1::GetStatsRequest::default();
        let call = async |channel| StatsServiceClient::new(channel).get_stats(request).await;
        self.client.call(call).unwrap()
    }

    pub fn namespace(&self, nsid: u32) -> v1::NamespaceStats {
        let rows = self.stats().namespaces.into_iter();
        rows.into_iter().find(|row| row.nsid == nsid).unwrap()
    }

    /// Of the only host of a namespace; zeros before its first command.
    pub fn host(&self, nsid: u32) -> v1::HostStats {
        let rows = self.stats().hosts.into_iter();
        let mut rows = rows.filter(|row| row.nsid == nsid);
        let row = rows.next().unwrap_or_default();
        assert_eq!(rows.next(), None, "one host");
        row
    }

    pub fn url(&self, nsid: u32) -> String {
        format!("nvme+tcp://{}/{NQN}?nsid={nsid}", self.target.address)
    }

    /// Asks until the numbers of a namespace are so: a send is counted when the kernel says that it has ended, which may be after the answer.
    pub fn namespace_once(
        &self,
        nsid: u32,
        is_so: impl Fn(&v1::NamespaceStats) -> bool,
    ) -> v1::NamespaceStats {
        loop {
            let row = self.namespace(nsid);
            if is_so(&row) {
                return row;
            }
        }
    }

    /// A remote store's queue stands, and nothing else has crossed the network: exactly what connecting it takes.
    pub fn wait_connected(&self, nsid: u32) {
        let row = self.namespace_once(nsid, |row| {
            let wire = row.store_wire.unwrap();
            wire.sent_bytes >= QUEUE_SENT_BYTES && wire.received_bytes >= QUEUE_RECEIVED_BYTES
        });
        let expected = wire(QUEUE_SENT_BYTES, QUEUE_RECEIVED_BYTES);
        assert_eq!(row.store_wire, Some(expected));
    }
}

pub fn wire(sent_bytes: u64, received_bytes: u64) -> v1::WireBytes {
    v1::WireBytes {
        sent_bytes,
        received_bytes,
    }
}

/// What more crossed since.
pub fn since(now: Option<v1::WireBytes>, before: Option<v1::WireBytes>) -> v1::WireBytes {
    let (now, before) = (now.unwrap(), before.unwrap_or_default());
    wire(
        now.sent_bytes - before.sent_bytes,
        now.received_bytes - before.received_bytes,
    )
}

/// Commands that read.
pub fn reads(row: &v1::HostStats) -> u64 {
    let of = row.commands.iter().find(|of| of.kind == "read");
    of.map_or(0, |of| of.count)
}

/// Reads a namespace from end to end, once; the number of commands.
pub fn read_all(host: &mut Initiator, nsid: u32, expected: &[u8]) -> u64 {
    let mut block = vec![0; READ_BYTES];
    for (number, expected) in expected.chunks(READ_BYTES).enumerate() {
        let offset = (number * READ_BYTES) as u64;
        let read = &mut block[..expected.len()];
        host.read(nsid, offset, read).unwrap();
        assert!(read == expected, "namespace {nsid}, byte {offset}");
    }
    expected.len().div_ceil(READ_BYTES) as u64
}

/// A packed volume of this machine, read once, cold.
#[test]
fn a_packed_volume_fetches_half_of_what_it_delivers() {
    let folder = Folder::new("hops-local");
    let source = &tokens()[..SOURCE_BYTES];
    let path = folder.path("tokens.xvol");
    pack(&path, "u16", source);
    let node = Node::start(&folder, "node", &[], &[path.to_str().unwrap()]);
    let mut host = node.target.host(&Options::default());
    let commands = read_all(&mut host, 1, source);
    let row = node.namespace(1);
    let bytes = SOURCE_BYTES as u64;
    assert_eq!((row.stored_bytes, row.delivered_bytes), (bytes / 2, bytes));
    // The checksums of 192 granules are one block, the extents another; each was fetched once.
    assert_eq!(row.table_bytes, 2 * 4096);
    assert_eq!(row.store_wire, Some(wire(0, 0)), "no network");
    let of_host = wire(
        bytes + commands * DATA_HEADER_BYTES,
        commands * COMMAND_BYTES,
    );
    assert_eq!(row.host_wire, Some(of_host));
    assert_eq!(node.host(1).wire, Some(of_host));
}

/// One volume decoded beside the host (packed on the wire), and one at the storage node (expanded on the wire), to the byte: what one daemon says of its
/// store is what the other says of its host.
#[test]
fn what_a_daemon_says_of_its_store_the_other_says_of_its_host() {
    let folder = Folder::new("hops-remote");
    let source = &tokens()[..SOURCE_BYTES];
    let path = folder.path("tokens.xvol");
    pack(&path, "u16", source);
    let (volume, raw) = (path.to_str().unwrap(), format!("file:{}", path.display()));
    let far = Node::start(&folder, "far", &[], &[&raw, volume]);
    let beside = format!("volume:{}", far.url(1));
    let near = Node::start(&folder, "near", &[], &[&beside, &far.url(2)]);
    let mut host = near.target.host(&Options::default());
    for (nsid, packing) in [(1, 2), (2, 1)] {
        near.wait_connected(nsid);
        let opened = far.host(nsid);
        let begun = near.namespace(nsid);
        let commands = read_all(&mut host, nsid, source);
        let there = far.host(nsid);
        let crossed = since(there.wire, opened.wire);
        let here = near.namespace_once(nsid, |row| {
            since(row.store_wire, begun.store_wire).sent_bytes >= crossed.received_bytes
        });
        let bytes = SOURCE_BYTES as u64;
        assert_eq!(
            (here.stored_bytes, here.delivered_bytes),
            (bytes / packing, bytes)
        );
        let payload = here.stored_bytes + here.table_bytes;
        assert_eq!(there.read_bytes - opened.read_bytes, payload);
        let fetches = reads(&there) - reads(&opened);
        let besides = DATA_HEADER_BYTES + DIGEST_BYTES;
        let expected = wire(payload + fetches * besides, fetches * COMMAND_BYTES);
        assert_eq!(crossed, expected, "namespace {nsid}");
        let of_store = since(here.store_wire, begun.store_wire);
        assert_eq!(
            (of_store.received_bytes, of_store.sent_bytes),
            (crossed.sent_bytes, crossed.received_bytes)
        );
        // Toward the host both are the same.
        let of_host = wire(
            bytes + commands * DATA_HEADER_BYTES,
            commands * COMMAND_BYTES,
        );
        assert_eq!(here.host_wire, Some(of_host));
    }
    // The far one has fetched half of what it sent, where it decodes.
    assert_eq!(far.namespace(2).stored_bytes, SOURCE_BYTES as u64 / 2);
}
