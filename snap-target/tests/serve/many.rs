//! A cluster: more hosts of one subsystem at a time than fit a shell's limit on open files, each with rows of its own.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use admin_proto::v1;
use admin_proto::v1::controller_service_client::ControllerServiceClient;
use admin_proto::v1::stats_service_client::StatsServiceClient;
use initiator::{Initiator, Options};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::admin::Client;
use crate::target::{Folder, NQN, Target};

const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
/// Of each host.
const QUEUES: u16 = 2;
const NAMESPACES: u32 = 2;

/// A daemon with namespaces in memory, its socket, and its metrics' address.
struct Daemon {
    target: Target,
    socket: PathBuf,
    metrics: String,
    _folder: Folder,
}

impl Daemon {
    fn start(name: &str, namespaces: u32, blocks: usize) -> Daemon {
        let folder = Folder::new(name);
        let (file, socket) = (folder.path("t.toml"), folder.path("s"));
        let mut text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\nsocket = \"s\"\n[metrics]\naddress = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n"
        );
        for _ in 0..namespaces {
            let store = format!(
                "[[subsystem.namespace]]\nstore = \"mem:{}\"\n",
                blocks * BLOCK
            );
            text.push_str(&store);
        }
        std::fs::write(&file, text).unwrap();
        let target = Target::start_configured(&file);
        let metrics = target.said("metrics http://").strip_suffix("/metrics");
        let metrics = metrics.unwrap().to_owned();
        Daemon {
            target,
            socket,
            metrics,
            _folder: folder,
        }
    }

    /// A host that lives as long as its connections do.
    fn host(&self, number: usize, queues: u16, keep_alive: Duration) -> Initiator {
        let mut host_id = [0xAB; 16];
        host_id[..8].copy_from_slice(&(number as u64).to_le_bytes());
        self.target.host(&Options {
            hostnqn: nqn(number),
            host_id,
            queues,
            keep_alive,
            ..Options::default()
        })
    }

    fn controllers(&self) -> Vec<v1::Controller> {
        let request = v1::ListControllersRequest::default();
        let answer = Client::connect(&self.socket).call(async |channel| {
            let mut client = ControllerServiceClient::new(channel);
            client = client.max_decoding_message_size(admin_proto::limits::ANSWER_BYTES_MAX);
            client.list_controllers(request).await
        });
        let answer = answer.unwrap();
        assert_eq!(answer.next_page_token, "");
        answer.controllers
    }

    fn stats(&self) -> v1::StatsSnapshot {
        let request = v1::GetStatsRequest::default();
        let answer = Client::connect(&self.socket).call(async |channel| {
            let mut client = StatsServiceClient::new(channel);
            client = client.max_decoding_message_size(admin_proto::limits::ANSWER_BYTES_MAX);
            client.get_stats(request).await
        });
        answer.unwrap()
    }

    /// The page of metrics.
    fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
        answer
    }

    /// Waits until all controllers are gone.
    fn until_nobody(&self) -> Duration {
        let start = Instant::now();
        while !self.controllers().is_empty() {
            assert!(start.elapsed() < PATIENCE);
        }
        start.elapsed()
    }
}

fn nqn(number: usize) -> String {
    format!("nqn.2026-11.io.example:node-{number:04}")
}

/// Room for the sockets of so many hosts, each with an admin queue besides.
fn make_room(hosts: usize, queues: u16) {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let needed = hosts * (usize::from(queues) + 1) + 100;
    assert!(
        most >= needed as u64,
        "this test opens {needed} sockets: ulimit -Hn is {most}"
    );
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}

/// Where a host writes.
fn place_of(number: usize) -> u64 {
    (number * BLOCK) as u64
}

/// What a host writes: its number in each byte pair.
fn block_of(number: usize) -> Vec<u8> {
    u16::try_from(number)
        .unwrap()
        .to_le_bytes()
        .repeat(BLOCK / 2)
}

