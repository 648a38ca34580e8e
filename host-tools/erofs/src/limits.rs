//! Every limit, in one place. A value beyond one is refused.

/// Bytes of a block: the page size of the hosts, and what every kernel since EROFS exists can mount.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks of a disk, metadata and payload together: block numbers are 32 bits. It is 16 TiB, less one block. (The 48-bit feature would lift
/// it, and kernels before 6.15 would refuse the disk.)
pub const BLOCKS_MAX: u64 = u32::MAX as u64;
/// Files, directories and symbolic links of a tree.
pub const INODES_MAX: usize = 1 << 26;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a symbolic link's target: Linux's PATH_MAX less the NUL.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Bytes of the volume's name; its field ends with a NUL.
pub const VOLUME_NAME_BYTES_MAX: usize = 15;
/// The longest target, or end of a directory, that is put behind its inode instead of into a block of its own. Half a block: what is left free
/// at the end of a block, because the next inode does not fit, is less.
pub const INLINE_BYTES_MAX: usize = BLOCK_BYTES / 2;
/// Directories above each other that a walk goes down: a path of PATH_MAX bytes has no more.
pub const DEPTH_MAX: usize = 2048;

const _: () = assert!(INODES_MAX < u32::MAX as usize);
const _: () = assert!(TARGET_BYTES_MAX < BLOCK_BYTES);
const _: () = assert!(NAME_BYTES_MAX <= u16::MAX as usize);
