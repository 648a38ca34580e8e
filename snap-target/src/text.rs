//! Identities as text.

/// RFC 9562 text.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let [a, b, c, d, e] = [
        &uuid[..4],
        &uuid[4..6],
        &uuid[6..8],
        &uuid[8..10],
        &uuid[10..],
    ]
    .map(hex);
    format!("{a}-{b}-{c}-{d}-{e}")
}

/// Two lower-case digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_is_printed_in_the_order_of_its_bytes() {
        let bytes: [u8; 16] = std::array::from_fn(|index| u8::try_from(index * 17).unwrap());
        assert_eq!(
            super::uuid_text(&bytes),
            "00112233-4455-6677-8899-aabbccddeeff"
        );
    }
}
