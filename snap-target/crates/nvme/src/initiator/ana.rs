//! Asymmetric Namespace Access: how well each group of namespaces is reached through this controller (Base, "Asymmetric Namespace Access
//! Reporting").

use std::fmt;

use nvme_spec::log::{AnaGroup, AnaLogHeader};
use zerocopy::FromBytes;

use super::InitiatorError;

/// The most groups of a controller whose states we hold.
pub const ANA_GROUPS_MAX: u32 = 128;
/// Bytes of a log with so many groups and without their namespaces (RGO).
#[expect(clippy::cast_possible_truncation, reason = "4112")]
pub const ANA_LOG_BYTES_MAX: u32 =
    (size_of::<AnaLogHeader>() + ANA_GROUPS_MAX as usize * size_of::<AnaGroup>()) as u32;

/// How a namespace is reached through a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnaState {
    /// As well as it can be; also where a controller does not report.
    Optimized,
    /// Correctly, and worse than through another controller.
    NonOptimized,
    /// Not at the moment.
    Inaccessible,
    /// Never again through this controller.
    PersistentLoss,
    /// The state is changing.
    Change,
}

impl AnaState {
    fn of_wire(state: u8) -> Option<AnaState> {
        Some(match state & 0xF {
            0x1 => AnaState::Optimized,
            0x2 => AnaState::NonOptimized,
            0x3 => AnaState::Inaccessible,
            0x4 => AnaState::PersistentLoss,
            0xF => AnaState::Change,
            _ => return None,
        })
    }

    /// Its name in the specification.
    pub fn name(self) -> &'static str {
        match self {
            AnaState::Optimized => "optimized",
            AnaState::NonOptimized => "non-optimized",
            AnaState::Inaccessible => "inaccessible",
            AnaState::PersistentLoss => "persistently lost",
            AnaState::Change => "changing",
        }
    }

    /// Whether commands may be sent.
    pub fn is_usable(self) -> bool {
        matches!(self, AnaState::Optimized | AnaState::NonOptimized)
    }
}

impl fmt::Display for AnaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The state of group `wanted` in an ANA log that was read with RGO; `None` where the log does not have it.
///
/// # Errors
/// A log that cannot be true.
pub fn parse_group(log: &[u8], wanted: u32) -> Result<Option<AnaState>, InitiatorError> {
    let malformed = |what, found, expected| InitiatorError::Malformed {
        what,
        found,
        expected,
    };
    let (header, mut rest) = AnaLogHeader::ref_from_prefix(log)
        .map_err(|_| malformed("ANA log", log.len() as u64, "at least 16 bytes"))?;
    let groups = header.groups.get();
    if u32::from(groups) > ANA_GROUPS_MAX {
        return Err(InitiatorError::TooMany {
            what: "ANA groups",
            found: groups.into(),
            limit: ANA_GROUPS_MAX.into(),
        });
    }
    let mut found = None;
    for _ in 0..groups {
        let Ok((group, after)) = AnaGroup::ref_from_prefix(rest) else {
            let expected = "as many groups as its header says";
            return Err(malformed("ANA log", log.len() as u64, expected));
        };
        if group.namespaces.get() != 0 {
            let found = u64::from(group.namespaces.get());
            let expected = "0: the log was asked for without namespaces (RGO)";
            return Err(malformed("NNV of an ANA group", found, expected));
        }
        if group.group_id.get() == wanted {
            let state = AnaState::of_wire(group.state);
            let expected = "1, 2, 3, 4 or 15";
            found = Some(state.ok_or(malformed("ANA state", group.state.into(), expected))?);
        }
        rest = after;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(groups: &[(u32, u8)]) -> Vec<u8> {
        let mut log = vec![0; 16];
        log[8] = u8::try_from(groups.len()).unwrap();
        for (id, state) in groups {
            let mut group = [0; 32];
            group[..4].copy_from_slice(&id.to_le_bytes());
            group[16] = *state;
            log.extend(group);
        }
        log
    }

    #[test]
    fn a_group_is_found_by_its_identifier() {
        let log = log(&[(7, 1), (9, 0xF), (2, 3)]);
        assert_eq!(parse_group(&log, 9), Ok(Some(AnaState::Change)));
        assert_eq!(parse_group(&log, 2), Ok(Some(AnaState::Inaccessible)));
        assert_eq!(parse_group(&log, 3), Ok(None));
    }

    #[test]
    fn a_log_that_lies_is_refused() {
        assert!(parse_group(&[0; 15], 1).is_err());
        assert!(parse_group(&log(&[(1, 1), (2, 2)])[..79], 1).is_err());
        assert!(parse_group(&log(&[(1, 6)]), 1).is_err());
        let mut with_namespaces = log(&[(1, 1)]);
        with_namespaces[20] = 1;
        assert!(parse_group(&with_namespaces, 1).is_err());
        let mut many = log(&[]);
        many[8] = 129;
        assert!(matches!(
            parse_group(&many, 1),
            Err(InitiatorError::TooMany { found: 129, .. })
        ));
    }
}