/// Each of them writes, reads what it wrote, is listed once and counted in rows of its own, and goes.
#[test]
fn a_cluster_of_hosts_is_served_and_counted() {
    const HOSTS: usize = 620;
    make_room(HOSTS, QUEUES);
    let daemon = Daemon::start("cluster", NAMESPACES, HOSTS);
    let mut hosts: Vec<_> = (0..HOSTS)
        .map(|number| daemon.host(number, QUEUES, Duration::ZERO))
        .collect();
    for (number, host) in hosts.iter_mut().enumerate() {
        host.write(1, place_of(number), &block_of(number)).unwrap();
    }
    let mut block = vec![0; BLOCK];
    for (number, host) in hosts.iter_mut().enumerate() {
        host.read(1, place_of(number), &mut block).unwrap();
        assert!(block == block_of(number), "host {number}");
        host.read(2, 0, &mut block).unwrap();
        assert!(block.iter().all(|byte| *byte == 0));
    }
    let listed: BTreeMap<_, _> = daemon
        .controllers()
        .into_iter()
        .map(|it| (it.host_nqn, it.io_queues))
        .collect();
    let expected = (0..HOSTS).map(|number| (nqn(number), u32::from(QUEUES)));
    assert!(listed == expected.collect(), "{} are listed", listed.len());
    let rows = rows_of(&daemon.stats());
    let expected = (0..HOSTS).flat_map(|number| {
        let bytes = BLOCK as u64;
        [
            ((nqn(number), 1), (bytes, bytes)),
            ((nqn(number), 2), (bytes, 0)),
        ]
    });
    assert!(rows == expected.collect(), "{} rows", rows.len());
    let page = daemon.page("/metrics");
    let of_hosts = page
        .lines()
        .filter(|line| line.starts_with("xio_read_bytes_total{") && line.ends_with(" 4096"));
    assert_eq!(of_hosts.count(), HOSTS * NAMESPACES as usize);
    assert!(page.contains(&format!(
        "xio_reactor_connections{{reactor=\"0\"}} {}\n",
        HOSTS * usize::from(QUEUES)
    )));
    drop(hosts);
    daemon.until_nobody();
    assert!(daemon.stats().hosts.iter().all(|row| row.queues == Some(0)));
    assert_eq!(daemon.target.terminate(), Some(0));
}

/// Bytes read and written, by host and namespace.
fn rows_of(stats: &v1::StatsSnapshot) -> BTreeMap<(String, u32), (u64, u64)> {
    let rows = stats.hosts.iter();
    rows.map(|row| {
        assert!(!row.others);
        let bytes = (row.read_bytes, row.written_bytes);
        ((row.host_nqn.clone(), row.nsid), bytes)
    })
    .collect()
}

/// What a thousand hosts cost (docs/operating.md). XIO_HOSTS, XIO_QUEUES and XIO_NAMESPACES say how many there are, XIO_KEEP_ALIVE
/// how many seconds they may be silent.
#[test]
#[ignore = "it measures"]
fn many_hosts_measured() {
    let number = |name: &str, otherwise| {
        let given = std::env::var(name).ok();
        given.map_or(otherwise, |text| text.parse().unwrap())
    };
    let hosts_max = number("XIO_HOSTS", 1024);
    let queues = u16::try_from(number("XIO_QUEUES", 4)).unwrap();
    let namespaces = u32::try_from(number("XIO_NAMESPACES", 1)).unwrap();
    make_room(hosts_max, queues);
    let daemon = Daemon::start("measured", namespaces, 1024);
    // Longer than all that comes before the hosts fall silent.
    let keep_alive = Duration::from_secs(u64::try_from(number("XIO_KEEP_ALIVE", 30)).unwrap());
    println!("started: {}", daemon.target.resident());
    let mut first = daemon.host(0, queues, Duration::ZERO);
    println!("p50 of reads, one host: {:?}", median(&mut first));
    let before = Instant::now();
    let mut hosts: Vec<_> = (1..hosts_max)
        .map(|number| daemon.host(number, queues, keep_alive))
        .collect();
    let took = before.elapsed();
    println!(
        "{} hosts of {queues} I/O queues connected in {took:?}: {}",
        hosts.len(),
        daemon.target.resident()
    );
    println!("p50 of reads, the others idle: {:?}", median(&mut first));
    let before = Instant::now();
    let mut block = vec![0; BLOCK];
    for host in &mut hosts {
        for nsid in 1..=namespaces {
            for _ in 0..queues {
                host.read(nsid, 0, &mut block).unwrap();
            }
        }
    }
    println!(
        "{} reads of each namespace by each host in {:?}: {}",
        queues,
        before.elapsed(),
        daemon.target.resident()
    );
    let before = Instant::now();
    let listed = daemon.controllers().len();
    println!("{listed} controllers listed in {:?}", before.elapsed());
    let before = Instant::now();
    let rows = daemon.stats().hosts.len();
    println!("{rows} rows of stat in {:?}", before.elapsed());
    for path in ["/metrics", "/metrics?latency=none"] {
        let before = Instant::now();
        let page = daemon.page(path);
        let took = before.elapsed();
        println!(
            "{path}: {} bytes in {took:?}, {}",
            page.len(),
            daemon.target.resident()
        );
    }
    let before = Instant::now();
    while daemon.controllers().len() > 1 {
        assert!(before.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    println!(
        "keep alive of all has run out within {:?}",
        before.elapsed()
    );
    println!("p50 of reads, the others gone: {:?}", median(&mut first));
    println!("{}", daemon.target.resident());
}

/// Of 20,000 reads of a block.
fn median(host: &mut Initiator) -> Duration {
    let mut block = vec![0; BLOCK];
    let mut times: Vec<Duration> = (0..20_000_usize)
        .map(|number| {
            let before = Instant::now();
            host.read(1, place_of(number % 1024), &mut block).unwrap();
            before.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}
