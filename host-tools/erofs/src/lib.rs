//! A read-only EROFS laid over extents: a disk that any Linux since 5.4 mounts, whose metadata is made here and whose payload is never seen.
//!
//! The caller names what is to be on the disk ([`Tree`]); the [`Layout`] says at which block each file's payload is to be presented, and gives the metadata as a
//! stream of blocks ([`Metadata`]). In a volume the metadata is a stored stream, and each file a run of linear extents.
//!
//! ```
//! use erofs::{Attributes, Label, Time, Tree};
//!
//! let mut tree = Tree::new(Attributes::new(0o755))?;
//! let tokens = tree.add_directory(tree.root(), b"tokens", Attributes::new(0o755))?;
//! tree.add_file(tokens, b"train.bin", 5_000_000, Attributes::new(0o644))?;
//! let label = Label { uuid: [7; 16], built: Time::default(), volume_name: b"o200k".to_vec() };
//! let layout = tree.lay_out(label)?;
//! let metadata: Vec<u8> = layout.metadata().flatten().collect();
//! for place in layout.files() {
//!     println!("{} bytes from block {} on", place.bytes, place.first_block);
//! }
//! # assert_eq!(metadata.len(), 2 * 4096);
//! # assert_eq!(layout.files().next().map(|place| place.first_block), Some(2));
//! # Ok::<(), erofs::ErofsError>(())
//! ```
//!
//! ```text
//!  block 0      1                                                 metadata_blocks                           blocks
//!  +-----------+--------------------------+----------------------+----------+------------+-----+-----------+
//!  | superblock| inodes; short targets and| blocks of directories| file 0   | file 1     | ... | last file |
//!  |           | ends of directories with | and long targets     |          |            |     |           |
//!  |           | them                     |                      |          |            |     |           |
//!  +-----------+--------------------------+----------------------+----------+------------+-----+-----------+
//! ```
//!
//! Contract: blocks of 4 KiB; inodes of 64 bytes; files flat and plain, each from a block on; no extended attributes, no hard links, nothing compressed; the
//! superblock has its checksum. The same tree and [`Label`] give the same bytes. The reader ([`Image`], [`Entries`], [`Walk`]) takes hostile bytes: each field is
//! checked before it is used, memory is bounded, and a walk ends. No I/O: the caller reads blocks for it ([`ReadBlocks`]).
//!
//! What it does not do: 48-bit block numbers (16 TiB is the end, [`limits`]; kernels before 6.15 would refuse more), inode times but the last modification, devices,
//! sockets. A kernel whose pages are larger than 4 KiB mounts the disk from Linux 6.4 on.
//!
//! Crates that were looked at (2026-11), and why this one is here: `erofs-rs` 0.3.0 (MIT or Apache-2.0, October 2026) reads; building images is on its list of what
//! is to come. It is what our tests read with. `composefs` 0.9.4 (MIT or Apache-2.0, October 2026) writes metadata without data, but for overlayfs: files have no blocks
//! (chunk indexes of -1, and the name of the object in an extended attribute), so there is no way to say where payload lies; the image is made in memory as a whole, and the crate
//! brings openssl, tokio and a varlink server with it. `erofs` 0.0.2 is a command line without functions. The specification is erofs-utils' include/erofs_fs.h and Linux's fs/erofs.

#![forbid(unsafe_code)]

mod directory;
mod directory_block;
mod entries;
mod error;
mod find;
mod image;
mod layout;
pub mod limits;
mod metadata;
mod raw;
mod tree;
mod walk;

pub use entries::{Entries, Entry};
pub use error::{ErofsError, Place, shown};
pub use find::Position;
pub use image::{Image, Inode, Kind, Payload, ReadBlocks, Superblock};
pub use layout::{FilePlace, Label, Layout};
pub use metadata::Metadata;
pub use tree::{Attributes, DirectoryId, FileId, Time, Tree};
pub use walk::{Visit, Walk};
