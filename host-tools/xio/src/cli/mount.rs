//! `xio mount`.

use std::path::PathBuf;

use clap::Args;

use super::Opening;

const MOUNT_HELP: &str = "\
SOURCE is a volume, FOLDER@NAME (see 'xio tag'), or a namespace that is served from a volume. It needs /dev/fuse, and root or the program fusermount3
(package fuse3); in a container without them, 'xio cp' copies the files instead. Of a partition table each partition is a file,
unless the only one is a filesystem. What has neither is one file, named as its view, or namespace-N.

The mount is read-only. What it presents does not change, so Linux keeps in its page cache what was read. It ends with 'fusermount3 -u DIR' (as root also
'umount DIR'), or when the program gets SIGINT (Ctrl-C) or SIGTERM: it unmounts, and what is still open fails from then on. Where it is ended with
kill -9, DIR stays behind and is freed in the same way.

A read that cannot be answered is an I/O error (EIO), and the program says on standard error which file, which bytes and why. A connection that is lost is made again; a
command that is not answered within 30 s counts as lost.

Examples:
  mkdir data && xio mount dataset.xio data
  xio mount 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:dataset?nsid=1' data
  xio mount --background sets@v2 data 2>>mount.log && ls data && fusermount3 -u data";

/// `xio mount`.
#[derive(Debug, Args)]
#[command(after_help = MOUNT_HELP)]
pub struct Mount {
    /// A volume file, or nvme+tcp://HOST:PORT/NQN?nsid=N
    pub source: PathBuf,

    /// An empty folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// Return when the mount is ready, and serve it in the background; its errors go to the same standard error
    #[arg(long)]
    pub background: bool,

    /// Let other users read what modes and owners allow them; without root it needs user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub allow_other: bool,

    /// Seconds for which a connection that cannot be made, or is lost, is tried again, before this ends or reads fail
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub reconnect: u64,

    /// Reads at once: 1 to 64
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,

    #[command(flatten)]
    pub opening: Opening,
}
