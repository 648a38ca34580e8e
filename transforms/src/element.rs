//! Element types and value ranges: the nouns every transform speaks of.

use std::fmt;
use std::str::FromStr;

use crate::TransformError;
use crate::kernels::q8::{GROUP_BYTES, GROUP_ELEMENTS};

/// The type of one element of a stream. Elements are little-endian on every store and on every wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ElementType {
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Two's complement, 8 bits.
    I8 = 2,
    /// Unsigned, 16 bits.
    U16 = 3,
    /// Two's complement, 16 bits.
    I16 = 4,
    /// Unsigned, 32 bits.
    U32 = 5,
    /// Two's complement, 32 bits.
    I32 = 6,
    /// Unsigned, 64 bits.
    U64 = 7,
    /// Two's complement, 64 bits.
    I64 = 8,
    /// IEEE 754 binary16.
    F16 = 9,
    /// bfloat16: the upper half of a binary32.
    Bf16 = 10,
    /// IEEE 754 binary32.
    F32 = 11,
    /// IEEE 754 binary64.
    F64 = 12,
}

impl ElementType {
    /// Every type, in the order of its code.
    pub const ALL: [ElementType; 12] = [
        ElementType::U8,
        ElementType::I8,
        ElementType::U16,
        ElementType::I16,
        ElementType::U32,
        ElementType::I32,
        ElementType::U64,
        ElementType::I64,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F32,
        ElementType::F64,
    ];

    /// The integer types, in the order of their codes.
    pub const INTEGERS: [ElementType; 8] = [
        ElementType::U8,
        ElementType::I8,
        ElementType::U16,
        ElementType::I16,
        ElementType::U32,
        ElementType::I32,
        ElementType::U64,
        ElementType::I64,
    ];

    /// The floating-point types, in the order of their codes.
    pub const FLOATS: [ElementType; 4] = [
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F32,
        ElementType::F64,
    ];

    /// The number that a volume stores for this type. It never changes; 0 is no type.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The type with this code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<ElementType> {
        ElementType::ALL.into_iter().find(|t| t.code() == code)
    }

    /// Width in bits.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            ElementType::U8 | ElementType::I8 => 8,
            ElementType::U16 | ElementType::I16 | ElementType::F16 | ElementType::Bf16 => 16,
            ElementType::U32 | ElementType::I32 | ElementType::F32 => 32,
            ElementType::U64 | ElementType::I64 | ElementType::F64 => 64,
        }
    }

    /// Width in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        (self.bits() / 8) as usize
    }

    /// Whether the type holds integers.
    #[must_use]
    pub fn is_integer(self) -> bool {
        !matches!(
            self,
            ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64
        )
    }

    /// Whether the type holds negative integers.
    #[must_use]
    pub fn is_signed_integer(self) -> bool {
        matches!(
            self,
            ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64
        )
    }

    /// The integers that the type holds; `None` for floating point.
    #[must_use]
    pub fn range(self) -> Option<ValueRange> {
        if !self.is_integer() {
            return None;
        }
        Some(if self.is_signed_integer() {
            ValueRange {
                min: -(1 << (self.bits() - 1)),
                max: (1 << (self.bits() - 1)) - 1,
            }
        } else {
            ValueRange::of_bits(self.bits())
        })
    }

    /// The name used in chains and on command lines: `u32`, `bf16`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ElementType::U8 => "u8",
            ElementType::I8 => "i8",
            ElementType::U16 => "u16",
            ElementType::I16 => "i16",
            ElementType::U32 => "u32",
            ElementType::I32 => "i32",
            ElementType::U64 => "u64",
            ElementType::I64 => "i64",
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ElementType {
    type Err = TransformError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ElementType::ALL
            .into_iter()
            .find(|t| t.name() == text)
            .ok_or_else(|| TransformError::ElementName { name: text.into() })
    }
}

/// A closed range of integers. 128 bits hold every value of every integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueRange {
    /// The smallest value.
    pub min: i128,
    /// The largest value.
    pub max: i128,
}

