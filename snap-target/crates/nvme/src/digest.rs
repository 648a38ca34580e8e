//! CRC-32C, the digest of NVMe/TCP headers and data (TCP, "Digests"; RFC 3720 appendix B.4).

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    low_half(crc_fast::checksum(Crc32Iscsi, bytes))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the library returns every width in 64 bits"
)]
fn low_half(crc: u64) -> u32 {
    crc as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4: the vectors every iSCSI and NVMe/TCP digest is checked with.
    #[test]
    fn crc32c_matches_the_rfc_vectors() {
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46DD_794E);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
