//! CRC-32C, the digest of NVMe/TCP headers and data (TCP, "Digests"; RFC 3720 appendix B.4).

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    low_half(crc_fast::checksum(Crc32Iscsi, bytes))
}

/// CRC-32C of bytes that follow others whose CRC-32C is `crc`. The CRC of no bytes is 0.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new_with_init_state(Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    low_half(digest.finalize())
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

    #[test]
    fn appending_at_any_cut_gives_the_crc_of_the_whole() {
        let whole = b"123456789";
        for cut in 0..=whole.len() {
            let (first, second) = whole.split_at(cut);
            assert_eq!(
                crc32c_append(crc32c_append(0, first), second),
                0xE306_9283,
                "cut at {cut}"
            );
        }
    }
}
