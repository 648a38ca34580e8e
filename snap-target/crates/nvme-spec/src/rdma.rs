//! NVMe/RDMA (NVM Express RDMA Transport Specification): what the ends tell each other while they connect, and keyed data blocks.

use crate::command::SglId;
use crate::open_enum::{assert_bytes, open_enum};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// RECFMT of all private data here.
pub const RECORD_FORMAT: u16 = 0;

/// Private data of the host's connect request ("RDMA_CM_REQUEST Private Data Format").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectRequest {
    /// RECFMT.
    pub record_format: U16,
    /// QID: which queue the connection is to carry.
    pub qid: U16,
    /// HRQSIZE: receive requests that the host has posted, one-based: responses that may be on their way to it.
    pub hrqsize: U16,
    /// HSQSIZE: entries of the submission queue, zero-based: commands that may be on their way to the controller.
    pub hsqsize_z: U16,
    /// CNTLID, where the host names the controller of an I/O queue already here; 0 otherwise.
    pub cntlid: U16,
    /// Reserved.
    pub reserved_10: [u8; 22],
}
assert_bytes!(ConnectRequest, 32);

/// Private data of the controller's acceptance ("RDMA_CM_ACCEPT Private Data Format").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectAccept {
    /// RECFMT.
    pub record_format: U16,
    /// CRQSIZE: receive requests that the controller has posted.
    pub crqsize: U16,
    /// Reserved.
    pub reserved_4: [u8; 28],
}
assert_bytes!(ConnectAccept, 32);

/// Private data of the controller's refusal ("RDMA_CM_REJECT Private Data Format").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectReject {
    /// RECFMT.
    pub record_format: U16,
    /// STS: see [`RejectStatus`].
    pub status: U16,
}
assert_bytes!(ConnectReject, 4);

open_enum! {
    /// STS of a refusal.
    pub struct RejectStatus(u16) {
        /// Invalid private data length.
        INVALID_LENGTH = 1,
        /// Invalid RECFMT.
        INVALID_RECORD_FORMAT = 2,
        /// Invalid QID.
        INVALID_QID = 3,
        /// Invalid HSQSIZE.
        INVALID_HSQSIZE = 4,
        /// Invalid HRQSIZE.
        INVALID_HRQSIZE = 5,
        /// No resources.
        NO_RESOURCES = 6,
        /// Invalid IRD.
        INVALID_IRD = 7,
        /// Invalid ORD.
        INVALID_ORD = 8,
        /// Invalid CNTLID.
        INVALID_CNTLID = 9,
    }
}

/// Most bytes of a keyed data block: its length has 24 bits.
pub const KEYED_BYTES_MAX: u32 = (1 << 24) - 1;

/// Keyed SGL Data Block descriptor (Base, "Scatter Gather List"): memory of the host, by its remote key.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct KeyedDataBlock {
    /// Where, as the key's memory is addressed.
    pub address: U64,
    length: [u8; 3],
    key: [u8; 4],
    /// See [`SglId`].
    pub id: u8,
}
assert_bytes!(KeyedDataBlock, 16);

impl KeyedDataBlock {
    /// Of so many bytes at this address under this key. `None` where the length has no room for them.
    pub fn new(address: u64, bytes: u32, key: u32, invalidate: bool) -> Option<KeyedDataBlock> {
        let [b0, b1, b2, b3] = bytes.to_le_bytes();
        (b3 == 0).then_some(KeyedDataBlock {
            address: U64::new(address),
            length: [b0, b1, b2],
            key: key.to_le_bytes(),
            id: if invalidate {
                SglId::KEYED_DATA_BLOCK_INVALIDATE.0
            } else {
                SglId::KEYED_DATA_BLOCK.0
            },
        })
    }

    /// Bytes.
    pub fn bytes(&self) -> u32 {
        let [b0, b1, b2] = self.length;
        u32::from_le_bytes([b0, b1, b2, 0])
    }

    /// The remote key.
    pub fn key(&self) -> u32 {
        u32::from_le_bytes(self.key)
    }

    /// Whether the controller is to invalidate the key with its response.
    pub fn invalidates(&self) -> bool {
        self.id == SglId::KEYED_DATA_BLOCK_INVALIDATE.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyed_data_block_is_laid_out_as_the_specification_says() {
        let block = KeyedDataBlock::new(0x0102_0304_0506_0708, 0x0A_0B_0C, 0xD1D2_D3D4, true);
        let block = block.unwrap();
        let expected = [
            8, 7, 6, 5, 4, 3, 2, 1, 0x0C, 0x0B, 0x0A, 0xD4, 0xD3, 0xD2, 0xD1, 0x4F,
        ];
        assert_eq!(block.as_bytes(), expected);
        assert_eq!((block.bytes(), block.key()), (0x0A_0B_0C, 0xD1D2_D3D4));
        assert!(block.invalidates());
        let longest = KeyedDataBlock::new(0, KEYED_BYTES_MAX, 0, false).unwrap();
        assert_eq!(longest.bytes(), KEYED_BYTES_MAX);
        assert_eq!(longest.id, 0x40);
        assert_eq!(KeyedDataBlock::new(0, KEYED_BYTES_MAX + 1, 0, false), None);
    }

    #[test]
    fn a_connect_request_is_laid_out_as_the_specification_says() {
        let request = ConnectRequest {
            record_format: U16::new(RECORD_FORMAT),
            qid: U16::new(0x0102),
            hrqsize: U16::new(128),
            hsqsize_z: U16::new(127),
            cntlid: U16::ZERO,
            reserved_10: [0; 22],
        };
        assert_eq!(request.as_bytes()[..10], [0, 0, 2, 1, 128, 0, 127, 0, 0, 0]);
    }
}
