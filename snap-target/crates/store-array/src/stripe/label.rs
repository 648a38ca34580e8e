//! The last whole 4,096 bytes of a member: which stripe it is of, and which of its members.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | `XIOSTRIP` |
//! | 8 | 4 | version, 2 |
//! | 12 | 4 | unit, bytes |
//! | 16 | 16 | the set: a random UUID, the same on all members |
//! | 32 | 2 | this member, zero-based |
//! | 34 | 2 | members |
//! | 36 | 4 | 1 while the labels of this generation are being written, else 0 |
//! | 40 | 8 | whole units of this member before the label |
//! | 48 | 8 | generation: 1 of a stripe that is being made, one more each time that it is opened to be written to |
//! | 4092 | 4 | CRC-32C of all before it |
//!
//! Little-endian; what is not named is zero. Version 1 had zeros from 36 to 40 and from 48 on: it is read as a whole one of generation 1.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

use crate::error::ArrayError;
use crate::limits::LABEL_BYTES;

const MAGIC: &[u8; 8] = b"XIOSTRIP";
const VERSION: u32 = 2;
/// The last generation: some 10^14 openings away from wherever one begins.
const GENERATION_MAX: u64 = 1 << 48;
/// Without a generation.
const VERSION_1: u32 = 1;
const CRC_AT: usize = LABEL_BYTES as usize - 4;

/// Which stripe: a random UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetId(pub [u8; 16]);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The stripe.
    pub set: SetId,
    /// Its unit.
    pub unit_bytes: u32,
    /// Which member, zero-based.
    pub index_z: usize,
    /// How many there are.
    pub members: usize,
    /// Whole units before the label.
    pub units: u64,
    /// Of the stripe.
    pub generation: u64,
    /// All labels of this generation were written: the stripe was served with it.
    pub is_settled: bool,
}

impl Label {
    /// Reads a block; none where it is no label at all.
    pub(crate) fn parse(member: &str, block: &[u8]) -> Result<Option<Label>, ArrayError> {
        if block.get(..8) != Some(MAGIC) {
            return Ok(None);
        }
        let damaged = |why| ArrayError::Damaged {
            member: member.to_owned(),
            why,
        };
        let stored = u32::from_le_bytes(field(block, CRC_AT));
        if block.get(..CRC_AT).map(crc32c) != Some(stored) {
            return Err(damaged("its checksum is another"));
        }
        let version = u32::from_le_bytes(field(block, 8));
        let rest = match version {
            VERSION => [block.get(37..40), block.get(56..CRC_AT)],
            VERSION_1 => [block.get(36..40), block.get(48..CRC_AT)],
            _ => {
                let member = member.to_owned();
                return Err(ArrayError::Version { member, version });
            }
        };
        let rest = rest.into_iter().flatten().flatten();
        let state = u32::from_le_bytes(field(block, 36));
        if state > 1 || rest.copied().any(|byte| byte != 0) {
            return Err(damaged("its reserved bytes are not zeros"));
        }
        let generation = match version {
            VERSION_1 => 1,
            _ => u64::from_le_bytes(field(block, 48)),
        };
        // One more is written, and must be one.
        if generation == 0 || generation > GENERATION_MAX {
            return Err(damaged("its generation is none that is counted to"));
        }
        Ok(Some(Label {
            unit_bytes: u32::from_le_bytes(field(block, 12)),
            set: SetId(field(block, 16)),
            index_z: u16::from_le_bytes(field(block, 32)).into(),
            members: u16::from_le_bytes(field(block, 34)).into(),
            units: u64::from_le_bytes(field(block, 40)),
            generation,
            is_settled: state == 0,
        }))
    }

    /// The block as it is written.
    pub(crate) fn to_block(self) -> Vec<u8> {
        let mut block = vec![0; LABEL_BYTES as usize];
        let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes();
        let fields: [(usize, &[u8]); 9] = [
            (0, MAGIC),
            (8, &VERSION.to_le_bytes()),
            (12, &self.unit_bytes.to_le_bytes()),
            (16, &self.set.0),
            (32, &short(self.index_z)),
            (34, &short(self.members)),
            (36, &u32::from(!self.is_settled).to_le_bytes()),
            (40, &self.units.to_le_bytes()),
            (48, &self.generation.to_le_bytes()),
        ];
        for (at, bytes) in fields {
            block[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let crc = crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Whether it is the label of this place.
    pub(crate) fn check(
        &self,
        member: &str,
        set: SetId,
        index_z: usize,
        members: usize,
        unit_bytes: u32,
    ) -> Result<(), ArrayError> {
        let why = if self.set != set {
            "it is of another stripe than the first".to_owned()
        } else if self.members != members {
            format!(
                "its stripe has {} members, and {members} are named",
                self.members
            )
        } else if self.index_z != index_z {
            format!(
                "it is member {} of its stripe, and stands as number {}",
                self.index_z + 1,
                index_z + 1
            )
        } else if self.unit_bytes != unit_bytes {
            format!(
                "its stripe has units of {} bytes, and {unit_bytes} are asked for",
                self.unit_bytes
            )
        } else {
            return Ok(());
        };
        Err(ArrayError::Mismatch {
            member: member.to_owned(),
            why,
        })
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm has 32 bits.
    u32::try_from(crc_fast::checksum(Crc32Iscsi, bytes)).unwrap_or(0)
}

/// `N` bytes at a place; zeros where the block is too short.
fn field<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(bytes) = block.get(at..at + N) {
        field.copy_from_slice(bytes);
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label {
            set: SetId(*b"0123456789abcdef"),
            unit_bytes: 65536,
            index_z: 2,
            members: 3,
            units: 77,
            generation: 5,
            is_settled: false,
        }
    }

    fn sealed(mut block: Vec<u8>) -> Vec<u8> {
        let crc = crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    #[test]
    fn a_label_is_read_as_it_was_written() {
        for is_settled in [false, true] {
            let label = Label {
                is_settled,
                ..label()
            };
            assert_eq!(Label::parse("a", &label.to_block()), Ok(Some(label)));
        }
        let mut block = label().to_block();
        assert_eq!(
            (block[8], block[36], block[48], block[56]),
            (2, 1, 5, 0),
            "as the table has it"
        );
        for generation in [0, GENERATION_MAX + 1, u64::MAX] {
            block[48..56].copy_from_slice(&generation.to_le_bytes());
            let error = Label::parse("a", &sealed(block.clone())).unwrap_err();
            assert!(error.to_string().contains("its generation"), "{error}");
        }
    }

    /// Of version 1: a whole one of the first generation, and nothing where version 2 has more.
    #[test]
    fn a_label_of_version_1_is_read() {
        let mut block = label().to_block();
        block[8] = 1;
        block[36..40].fill(0);
        block[48..56].fill(0);
        let old = Label {
            generation: 1,
            is_settled: true,
            ..label()
        };
        let block = sealed(block);
        assert_eq!(Label::parse("a", &block), Ok(Some(old)));
        for at in [36, 48, 4000] {
            let mut other = block.clone();
            other[at] = 1;
            let error = Label::parse("a", &sealed(other)).unwrap_err();
            assert!(error.to_string().contains("reserved"), "{at}: {error}");
        }
    }
}
