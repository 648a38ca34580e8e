//! From the URL of a remote namespace to a namespace of ours.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result, bail};
use namespace::{Identity, Namespace};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;
use store::{BlockingStore, SharedStore};
use store_nvme::{Digests, OpenedRemote, Remote, RemoteOptions, RemoteUrl, Transport, discover};
use store_nvme_rdma::RdmaTransport;
use store_nvme_tcp::TcpTransport;
use volume::{Opening, Volume};

/// A remote namespace, served block by block.
///
/// # Errors
/// It cannot be reached, or is not what the URL says.
pub fn of_blocks(nsid: u32, url: &RemoteUrl, lba_bytes: u32, read_only: bool) -> Result<Namespace> {
    let opened = open(url, !read_only)?;
    let identity = identity(url, &opened);
    let block_bytes = opened.namespace.lba_bytes;
    if !read_only && block_bytes > lba_bytes {
        tracing::warn!(
            store = %url,
            "it is served with blocks of {lba_bytes} bytes and has blocks of {block_bytes}: a write of a part of one reads it and writes it back, which undoes what anybody but this daemon writes there meanwhile; serve it with blocks as long (--lba), or from one daemon alone"
        );
    }
    Ok(Namespace::of_store(nsid, opened.store, identity, lba_bytes))
}

/// The volume in a remote namespace, served read-only.
///
/// # Errors
/// As [`of_blocks`]; no volume is there; it maps files, which are not there.
pub fn of_volume(nsid: u32, url: &RemoteUrl) -> Result<Namespace> {
    view_of(nsid, open(url, false)?.store, &url.to_string())
}

/// A remote namespace as a store.
///
/// # Errors
/// As [`of_blocks`].
pub fn store(url: &RemoteUrl, is_writable: bool) -> Result<SharedStore> {
    Ok(open(url, is_writable)?.store)
}

/// The volume in a store that is no file, `name`.
///
/// # Errors
/// As [`of_volume`].
pub fn view_of(nsid: u32, store: SharedStore, name: &str) -> Result<Namespace> {
    let volume =
        read_directory(&store).with_context(|| format!("cannot serve the volume in {name}"))?;
    for notice in volume.notices() {
        tracing::warn!(volume = name, place = %notice.place, why = %notice.why, "the volume is damaged but readable");
    }
    if volume.sources().len() > 1 {
        bail!(
            "the volume in {name} maps files of the machine that it was made on: serve it there, or pack the files (xio pack) in place of mapping them"
        );
    }
    let mut namespace = Namespace::of_view(nsid, volume, vec![store]);
    namespace.name = format!("volume:{name}");
    Ok(namespace)
}

fn read_directory(store: &SharedStore) -> Result<Volume> {
    let mut store = BlockingStore::new(store)?;
    let mut opening = Opening::new(store.bytes());
    let mut buffer = Vec::new();
    while let Some(fetch) = opening.next_fetch() {
        buffer.resize(fetch.len as usize, 0);
        store.read(fetch.offset, &mut buffer)?;
        opening.fetched(fetch.id, &buffer)?;
    }
    Ok(opening.finish()?)
}

fn open(url: &RemoteUrl, is_writable: bool) -> Result<OpenedRemote> {
    let transport: Arc<dyn Transport> = if url.is_rdma() {
        Arc::new(RdmaTransport::of_system().with_context(|| format!("cannot open {url}"))?)
    } else {
        Arc::new(TcpTransport)
    };
    let options = options(url)?;
    let hosts = url.resolve().with_context(|| url.to_string())?;
    let addresses = if url.is_discovered {
        discovered(&transport, &hosts, url, &options)?
    } else {
        hosts
    };
    let remote = Remote {
        name: url.to_string(),
        subnqn: url.subnqn.as_str().to_owned(),
        addresses,
        transport,
        options,
        is_writable,
    };
    Ok(store_nvme::open(remote)?)
}

/// What the first discovery service that can be asked says of the paths.
fn discovered(
    transport: &Arc<dyn Transport>,
    services: &[SocketAddr],
    url: &RemoteUrl,
    options: &RemoteOptions,
) -> Result<Vec<SocketAddr>> {
    let mut failures = Vec::new();
    for service in services {
        match discover(transport, *service, &url.subnqn, options) {
            Ok(addresses) => {
                tracing::info!(store = %url, %service, ?addresses, "the discovery service knows these paths");
                return Ok(addresses);
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    bail!("{url}: {}", failures.join("; "))
}

/// Which host this daemon is, to all its stores: as the machine's files say, else one that is made up once.
fn host() -> Result<(Nqn, [u8; 16])> {
    static MADE_UP: LazyLock<(String, [u8; 16])> = LazyLock::new(host_identity::made_up);
    match host_identity::named(None) {
        Some(named) => Ok(named),
        None => Ok((Nqn::parse(&MADE_UP.0)?, MADE_UP.1)),
    }
}

fn options(url: &RemoteUrl) -> Result<RemoteOptions> {
    let (hostnqn, host_id) = host()?;
    let mut options = RemoteOptions::new(hostnqn, host_id);
    options.nsid = url.nsid.map(Nsid);
    options.policy = url.policy.unwrap_or_default();
    url.times.apply(&mut options);
    if url.is_rdma() {
        (options.header_digest, options.data_digest) = (false, false);
    } else if let Some(digests) = url.digests {
        options.header_digest = digests == Digests::Both;
        options.data_digest = digests != Digests::None;
    }
    Ok(options)
}

/// The same remote namespace is the same disk here, whichever way it is reached.
fn identity(url: &RemoteUrl, opened: &OpenedRemote) -> Identity {
    let ids = &opened.namespace.ids;
    let mut what = Vec::new();
    match (ids.uuid, ids.nguid, ids.eui64) {
        (Some(uuid), ..) => what.extend_from_slice(&uuid.0),
        (None, Some(nguid), _) => what.extend_from_slice(&nguid),
        (None, None, Some(eui64)) => what.extend_from_slice(&eui64),
        (None, None, None) => {
            what.extend_from_slice(url.subnqn.as_str().as_bytes());
            what.extend_from_slice(&opened.namespace.nsid.0.to_le_bytes());
        }
    }
    Identity::of_raw("remote namespace", &what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To a target that counts hosts, or keeps reservations for them, a daemon is one.
    #[test]
    fn all_stores_of_a_daemon_are_of_one_host() {
        let options = |url: &str| {
            let options = options(&url.parse().unwrap()).unwrap();
            (options.hostnqn.to_string(), options.host_id)
        };
        let first = options("nvme+tcp://192.0.2.1/nqn.2026-11.io.xio:a");
        assert_eq!(first, options("nvme+tcp://192.0.2.2/nqn.2026-11.io.xio:b"));
    }
}
