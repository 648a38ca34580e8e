//! What an array of f32 must be in f16: worked out with numbers, where the product works with bits.

use std::fmt;

use anyhow::anyhow;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Binary exponent of the smallest normal number, and bits behind the point.
const EXPONENT_MIN: i32 = -14;
const FRACTION_BITS: i32 = 10;
const LARGEST: f64 = 65504.0;

/// What rounding did to an array.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rounding {
    pub elements: u64,
    pub largest_error: f64,
    pub rms_error: f64,
    /// Finite numbers that became infinite.
    pub saturated: u64,
    pub nans: u64,
}

impl Rounding {
    /// As a manifest says it.
    pub fn of_manifest(loss: &Value) -> Option<Rounding> {
        Some(Rounding {
            elements: loss["elements"].as_u64()?,
            largest_error: loss["largest_error"].as_f64()?,
            rms_error: loss["rms_error"].as_f64()?,
            saturated: loss["saturated"].as_u64()?,
            nans: loss["nans"].as_u64()?,
        })
    }

    pub fn to_json(self) -> Value {
        json!({
            "elements": self.elements,
            "largest_error": self.largest_error,
            "rms_error": self.rms_error,
            "saturated": self.saturated,
            "nans": self.nans,
        })
    }

    /// What was measured here against what the manifest says. Sums are made in another order there.
    pub fn check_against(&self, manifest: &Rounding) -> Result<(), Failure> {
        let rms_is_close = (self.rms_error - manifest.rms_error).abs() <= 1e-9 * self.rms_error;
        let same_but_rms = Rounding {
            rms_error: self.rms_error,
            ..*manifest
        };
        if rms_is_close && *self == same_but_rms {
            return Ok(());
        }
        let why = anyhow!("the disk's manifest says {manifest}; measured is {self}");
        Err(Failure::data(why))
    }
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a largest error of {:e} and an RMS error of {:e} in {} values, {} that became infinite, {} NaN",
            self.largest_error, self.rms_error, self.elements, self.saturated, self.nans
        )
    }
}

/// Holds a presented `.npy` against its source. Returns what rounding did, and the first byte that is not as it must be.
pub fn compare(source: &[u8], presented: &[u8]) -> Result<(Rounding, Option<u64>), Failure> {
    let (_, source) = parts(source, "<f4")?;
    let (header, presented) = parts(presented, "<f2")?;
    let (wide, _) = source.as_chunks::<4>();
    let (narrow, _) = presented.as_chunks::<2>();
    if wide.len() != narrow.len() {
        let why = anyhow!("{} values became {}", wide.len(), narrow.len());
        return Err(Failure::data(why));
    }
    let mut rounding = Rounding {
        elements: wide.len() as u64,
        ..Rounding::default()
    };
    let (mut squares, mut finite) = (0.0, 0.0);
    for (index, (wide, narrow)) in wide.iter().zip(narrow).enumerate() {
        let number = f64::from(f32::from_le_bytes(*wide));
        let expected = rounded(number);
        let found = value(u16::from_le_bytes(*narrow));
        if number.is_nan() && found.is_nan() {
            rounding.nans += 1;
            continue;
        }
        if found.to_bits() != expected.to_bits() {
            return Ok((rounding, Some((header + 2 * index) as u64)));
        }
        if number.is_finite() && found.is_infinite() {
            rounding.saturated += 1;
        } else if number.is_finite() {
            let error = (found - number).abs();
            rounding.largest_error = rounding.largest_error.max(error);
            squares += error * error;
            finite += 1.0;
        }
    }
    rounding.rms_error = if finite > 0.0 {
        f64::sqrt(squares / finite)
    } else {
        0.0
    };
    Ok((rounding, None))
}

