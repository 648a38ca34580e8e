//! Submission queue entries and identifiers, byte by byte.

/// A fabrics command of that type.
#[must_use]
pub fn fabrics(fctype: u8) -> [u8; 64] {
    let mut sqe = [0; 64];
    (sqe[0], sqe[4]) = (0x7F, fctype);
    sqe
}

/// HOSTID of a host of this name: it follows from the name; a host that is named anonymous has none.
#[must_use]
pub fn host_id(host: &str) -> [u8; 16] {
    if host.ends_with(":anonymous") {
        return [0; 16];
    }
    let mut id = [7; 16];
    for (place, byte) in host.bytes().enumerate() {
        id[place % 16] ^= byte.rotate_left(u32::try_from(place / 16).unwrap());
    }
    id
}

/// An entry without identifier and data; CDW10 to CDW12.
#[must_use]
pub fn sqe(opcode: u8, nsid: u32, cdw: [u32; 3]) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
    for (word, place) in cdw.into_iter().zip([40, 44, 48]) {
        sqe[place..place + 4].copy_from_slice(&word.to_le_bytes());
    }
    sqe
}

/// A read or write of namespace 1.
#[must_use]
pub fn range_sqe(opcode: u8, lba: u64, blocks: u16) -> [u8; 64] {
    let mut sqe = [0; 64];
    (sqe[0], sqe[4]) = (opcode, 1);
    sqe[40..48].copy_from_slice(&lba.to_le_bytes());
    sqe[48..50].copy_from_slice(&(blocks - 1).to_le_bytes());
    sqe
}

/// Little-endian.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

/// Little-endian.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
