//! The command line: a configuration file, or the quick way without one.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, ValueEnum};
use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use reactor::Features;
use store::decorate::Limit;

use crate::config::{
    AdminConfig, Config, FunctionConfig, FunctionDevice, FunctionName, FunctionSocket,
    ListenerConfig, NamespaceConfig, Place, SourceSpec, StartPolicy, SubsystemConfig, TargetConfig,
    Writes, check_prefetch, default_workers, prefetch_default,
};
use crate::guests::GuestConfig;
use crate::limits::{self, FUNCTIONS_MAX};
use crate::locals::{self, LocalConfig};

/// Serves volumes and raw stores as the namespaces of an NVMe/TCP subsystem.
///
/// Each STORE becomes a namespace, in the order given: NSID 1, 2, and so on.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Args {
    /// A volume made by `xio pack` (a path), a raw store: mem:SIZE, null:SIZE, void:SIZE, file:PATH, nvme+tcp://HOST:PORT/SUBNQN; several as one: mixed:PART+PART, stripe:UNIT:STORE+STORE, replicas:STORE+STORE
    ///
    /// A bare path must be a volume; it is served read-only, decoded. `file:PATH` serves a file or block device as it is, byte for byte,
    /// and takes writes where the file can be written. `mem:SIZE` is memory that ends with the daemon, for measuring: a block that is read
    /// while another host writes it may come partly old and partly new. `mixed:PART+PART` is one disk of 2 to 16 of these, one behind another:
    /// what nobody may write of them stays so, the rest takes writes. A + in a path is written ++ there.
    #[arg(value_name = "STORE", required_unless_present_any = ["config", "check_config", "admin", "delete_ublk"], num_args = 1..=limits::NAMESPACES_MAX)]
    pub stores: Vec<String>,

    /// Serve what this file says; docs/snap-target.toml names every key
    #[arg(long, value_name = "FILE", conflicts_with_all = QUICK)]
    pub config: Option<PathBuf>,

    /// Check a configuration file, say what is wrong with it, and end; nothing is opened
    #[arg(long, value_name = "FILE", conflicts_with_all = QUICK, conflicts_with = "config")]
    pub check_config: Option<PathBuf>,

    /// Take changes while serving over a Unix socket at this path (snapctl connects to it)
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,

    /// Keep in this folder what is made while serving, and restore it at start
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Address to listen on, rdma://ADDR:PORT for NVMe/RDMA; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:4420", value_name = "ADDR:PORT")]
    pub listen: Place,

    /// Also be a PCIe NVMe controller for a virtual machine, at a Unix socket of this path; may be given again for more
    ///
    /// The client is QEMU 10.1 or later, with its memory shared:
    /// -object memory-backend-memfd,id=mem,size=1G,share=on -machine memory-backend=mem -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"PATH"}}'
    ///
    /// With ,poll the client may map the doorbells, and they are looked at all the time while its controller is enabled, by the cores of the reactors that have its
    /// queues: SPDK's client needs that, which finds it at the folder of a PATH that ends in /cntrl.
    #[arg(long, value_name = "PATH[,poll]")]
    pub vfio_user: Vec<FunctionSocket>,

    /// Also be a virtio disk of a virtual machine, over vhost-user, at a Unix socket of this path; may be given again for more
    ///
    /// The disk is namespace 1, or N. The client is QEMU, with its memory shared (docs/vhost-user.md):
    /// -object memory-backend-memfd,id=mem,size=1G,share=on -machine memory-backend=mem -chardev socket,id=c,path=PATH,reconnect-ms=300 -device vhost-user-blk-pci,chardev=c
    #[arg(long, value_name = "PATH[,nsid=N]")]
    pub vhost_user_blk: Vec<GuestConfig>,

    /// Also be a block device of this machine, /dev/ublkbN; may be given again for more
    ///
    /// The disk is namespace 1, or that of nsid. It needs root and the driver ublk_drv (docs/ublk.md). It stays, and its requests wait, while the daemon is
    /// started anew; `--delete-ublk N` takes it away.
    #[arg(long, value_name = "N[,nsid=N]")]
    pub ublk: Vec<LocalConfig>,

    /// Delete the block device /dev/ublkbN that an earlier start left, and end
    #[arg(long, value_name = "N", exclusive = true)]
    pub delete_ublk: Option<u32>,

    /// NQN of the subsystem
    #[arg(long, default_value = "nqn.2026-11.io.xio:snap", value_name = "NQN")]
    pub nqn: String,

    /// Reactor threads; each has one io_uring, and a queue stays on one of them for life
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(limits::REACTORS_MAX)))]
    pub reactors: u16,

    /// Threads that decode what takes a reactor too long (zstd, as a rule); 0 = the reactors do it themselves [default: cores less reactors, 1 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=WORKERS_MAX))]
    pub workers: Option<u16>,

    /// Logical block size of raw stores; a volume has its own
    #[arg(long, default_value = "4096", value_name = "BYTES")]
    pub lba: LbaBytes,

    /// Also open what volumes map in this directory; a volume's own directory is always allowed
    #[arg(long, value_name = "DIR")]
    pub allow_sources: Vec<PathBuf>,

    /// Frame and table cache of each reactor, at least 1MiB
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = cache_bytes)]
    pub cache: usize,

    /// What each reactor fetches ahead of the readers of a namespace at most, as they see it; half of its cache at most; `off`: nothing [default: 32MiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::config::prefetch_bytes)]
    pub prefetch: Option<usize>,

    /// Says that nobody changes the raw STOREs meanwhile: they take no writes, and are read ahead as volumes are
    #[arg(long)]
    pub immutable: bool,

    /// Lets the bytes of each STORE pass no faster than so, to see what a slow line does
    ///
    /// RATE[,burst=SIZE][,latency=TIME], for example 200MB/s,latency=2ms: reads and writes pass one behind the other at the rate, and each takes the
    /// latency besides.
    #[arg(long, value_name = "RATE")]
    pub limit: Option<Limit>,

    /// When read data stand for their own completion (the SUCCESS flag of C2HData)
    #[arg(long, default_value = "always", value_name = "WHEN")]
    pub success_flag: SuccessFlag,

    /// io_uring features to do without although the kernel has them, to narrow a problem down; `all` is the level of Linux 5.15
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub without: Vec<Features>,

    /// What to log, as of tracing-subscriber's filters
    ///
    /// `info` unless said otherwise here or in the configuration.
    #[arg(long, env = "SNAP_TARGET_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

