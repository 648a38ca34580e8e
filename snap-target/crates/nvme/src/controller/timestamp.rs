//! Timestamp (Base, "Timestamp" feature): a clock that the host sets and the controller keeps going.

use crate::Time;
use nvme_spec::feature::Timestamp as Wire;
use nvme_spec::{Status, U16, U32};
use zerocopy::{FromBytes, IntoBytes};

/// The clock counts milliseconds modulo 2^48.
const MILLISECONDS_MASK: u64 = (1 << 48) - 1;

/// Origin, bits 3:1 of the attributes.
const ORIGIN_RESET: u8 = 0b000 << 1;
const ORIGIN_SET_FEATURES: u8 = 0b001 << 1;

/// The clock. Synch (bit 0) is always 0: it never stops while the controller lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp {
    /// What it said at `at`.
    milliseconds: u64,
    at: Time,
    origin: u8,
}

impl Timestamp {
    /// As a controller level reset leaves it: from 0 on.
    pub fn reset(now: Time) -> Timestamp {
        Timestamp {
            milliseconds: 0,
            at: now,
            origin: ORIGIN_RESET,
        }
    }

    /// Set Features. The attributes are the controller's own and are not taken.
    pub fn set(data: &[u8], now: Time) -> Result<Timestamp, Status> {
        let (wire, _) =
            Wire::ref_from_prefix(data).map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())?;
        Ok(Timestamp {
            milliseconds: u64::from(wire.milliseconds_high.get()) << 32
                | u64::from(wire.milliseconds_low.get()),
            at: now,
            origin: ORIGIN_SET_FEATURES,
        })
    }

    /// Get Features.
    #[expect(clippy::cast_possible_truncation, reason = "the parts of 48 bits")]
    pub fn get(&self, now: Time) -> Vec<u8> {
        let passed = u64::try_from(now.since(self.at).as_millis()).unwrap_or(u64::MAX);
        let milliseconds = self.milliseconds.wrapping_add(passed) & MILLISECONDS_MASK;
        let wire = Wire {
            milliseconds_low: U32::new(milliseconds as u32),
            milliseconds_high: U16::new((milliseconds >> 32) as u16),
            attributes: self.origin,
            reserved_7: 0,
        };
        wire.as_bytes().to_vec()
    }
}
