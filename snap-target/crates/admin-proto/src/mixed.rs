//! The text of a mixed namespace's source (`Source.text`): `mixed:PART+PART`, where `++` stands for a `+` inside a part.

/// What stands before the parts.
const MIXED: &str = "mixed:";

/// The parts of a mixed source, as each is written alone; none where the text is of another kind. A part may be empty: it names nothing, then.
#[must_use]
pub fn mixed_parts(text: &str) -> Option<Vec<String>> {
    text.strip_prefix(MIXED).map(parts_of)
}

/// The parts of a text between single `+`, each as it is written alone: `++` is a plus.
#[must_use]
pub fn parts_of(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut left = text.chars().peekable();
    while let Some(c) = left.next() {
        if c == '+' && left.next_if_eq(&'+').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// The text of these parts.
#[must_use]
pub fn mixed_text(parts: impl IntoIterator<Item = String>) -> String {
    format!("{MIXED}{}", joined(parts))
}

/// The text that [`parts_of`] takes apart into these.
#[must_use]
pub fn joined(parts: impl IntoIterator<Item = String>) -> String {
    let parts = parts.into_iter().map(|part| part.replace('+', "++"));
    parts.collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests {
    use super::{mixed_parts, mixed_text};

    #[test]
    fn parts_are_told_apart_and_a_plus_is_written_twice() {
        for (text, parts) in [
            ("mixed:/a.xio+file:/b.raw", &["/a.xio", "file:/b.raw"][..]),
            ("mixed:/a++b.xio+mem:1MiB", &["/a+b.xio", "mem:1MiB"]),
            ("mixed:/a+++/b", &["/a+", "/b"]),
            ("mixed:/a++++b", &["/a++b"]),
            ("mixed:", &[""]),
            ("mixed:/a+", &["/a", ""]),
            ("mixed:mixed:/a+/b", &["mixed:/a", "/b"]),
        ] {
            let found = mixed_parts(text).expect(text);
            assert_eq!(found, parts, "{text}");
            assert_eq!(mixed_text(found), text);
        }
        assert_eq!(mixed_parts("file:/a+b"), None);
        assert_eq!(mixed_parts("/mixed:a+b"), None);
    }
}