/// What a configuration file says instead.
const QUICK: [&str; 18] = [
    "stores",
    "listen",
    "vfio_user",
    "vhost_user_blk",
    "ublk",
    "nqn",
    "reactors",
    "workers",
    "lba",
    "allow_sources",
    "cache",
    "prefetch",
    "immutable",
    "limit",
    "success_flag",
    "without",
    "admin",
    "state",
];

const EXAMPLES: &str = "Examples:
  snap-target --config /etc/xio/snap-target.toml
  snap-target tokens.xio                             one packed dataset, read-only, on 127.0.0.1:4420
  snap-target a.xio b.xio mem:512MiB --listen 0.0.0.0:4420
  snap-target file:disk.raw --lba 512 --reactors 2
  snap-target nvme+tcp://10.0.0.1/nqn.2026-11.io.xio:disk    another machine's namespace (docs/remote.md)
  snap-target tokens.xio --vfio-user /run/xio/vm0    a PCIe disk of a virtual machine besides
  snap-target tokens.xio --vhost-user-blk /run/xio/vm0    a virtio disk of a virtual machine besides
  snap-target tokens.xio --ublk 0                    /dev/ublkb0 of this machine besides
  snap-target mixed:tokens.xio+file:room.raw         the dataset, and room to write behind it, as one disk
  snap-target stripe:new:64KiB:file:/a+file:/b       two blank files as one disk, its bytes spread over them