/// The header of a `.npy` of version 1.0, which must have this type, and the array behind it. The header comes as its length.
fn parts<'a>(file: &'a [u8], descr: &str) -> Result<(usize, &'a [u8]), Failure> {
    let refused = |why: &str| Failure::data(anyhow!("{why}"));
    let rest = file.strip_prefix(b"\x93NUMPY\x01\x00");
    let (bytes, rest) = rest
        .and_then(|rest| rest.split_first_chunk::<2>())
        .ok_or_else(|| refused("it does not begin like a .npy"))?;
    let (header, array) = rest
        .split_at_checked(u16::from_le_bytes(*bytes).into())
        .ok_or_else(|| refused("its header does not end"))?;
    let says = format!("'descr': '{descr}'");
    if !String::from_utf8_lossy(header).contains(&says) {
        return Err(refused(&format!("its header does not say {says}")));
    }
    Ok((file.len() - array.len(), array))
}

/// The nearest number that f16 has, an even one where two are as near.
fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    // f32 has no number so small that f64 would not have it as a normal one.
    let exponent = i32::try_from(number.to_bits() >> 52 & 0x7ff).unwrap_or(0) - 1023;
    let spacing = 2f64.powi(exponent.max(EXPONENT_MIN) - FRACTION_BITS);
    let nearest = (number / spacing).round_ties_even() * spacing;
    if nearest.abs() > LARGEST {
        return f64::INFINITY.copysign(number);
    }
    nearest
}

/// The number that the bits stand for.
fn value(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let magnitude = match i32::from(bits >> 10 & 0x1f) {
        0 => fraction * 2f64.powi(EXPONENT_MIN - FRACTION_BITS),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(exponent - 15 - FRACTION_BITS),
    };
    if bits >> 15 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, array: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        file.extend(header.bytes());
        file.extend(array);
        file
    }

    /// IEEE 754's own examples of its corners.
    #[test]
    fn numbers_become_the_nearest_that_f16_has() {
        for (number, bits) in [
            (0.0, 0x0000),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (1.000_488_281_25, 0x3c00), // halfway: the even one
            (1.001_464_843_75, 0x3c02),
            (65504.0, 0x7bff),
            (65519.0, 0x7bff),
            (65520.0, 0x7c00),
            (-1e30, 0xfc00),
            (6.103_515_625e-5, 0x0400),
            (5.960_464_477_539_063e-8, 0x0001),
            (2.980_232_238_769_531_3e-8, 0x0000),
            (-2.99e-8, 0x8001),
        ] {
            let expected = rounded(number);
            assert_eq!(expected.to_bits(), value(bits).to_bits(), "{number}");
        }
        assert!(value(0x7e00).is_nan());
    }

    #[test]
    fn what_was_lost_is_measured_and_a_wrong_value_is_found() {
        let source = npy("<f4", &[1.0f32, 1.000_366].map(f32::to_le_bytes).concat());
        let presented = |second: u16| npy("<f2", &[0x3c00, second].map(u16::to_le_bytes).concat());
        let (rounding, differs) = compare(&source, &presented(0x3c00)).unwrap();
        assert_eq!(differs, None);
        let error = f64::from(1.000_366f32) - 1.0;
        assert_eq!(rounding.largest_error, error);
        assert_eq!(rounding.rms_error, (error * error / 2.0).sqrt());
        assert_eq!(
            (rounding.elements, rounding.saturated, rounding.nans),
            (2, 0, 0)
        );

        let header = presented(0).len() as u64 - 4;
        let (_, differs) = compare(&source, &presented(0x3c01)).unwrap();
        assert_eq!(differs, Some(header + 2));
        let refused = compare(&source, &source).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "its header does not say 'descr': '<f2'"
        );
    }

    #[test]
    fn another_report_is_refused() {
        let measured = Rounding {
            elements: 10,
            largest_error: 0.5,
            rms_error: 0.25,
            saturated: 0,
            nans: 0,
        };
        assert!(measured.check_against(&measured).is_ok());
        let summed_otherwise = Rounding {
            rms_error: 0.25 + 1e-12,
            ..measured
        };
        assert!(measured.check_against(&summed_otherwise).is_ok());
        for other in [
            Rounding {
                rms_error: 0.25 + 1e-8,
                ..measured
            },
            Rounding {
                largest_error: 0.4,
                ..measured
            },
            Rounding {
                saturated: 1,
                ..measured
            },
            Rounding {
                nans: 1,
                ..measured
            },
            Rounding {
                elements: 9,
                ..measured
            },
        ] {
            assert!(measured.check_against(&other).is_err(), "{other:?}");
        }
    }
}
