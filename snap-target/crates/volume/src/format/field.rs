//! Rules on fields: each helper checks one, and says in its error which field broke it, where, and what was expected.

use std::fmt::Display;

use super::raw::first_nonzero;
use crate::error::{Place, VolumeError};

/// The fields of one on-disk structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    /// Where the structure lies.
    pub(crate) place: Place,
}

impl Fields {
    pub(crate) fn malformed(
        self,
        field: &'static str,
        expected: impl Display,
        found: impl Display,
    ) -> VolumeError {
        VolumeError::Malformed {
            place: self.place,
            field,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    pub(crate) fn unsupported(
        self,
        field: &'static str,
        found: impl Display,
        known: &'static str,
    ) -> VolumeError {
        VolumeError::Unsupported {
            place: self.place,
            field,
            found: found.to_string(),
            known,
        }
    }

    /// `found` must be `expected`.
    pub(crate) fn equal<T: PartialEq + Display>(
        self,
        field: &'static str,
        found: T,
        expected: T,
    ) -> Result<(), VolumeError> {
        if found == expected {
            return Ok(());
        }
        Err(self.malformed(field, expected, found))
    }

    /// `found` must lie in `min..=max`.
    pub(crate) fn within<T: PartialOrd + Display>(
        self,
        field: &'static str,
        found: T,
        min: T,
        max: T,
    ) -> Result<T, VolumeError> {
        if min <= found && found <= max {
            return Ok(found);
        }
        Err(self.malformed(field, format_args!("{min} to {max}"), found))
    }

    /// `found` must be a multiple of `unit`.
    pub(crate) fn multiple(
        self,
        field: &'static str,
        found: u64,
        unit: u64,
    ) -> Result<u64, VolumeError> {
        if found.is_multiple_of(unit) {
            return Ok(found);
        }
        Err(self.malformed(field, format_args!("a multiple of {unit}"), found))
    }

    /// `bytes` must be zeros.
    pub(crate) fn zero(self, field: &'static str, bytes: &[u8]) -> Result<(), VolumeError> {
        match first_nonzero(bytes) {
            None => Ok(()),
            Some(at) => Err(self.malformed(
                field,
                "zeros",
                format_args!("{:#04x} at its byte {at}", bytes[at]),
            )),
        }
    }

    /// The sum, or the field that makes it overflow.
    pub(crate) fn sum(self, field: &'static str, a: u64, b: u64) -> Result<u64, VolumeError> {
        a.checked_add(b)
            .ok_or_else(|| self.malformed(field, format_args!("a sum with {a} below 2^64"), b))
    }
}