A host connects with (the address is the target's):
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-11.io.xio:snap

Stop it with SIGINT or SIGTERM.";

/// As clap counts.
const WORKERS_MAX: i64 = limits::WORKERS_MAX as i64;

impl Args {
    /// What to serve: the file's word, or the quick way's.
    pub fn config(&self) -> Result<Config> {
        let mut config = match &self.config {
            Some(file) => Config::load(file)?,
            None => self.quick()?,
        };
        if let Some(log) = &self.log {
            config.target.log.clone_from(log);
        }
        Ok(config)
    }

    /// One subsystem, open to any host, with each STORE as a namespace.
    fn quick(&self) -> Result<Config> {
        let nqn = Nqn::parse(&self.nqn).context("the subsystem's NQN")?;
        let namespaces = self.stores.iter().zip(1..).map(|(text, nsid)| {
            Ok(NamespaceConfig {
                nsid,
                source: SourceSpec::parse(text, self.lba.bytes())?.whole(),
                visibility: Visibility::All,
                writes: Writes::of(false, self.immutable),
                limit: self.limit,
                cut: None,
            })
        });
        Ok(Config {
            target: TargetConfig {
                reactors: self.reactors,
                workers: self
                    .workers
                    .map_or_else(|| default_workers(self.reactors), usize::from),
                cache_bytes: self.cache,
                prefetch_bytes: self.prefetch_bytes()?,
                without: self
                    .without
                    .iter()
                    .fold(Features::NONE, |all, one| all | *one),
                success_flag: self.success_flag.into(),
                allow_sources: self.allow_sources.clone(),
                state: self.state.clone(),
                // Whoever types it sees what is wrong.
                start: StartPolicy::All,
                ..TargetConfig::default()
            },
            listeners: vec![ListenerConfig {
                place: self.listen,
                port_id: 1,
            }],
            functions: self.functions(&nqn)?,
            referrals: Vec::new(),
            subsystems: vec![SubsystemConfig {
                nqn: nqn.clone(),
                serial: None,
                model: None,
                hosts: HostPolicy::Any,
                limits: ControllerLimits::default(),
                namespaces: namespaces.collect::<Result<_>>()?,
            }],
            admin: self
                .admin
                .clone()
                .map(|socket| AdminConfig { socket, tcp: None }),
            metrics: None,
            locals: locals::of_subsystem(&nqn, &self.ublk)?,
        })
    }

    /// pf0, pf1, ...: the controllers first, then the disks.
    fn functions(&self, nqn: &Nqn) -> Result<Vec<FunctionConfig>> {
        let controllers = self.vfio_user.iter();
        let controllers = controllers.map(|it| (&it.path, FunctionDevice::Nvme { poll: it.poll }));
        let disks = self.vhost_user_blk.iter().map(|disk| {
            let device = FunctionDevice::VirtioBlk { nsid: disk.nsid };
            (&disk.socket, device)
        });
        let mut all: Vec<FunctionConfig> = Vec::new();
        for ((socket, device), number) in controllers.chain(disks).zip(0..) {
            if all.len() >= FUNCTIONS_MAX {
                bail!(
                    "more than {FUNCTIONS_MAX} functions of virtual machines; serve the others by another target"
                );
            }
            if all.iter().any(|it| it.socket == *socket) {
                bail!("two functions of virtual machines at {}", socket.display());
            }
            all.push(FunctionConfig {
                name: FunctionName::physical(number),
                socket: socket.clone(),
                subsystem: nqn.clone(),
                device,
            });
        }
        Ok(all)
    }

    fn prefetch_bytes(&self) -> Result<usize> {
        let Some(asked) = self.prefetch else {
            return Ok(prefetch_default(self.cache));
        };
        check_prefetch(asked, self.cache).map_err(|why| anyhow!("--prefetch: {why}"))?;
        Ok(asked)
    }
}

/// Logical block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LbaBytes {
    /// 512 bytes.
    #[value(name = "512")]
    B512,
    /// 4096 bytes.
    #[value(name = "4096")]
    B4096,
}

impl LbaBytes {
    /// In bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// When the last data PDU of a read carries SUCCESS and no response follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SuccessFlag {
    /// On every queue: Linux and SPDK hosts count their commands and do not look at SQHD.
    Always,
    /// On queues whose host disabled SQ flow control: to the letter of the specification.
    WithoutFlowControl,
    /// Never.
    Never,
}

impl From<SuccessFlag> for frontend_nvme_tcp::SuccessFlag {
    fn from(flag: SuccessFlag) -> Self {
        match flag {
            SuccessFlag::Always => Self::Always,
            SuccessFlag::WithoutFlowControl => Self::WithoutFlowControl,
            SuccessFlag::Never => Self::Never,
        }
    }
}

fn cache_bytes(text: &str) -> Result<usize, String> {
    let bytes = store::parse_size(text)?;
    if bytes < limits::CACHE_BYTES_MIN {
        return Err("it must be at least 1MiB".to_owned());
    }
    usize::try_from(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_has_a_mebibyte_at_least() {
        let small = Err("it must be at least 1MiB".to_owned());
        for (text, expected) in [
            ("1MiB", Ok(1 << 20)),
            ("1048575", small.clone()),
            ("5", small),
        ] {
            assert_eq!(cache_bytes(text), expected, "{text}");
            let parsed = Args::try_parse_from(["snap-target", "null:1MiB", "--cache", text]);
            assert_eq!(parsed.is_ok(), expected.is_ok(), "{text}");
        }
        let parsed = Args::try_parse_from(["snap-target", "null:1MiB", "--prefetch", "1023KiB"]);
        let error = parsed.err().map(|it| it.to_string()).unwrap_or_default();
        assert!(error.contains("it must be at least 1MiB"), "{error}");
        for (cache, prefetch, expected) in [
            ("64MiB", None, Ok(32 << 20)),
            ("4MiB", None, Ok(2 << 20)),
            ("4MiB", Some("2MiB"), Ok(2 << 20)),
            ("4MiB", Some("off"), Ok(0)),
            (
                "4MiB",
                Some("2049KiB"),
                Err(
                    "--prefetch: it is at most half of cache, which holds what is fetched until it is read: 2MiB of 4MiB; make cache at least 4098KiB",
                ),
            ),
        ] {
            let mut words = vec!["snap-target", "null:1MiB", "--cache", cache];
            words.extend(prefetch.into_iter().flat_map(|size| ["--prefetch", size]));
            let config = Args::parse_from(words).config();
            let found = config.map(|config| config.target.prefetch_bytes);
            assert_eq!(
                found.map_err(|error| error.to_string()),
                expected.map_err(str::to_owned)
            );
        }
        let parsed = Args::try_parse_from(["snap-target", "null:1MiB", "--listen", "foo"]);
        let error = parsed.err().map(|it| it.to_string()).unwrap_or_default();
        assert!(error.contains("for example 0.0.0.0:4420"), "{error}");
    }
}
