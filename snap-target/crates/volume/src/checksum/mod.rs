//! CRC-32C (RFC 3720, B.4), the one checksum of the format.

use crc_fast::{CrcAlgorithm, Digest};

mod front;

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// The CRC-32C of the first `len` of `bytes`, where the others are what will be wanted next: some of them come into the cache meanwhile.
///
/// # Panics
/// When there are fewer.
#[must_use]
pub(crate) fn crc32c_of_front(bytes: &[u8], len: usize) -> u32 {
    front::crc32c(bytes, len)
}

/// The CRC-32C of bytes that come in pieces.
#[derive(Debug, Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC of all that was added.
    #[must_use]
    pub fn value(&self) -> u32 {
        narrow(self.0.finalize())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Crc32c::new()
    }
}

/// crc-fast returns every width in a u64.
#[allow(clippy::cast_possible_truncation)] // the upper half of a 32-bit CRC is zero
fn narrow(crc: u64) -> u32 {
    crc as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value, and the vectors of RFC 3720 B.4.
    #[test]
    fn crc32c_is_the_one_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&up), 0x46DD_794E);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn pieces_give_the_crc_of_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
        for cut in [0, 1, 63, 4096, 5000] {
            let mut crc = Crc32c::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.value(), crc32c(&bytes));
        }
    }
}
