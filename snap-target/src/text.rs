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

/// The bytes of RFC 9562 text.
pub fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    let digits = std::str::from_utf8(&digits).ok()?;
    let only_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok()?;
    (only_hex && digits.len() == 32).then(|| number.to_be_bytes())
}

/// Two lower-case digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of text that [`hex`] made.
pub fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|it| u8::try_from(it).ok())
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
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
        assert_eq!(super::uuid_bytes(&super::uuid_text(&bytes)), Some(bytes));
        assert_eq!(
            super::uuid_bytes("00112233-4455-6677-8899-aabbccddeef"),
            None
        );
        assert_eq!(
            super::uuid_bytes("+0112233-4455-6677-8899-aabbccddeeff"),
            None
        );
    }
}
