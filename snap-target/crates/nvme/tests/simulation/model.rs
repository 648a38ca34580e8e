//! What a disk must hold, from nothing but what the host was told.

use nvme_spec::Lba;

/// One block: what it holds, and what it may hold since a write's outcome is unknown.
#[derive(Clone, Debug, Default)]
struct Block {
    version: u64,
    unknown: Vec<u64>,
    busy: bool,
}

/// The oracle of one disk. A block's content follows from its version; version 0 is zeros.
#[derive(Debug)]
pub struct Model {
    lba_bytes: usize,
    blocks: Vec<Block>,
    last_version: u64,
}

impl Model {
    pub fn new(blocks: usize, lba_bytes: usize) -> Model {
        Model {
            lba_bytes,
            blocks: vec![Block::default(); blocks],
            last_version: 0,
        }
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Claims blocks for one command; false where another has one of them.
    pub fn claim(&mut self, lba: Lba, count: u32) -> bool {
        let blocks = self.range(lba, count);
        if blocks.iter().any(|block| block.busy) {
            return false;
        }
        blocks.iter_mut().for_each(|block| block.busy = true);
        true
    }

    pub fn release(&mut self, lba: Lba, count: u32) {
        self.range(lba, count)
            .iter_mut()
            .for_each(|block| block.busy = false);
    }

    /// The data of a new write to these blocks, and its version.
    pub fn write(&mut self, lba: Lba, count: u32) -> (u64, Vec<u8>) {
        self.last_version += 1;
        let version = self.last_version;
        let data = (lba.0..lba.0 + u64::from(count))
            .flat_map(|lba| content(version, lba, self.lba_bytes))
            .collect();
        (version, data)
    }

    /// The write was acknowledged.
    pub fn written(&mut self, lba: Lba, count: u32, version: u64) {
        for block in self.range(lba, count) {
            block.version = version;
            block.unknown.clear();
        }
    }

    /// The connection ended before the write was acknowledged: old or new, until a read shows which.
    pub fn lost(&mut self, lba: Lba, count: u32, version: u64) {
        for block in self.range(lba, count) {
            block.unknown.push(version);
        }
    }

    /// Checks what was read, and settles what it shows.
    pub fn check(&mut self, lba: Lba, data: &[u8]) {
        let lba_bytes = self.lba_bytes;
        assert_eq!(data.len() % lba_bytes, 0);
        for (lba, found) in (lba.0..).zip(data.chunks(lba_bytes)) {
            let block = &mut self.blocks[usize::try_from(lba).unwrap()];
            let held = std::iter::once(block.version)
                .chain(block.unknown.iter().copied())
                .find(|&version| content(version, lba, lba_bytes) == found);
            let Some(held) = held else {
                panic!(
                    "block {lba} holds neither version {} nor one of {:?}: {:02x?}...",
                    block.version,
                    block.unknown,
                    &found[..16]
                );
            };
            block.version = held;
            block.unknown.clear();
        }
    }

    fn range(&mut self, lba: Lba, count: u32) -> &mut [Block] {
        let start = usize::try_from(lba.0).unwrap();
        &mut self.blocks[start..start + count as usize]
    }
}

fn content(version: u64, lba: u64, lba_bytes: usize) -> Vec<u8> {
    if version == 0 {
        return vec![0; lba_bytes];
    }
    let mut word =
        version.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ lba.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    let mut bytes = Vec::with_capacity(lba_bytes);
    while bytes.len() < lba_bytes {
        word = word.wrapping_mul(0xD129_0A4A_6E5C_4A35).wrapping_add(1);
        bytes.extend_from_slice(&(word >> 7).to_le_bytes());
    }
    bytes
}