impl ValueRange {
    /// The values of an unsigned field of `bits` bits, 0 to 64.
    #[must_use]
    pub fn of_bits(bits: u32) -> ValueRange {
        ValueRange {
            min: 0,
            max: (1i128 << bits.min(64)) - 1,
        }
    }

    /// Whether `value` lies in the range.
    #[must_use]
    pub fn contains(&self, value: i128) -> bool {
        self.min <= value && value <= self.max
    }

    /// Whether every value of `other` lies in this range.
    #[must_use]
    pub fn encloses(&self, other: &ValueRange) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// The values in both; `None` when there are none.
    #[must_use]
    pub fn intersection(&self, other: &ValueRange) -> Option<ValueRange> {
        let range = ValueRange {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
        };
        (range.min <= range.max).then_some(range)
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn union(&self, other: &ValueRange) -> ValueRange {
        ValueRange {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

impl fmt::Display for ValueRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.min, self.max)
    }
}

/// How elements lie, stored or presented: whole little-endian elements of a type, fields of `K` bits, or groups and rows that share a
/// scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// Element `e` is the bytes `[e * size, (e + 1) * size)`, little-endian.
    Whole(ElementType),
    /// Element `e` is the bits `[e * K, (e + 1) * K)`, least significant bit first, K in 1..=32.
    Bits(u32),
    /// Groups of 32 elements, each 34 bytes: their scale as f16, then an i8 for each. A last group that is not full is as long.
    Q8_0,
    /// An i8 for each element, in rows whose scales lie elsewhere.
    Int8 {
        /// Elements of a row.
        row_elements: u32,
    },
}

impl Packing {
    /// Elements of a unit: what is packed together, and begins at a bit of its own.
    #[must_use]
    pub fn unit_elements(self) -> u64 {
        match self {
            Packing::Whole(_) | Packing::Bits(_) | Packing::Int8 { .. } => 1,
            Packing::Q8_0 => GROUP_ELEMENTS as u64,
        }
    }

    /// Bits of a unit.
    #[must_use]
    pub fn unit_bits(self) -> u32 {
        match self {
            Packing::Whole(element) => element.bits(),
            Packing::Bits(bits) => bits,
            #[allow(clippy::cast_possible_truncation)] // 272
            Packing::Q8_0 => 8 * GROUP_BYTES as u32,
            Packing::Int8 { .. } => 8,
        }
    }

    /// Bytes of a unit. Of fields of bits, those that the field may touch when it begins at a byte.
    #[must_use]
    pub fn unit_bytes(self) -> u64 {
        u64::from(self.unit_bits().div_ceil(8))
    }

    /// Bits per element, rounded up where a unit has several.
    #[must_use]
    pub fn bits(self) -> u32 {
        #[allow(clippy::cast_possible_truncation)] // 1 or 32
        self.unit_bits().div_ceil(self.unit_elements() as u32)
    }

    /// Bytes of `elements` elements, whole units: the last byte may be partly used. Saturates.
    #[must_use]
    pub fn bytes_of(self, elements: u64) -> u64 {
        let units = elements.div_ceil(self.unit_elements());
        let bits = u128::from(units) * u128::from(self.unit_bits());
        u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX)
    }

    /// The byte that an element's unit begins in. Saturates.
    #[must_use]
    pub fn byte_of(self, element: u64) -> u64 {
        let unit = element / self.unit_elements();
        let bits = u128::from(unit) * u128::from(self.unit_bits());
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// The integers that the packing holds; `None` for floating point.
    #[must_use]
    pub fn range(self) -> Option<ValueRange> {
        match self {
            Packing::Whole(element) => element.range(),
            Packing::Bits(bits) => Some(ValueRange::of_bits(bits)),
            Packing::Q8_0 | Packing::Int8 { .. } => None,
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packing::Whole(element) => element.fmt(f),
            Packing::Bits(1) => write!(f, "1 bit"),
            Packing::Bits(bits) => write!(f, "{bits} bits"),
            Packing::Q8_0 => f.write_str("q8_0"),
            Packing::Int8 { row_elements } => write!(f, "int8:{row_elements}"),
        }
    }
}
