//! Patterns with wildcards.

/// Whether `pattern` matches the whole of `text`: `*` is any run of bytes, and `any_one`, where it is given, any byte.
///
/// Goes back only to the last `*`, so the time is bounded by the product of the lengths.
#[must_use]
pub fn is_match(pattern: &[u8], text: &[u8], any_one: Option<u8>) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while let Some(byte) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(wanted) if wanted == byte || Some(*wanted) == any_one => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                (p, t) = (star_at + 1, taken + 1);
            }
        }
    }
    let rest = pattern.get(p..).unwrap_or_default();
    rest.iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*", "a", true),
            ("a?", "a", false),
            ("a?", "ab", true),
            ("*.weight", "a.weight.b", false),
            ("*ab*ab", "abxabab", true),
            ("*ab*ab", "abxaba", false),
            ("a.c", "abc", false),
        ] {
            let found = is_match(pattern.as_bytes(), text.as_bytes(), Some(b'?'));
            assert_eq!(found, expected, "{pattern} {text}");
        }
        assert!(!is_match(b"a?", b"ab", None));
        assert!(is_match(b"a?", b"a?", None));
    }
}
