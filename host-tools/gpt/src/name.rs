//! Names of partitions: 36 UTF-16 units.

use zerocopy::little_endian::U16;

/// UTF-16 units of a name.
pub const UNITS_MAX: usize = 36;
/// Hexadecimal digits of the digest that a shortened name ends with.
const DIGITS: usize = 8;

/// The name in the table: the same where it fits and is text; otherwise its beginning, `~`, and the first digits of `digest`, which is that of the whole
/// name, so that two long names stay two.
pub(crate) fn shortened(name: &[u8], digest: &[u8]) -> String {
    if let Ok(text) = str::from_utf8(name)
        && text.encode_utf16().count() <= UNITS_MAX
    {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut left = UNITS_MAX - 1 - DIGITS;
    for character in String::from_utf8_lossy(name).chars() {
        if character.len_utf16() > left {
            break;
        }
        left -= character.len_utf16();
        short.push(character);
    }
    short.push('~');
    for byte in digest.iter().take(DIGITS / 2) {
        short.push_str(&format!("{byte:02x}"));
    }
    short
}

/// A name that fits, as its field.
pub(crate) fn units(name: &str) -> [U16; UNITS_MAX] {
    let mut units = [U16::new(0); UNITS_MAX];
    for (unit, value) in units.iter_mut().zip(name.encode_utf16()) {
        *unit = value.into();
    }
    units
}

/// The name in a field, up to its first NUL.
pub(crate) fn of_units(units: &[U16; UNITS_MAX]) -> String {
    let units: Vec<u16> = units
        .iter()
        .map(|unit| unit.get())
        .take_while(|&unit| unit != 0)
        .collect();
    String::from_utf16_lossy(&units)
}
