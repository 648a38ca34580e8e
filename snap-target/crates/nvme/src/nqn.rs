//! NVMe Qualified Names (Base, "NVMe Qualified Names").

use nvme_spec::{DISCOVERY_NQN, NQN_BYTES_MAX, NQN_FIELD_BYTES};
use std::fmt;

/// What names of hosts of functions begin with.
const FUNCTION_HOST: &str = "nqn.2026-11.io.xio:function:";

/// A name of a host or a subsystem: 1 to 223 bytes of UTF-8 without control characters and those that turn the direction of text, which would have a
/// list of hosts show another name; beginning with `nqn.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Box<str>);

/// Why a text is not an NQN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// Longer than 223 bytes, or a field without its terminating zero.
    #[error("an NQN has at most {NQN_BYTES_MAX} bytes and ends with a zero")]
    TooLong,
    /// Not UTF-8, or with control characters.
    #[error(
        "an NQN is UTF-8 without control characters and without those that turn the direction of text (U+202A to U+202E, U+2066 to U+2069): look for one in a \
         name that was pasted"
    )]
    NotText,
    /// Does not begin with `nqn.`.
    #[error("an NQN begins with \"nqn.\", for example nqn.2014-08.org.nvmexpress:uuid:...")]
    Prefix,
}

impl Nqn {
    /// Checks a text.
    pub fn parse(text: &str) -> Result<Nqn, NqnError> {
        if text.len() > NQN_BYTES_MAX {
            return Err(NqnError::TooLong);
        }
        let turns = |c: char| matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
        if text.chars().any(|c| c.is_control() || turns(c)) {
            return Err(NqnError::NotText);
        }
        match text.strip_prefix("nqn.") {
            Some(rest) if !rest.is_empty() => Ok(Nqn(text.into())),
            _ => Err(NqnError::Prefix),
        }
    }

    /// Checks a zero-terminated field of a structure.
    pub fn from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<Nqn, NqnError> {
        let bytes = field.split(|&byte| byte == 0).next().unwrap_or(&[]);
        if bytes.len() > NQN_BYTES_MAX {
            return Err(NqnError::TooLong);
        }
        Nqn::parse(std::str::from_utf8(bytes).map_err(|_| NqnError::NotText)?)
    }

    /// As a zero-terminated field.
    pub fn to_field(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        for (to, from) in field.iter_mut().zip(self.0.bytes()) {
            *to = from;
        }
        field
    }

    /// Of a host that gives no name. The specification wants one; some foreign tools (SPDK's perf) leave it out, and where any host may
    /// connect there is nothing to refuse them by. A list of hosts never contains it.
    pub fn unnamed_host() -> Nqn {
        Nqn("".into())
    }

    /// Of the host at the other end of a PCIe function, which says nothing of itself: it goes by the function's name, `pf0vf1` for example. Of a name that
    /// makes no NQN it is as unnamed as it was.
    pub fn function_host(function: &str) -> Nqn {
        Nqn::parse(&format!("{FUNCTION_HOST}{function}")).unwrap_or_else(|_| Nqn::unnamed_host())
    }

    /// True for names as [`Nqn::function_host`] makes them: no host over a fabric may go by one.
    pub fn is_function_host(&self) -> bool {
        self.0.starts_with(FUNCTION_HOST)
    }

    /// The discovery service's well-known name.
    pub fn discovery() -> Nqn {
        Nqn(DISCOVERY_NQN.into())
    }

    /// True for the discovery service's well-known name.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Base, "NVMe Qualified Names": 223 bytes at most, zero-terminated, UTF-8.
    #[test]
    fn fields_are_checked_before_they_are_names() {
        let mut field = [b'a'; NQN_FIELD_BYTES];
        assert_eq!(Nqn::from_field(&field), Err(NqnError::TooLong));
        field[..4].copy_from_slice(b"nqn.");
        field[223] = 0;
        let longest = Nqn::from_field(&field).unwrap();
        assert_eq!(longest.as_str().len(), 223);
        assert_eq!(&longest.to_field()[..223], &field[..223]);
        field[223] = b'a';
        field[224] = 0;
        assert_eq!(Nqn::from_field(&field), Err(NqnError::TooLong));
        field[5] = 0xFF;
        field[10] = 0;
        assert_eq!(Nqn::from_field(&field), Err(NqnError::NotText));
        assert_eq!(
            Nqn::from_field(&[0; NQN_FIELD_BYTES]),
            Err(NqnError::Prefix)
        );
        assert_eq!(Nqn::parse("nqn."), Err(NqnError::Prefix));
        for refused in [
            '\n', '\u{7F}', '\u{9B}', '\u{202A}', '\u{202E}', '\u{2066}', '\u{2069}',
        ] {
            let text = format!("nqn.a{refused}b");
            assert_eq!(Nqn::parse(&text), Err(NqnError::NotText), "{refused:?}");
        }
        for taken in ['\u{2029}', '\u{202F}', '\u{2065}', '\u{206A}', 'é', '名'] {
            let text = format!("nqn.a{taken}b");
            assert_eq!(Nqn::parse(&text).unwrap().as_str(), text);
        }
        assert_eq!(
            Nqn::from_field(&Nqn::discovery().to_field()).unwrap(),
            Nqn::discovery()
        );
    }
}
