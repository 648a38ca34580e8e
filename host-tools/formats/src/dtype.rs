//! The one table of element types: ours, numpy's, safetensors', torch's, ggml's, Megatron's and MDS's.

use std::fmt;

use transforms::{ElementType, Packing};

use crate::presentation::Change;

/// An element type as files name it. The order is that of safetensors' alignment, by which its writer sorts
/// (safetensors, `Dtype`); the types that safetensors does not have come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names say it; the table has the rest
pub enum Dtype {
    Bool,
    F4,
    F6E2m3,
    F6E3m2,
    U8,
    I8,
    F8E5m2,
    F8E4m3,
    F8E8m0,
    F8E4m3Fnuz,
    F8E5m2Fnuz,
    I16,
    U16,
    F16,
    Bf16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
    C128,
    /// Blocks of 32 numbers with a scale, as GGUF has them: presented only. Tensors of a file that are stored so are passed through.
    Q8_0,
}

/// A row of the table: one type, and what each format calls it. `None`: the format does not have it.
#[derive(Debug)]
pub struct Row {
    /// The type.
    pub dtype: Dtype,
    /// Width in bits; 0 where elements have none of their own.
    pub bits: u64,
    /// The element type that streams and transforms have for it.
    pub element: Option<ElementType>,
    /// `descr` in a `.npy` header, little-endian.
    pub numpy: Option<&'static str>,
    /// `dtype` in a safetensors header.
    pub safetensors: Option<&'static str>,
    /// The name behind `torch.`, as config.json has it.
    pub torch: Option<&'static str>,
    /// `ggml_type` in a GGUF header.
    pub ggml: Option<u32>,
    /// The code in a Megatron index.
    pub megatron: Option<u8>,
    /// The code in an MDS `ndarray` column; its name there is torch's.
    pub mds: Option<u8>,
}

/// Every type, in the order of [`Dtype`].
#[rustfmt::skip]
pub static TABLE: [Row; 24] = {
    use ElementType as E;
    #[expect(clippy::too_many_arguments, reason = "the columns of the table")]
    const fn row(
        dtype: Dtype, bits: u64, element: Option<E>, numpy: Option<&'static str>, safetensors: Option<&'static str>,
        torch: Option<&'static str>, ggml: Option<u32>, megatron: Option<u8>, mds: Option<u8>,
    ) -> Row {
        Row { dtype, bits, element, numpy, safetensors, torch, ggml, megatron, mds }
    }
    const NO: Option<&'static str> = None;
    [
        //  type             bits element        numpy         safetensors         torch                  ggml      Megatron MDS
        row(Dtype::Bool,       8, None,          Some("|b1"),  Some("BOOL"),        Some("bool"),            None,     None,    None),
        row(Dtype::F4,         4, None,          NO,           Some("F4"),          NO,                      None,     None,    None),
        row(Dtype::F6E2m3,     6, None,          NO,           Some("F6_E2M3"),     NO,                      None,     None,    None),
        row(Dtype::F6E3m2,     6, None,          NO,           Some("F6_E3M2"),     NO,                      None,     None,    None),
        row(Dtype::U8,         8, Some(E::U8),   Some("|u1"),  Some("U8"),          Some("uint8"),           None,     Some(1), Some(8)),
        row(Dtype::I8,         8, Some(E::I8),   Some("|i1"),  Some("I8"),          Some("int8"),            Some(24), Some(2), Some(9)),
        row(Dtype::F8E5m2,     8, None,          NO,           Some("F8_E5M2"),     Some("float8_e5m2"),     None,     None,    None),
        row(Dtype::F8E4m3,     8, None,          NO,           Some("F8_E4M3"),     Some("float8_e4m3fn"),   None,     None,    None),
        row(Dtype::F8E8m0,     8, None,          NO,           Some("F8_E8M0"),     Some("float8_e8m0fnu"),  None,     None,    None),
        row(Dtype::F8E4m3Fnuz, 8, None,          NO,           Some("F8_E4M3FNUZ"), Some("float8_e4m3fnuz"), None,     None,    None),
        row(Dtype::F8E5m2Fnuz, 8, None,          NO,           Some("F8_E5M2FNUZ"), Some("float8_e5m2fnuz"), None,     None,    None),
        row(Dtype::I16,       16, Some(E::I16),  Some("<i2"),  Some("I16"),         Some("int16"),           Some(25), Some(3), Some(17)),
        row(Dtype::U16,       16, Some(E::U16),  Some("<u2"),  Some("U16"),         Some("uint16"),          None,     Some(8), Some(16)),
        row(Dtype::F16,       16, Some(E::F16),  Some("<f2"),  Some("F16"),         Some("float16"),         Some(1),  None,    Some(18)),
        row(Dtype::Bf16,      16, Some(E::Bf16), NO,           Some("BF16"),        Some("bfloat16"),        Some(30), None,    None),
        row(Dtype::I32,       32, Some(E::I32),  Some("<i4"),  Some("I32"),         Some("int32"),           Some(26), Some(4), Some(33)),
        row(Dtype::U32,       32, Some(E::U32),  Some("<u4"),  Some("U32"),         Some("uint32"),          None,     None,    Some(32)),
        row(Dtype::F32,       32, Some(E::F32),  Some("<f4"),  Some("F32"),         Some("float32"),         Some(0),  Some(7), Some(34)),
        row(Dtype::C64,       64, None,          Some("<c8"),  Some("C64"),         Some("complex64"),       None,     None,    None),
        row(Dtype::F64,       64, Some(E::F64),  Some("<f8"),  Some("F64"),         Some("float64"),         Some(28), Some(6), Some(66)),
        row(Dtype::I64,       64, Some(E::I64),  Some("<i8"),  Some("I64"),         Some("int64"),           Some(27), Some(5), Some(65)),
        row(Dtype::U64,       64, Some(E::U64),  Some("<u8"),  Some("U64"),         Some("uint64"),          None,     None,    Some(64)),
        row(Dtype::C128,     128, None,          Some("<c16"), NO,                  Some("complex128"),      None,     None,    None),
        row(Dtype::Q8_0,       0, None,          NO,           NO,                  NO,                      Some(8),  None,    None),
    ]
};

/// What a change of type does to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// Nothing: it is the same type.
    Same,
    /// Integers: each value is checked, one that does not fit is an error.
    Checked,
    /// Every value is kept.
    Widened,
    /// Values are rounded to the nearest, and some may become infinite.
    Rounded,
}

impl Dtype {
    /// Its row of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Width in bits.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.row().bits
    }

    /// Bytes of `elements` elements; `None` where they end inside a byte or a block, or are more than 2^64.
    #[must_use]
    pub fn bytes_of(self, elements: u64) -> Option<u64> {
        if self == Dtype::Q8_0 {
            let unit = Packing::Q8_0.unit_elements();
            let blocks = elements.is_multiple_of(unit).then_some(elements / unit)?;
            return blocks.checked_mul(Packing::Q8_0.unit_bytes());
        }
        let bits = u128::from(elements) * u128::from(self.bits());
        bits.is_multiple_of(8)
            .then_some(bits / 8)
            .and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// The element type of streams and transforms; `None` for what is only passed through.
    #[must_use]
    pub fn element(self) -> Option<ElementType> {
        self.row().element
    }

    /// How elements of it are presented; `None` for what is only passed through.
    #[must_use]
    pub fn packing(self) -> Option<Packing> {
        match self {
            Dtype::Q8_0 => Some(Packing::Q8_0),
            dtype => dtype.element().map(Packing::Whole),
        }
    }

    /// The type of what is presented so.
    #[must_use]
    pub fn of(presented: Packing) -> Option<Dtype> {
        match presented {
            Packing::Whole(element) => Some(element.into()),
            Packing::Q8_0 => Some(Dtype::Q8_0),
            Packing::Bits(_) | Packing::Int8 { .. } => None,
        }
    }

    /// The type that `--present-as` calls so.
    ///
    /// # Errors
    /// For a person: which there are.
    pub fn from_presented(name: &str) -> Result<Dtype, String> {
        if name == Packing::Q8_0.to_string() {
            return Ok(Dtype::Q8_0);
        }
        let element: Result<ElementType, _> = name.parse();
        element
            .map(Dtype::from)
            .map_err(|error| format!("{error}, and q8_0, which is blocks of 32"))
    }

    /// The type that a `.npy` header calls `descr`.
    #[must_use]
    pub fn from_numpy(descr: &str) -> Option<Dtype> {
        find(|row| row.numpy == Some(descr))
    }

    /// The type that a safetensors header calls `name`.
    #[must_use]
    pub fn from_safetensors(name: &str) -> Option<Dtype> {
        find(|row| row.safetensors == Some(name))
    }

    /// The type that torch calls `name`, with or without `torch.` before it.
    #[must_use]
    pub fn from_torch(name: &str) -> Option<Dtype> {
        let name = name.strip_prefix("torch.").unwrap_or(name);
        find(|row| row.torch == Some(name))
    }

    /// The type with this `ggml_type`; quantized ones have none.
    #[must_use]
    pub fn from_ggml(code: u32) -> Option<Dtype> {
        find(|row| row.ggml == Some(code) && row.element.is_some())
    }

    /// The type with this code in a Megatron index.
    #[must_use]
    pub fn from_megatron(code: u8) -> Option<Dtype> {
        find(|row| row.megatron == Some(code))
    }

    /// The type with this code in an MDS `ndarray` column.
    #[must_use]
    pub fn from_mds(code: u8) -> Option<Dtype> {
        find(|row| row.mds == Some(code))
    }

    /// The type that an MDS column encoding calls `name`.
    #[must_use]
    pub fn from_mds_name(name: &str) -> Option<Dtype> {
        find(|row| row.mds.is_some() && row.torch == Some(name))
    }

    /// What presenting this type as `presented` does to values, or why it cannot be done.
    ///
    /// # Errors
    /// The reason, for a person.
    pub fn conversion(self, presented: Dtype) -> Result<Conversion, &'static str> {
        if self == presented {
            return Ok(Conversion::Same);
        }
        if presented == Dtype::Q8_0 {
            return match self {
                Dtype::F32 | Dtype::Bf16 | Dtype::F16 => Ok(Conversion::Rounded),
                _ => Err("q8_0 is made of f32, bf16 and f16"),
            };
        }
        let (Some(from), Some(to)) = (self.element(), presented.element()) else {
            return Err("there is no conversion between these");
        };
        match (from.is_integer(), to.is_integer()) {
            (true, true) => Ok(Conversion::Checked),
            (false, false) => floats(from, to),
            _ => Err("integers stay integers, and floats stay floats"),
        }
    }

    /// The change to `presented`; `None` when it is the same type.
    pub(crate) fn change_to(self, presented: Dtype) -> Result<Option<Change>, &'static str> {
        if self.conversion(presented)? == Conversion::Same {
            return Ok(None);
        }
        Ok(self
            .element()
            .zip(presented.packing())
            .map(|(stored, presented)| Change { stored, presented }))
    }
}

fn floats(from: ElementType, to: ElementType) -> Result<Conversion, &'static str> {
    use ElementType::{Bf16, F16, F32, F64};
    match (from, to) {
        (F64, F32 | F16 | Bf16) | (F32, F16 | Bf16) => Ok(Conversion::Rounded),
        (F16 | Bf16, F32 | F64) | (F32, F64) => Ok(Conversion::Widened),
        _ => Err("neither holds the other's values; present f32"),
    }
}

fn find(wanted: impl Fn(&Row) -> bool) -> Option<Dtype> {
    TABLE.iter().find(|row| wanted(row)).map(|row| row.dtype)
}

impl From<ElementType> for Dtype {
    fn from(element: ElementType) -> Dtype {
        match element {
            ElementType::U8 => Dtype::U8,
            ElementType::I8 => Dtype::I8,
            ElementType::U16 => Dtype::U16,
            ElementType::I16 => Dtype::I16,
            ElementType::U32 => Dtype::U32,
            ElementType::I32 => Dtype::I32,
            ElementType::U64 => Dtype::U64,
            ElementType::I64 => Dtype::I64,
            ElementType::F16 => Dtype::F16,
            ElementType::Bf16 => Dtype::Bf16,
            ElementType::F32 => Dtype::F32,
            ElementType::F64 => Dtype::F64,
        }
    }
}

/// Our name where there is one (`bf16`), else safetensors' or torch's.
impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        let name = row
            .element
            .map(ElementType::name)
            .or(row.safetensors)
            .or(row.torch);
        f.pad(name.unwrap_or("q8_0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_stands_where_its_type_is_and_its_names_lead_back() {
        for (index, row) in TABLE.iter().enumerate() {
            let dtype = row.dtype;
            assert_eq!(index, dtype as usize);
            if let Some(element) = row.element {
                assert_eq!(u64::from(element.bits()), row.bits);
                assert_eq!(Dtype::from(element), dtype);
                assert_eq!(dtype.to_string(), element.name());
            }
            let back = [
                row.numpy.map(Dtype::from_numpy),
                row.safetensors.map(Dtype::from_safetensors),
                row.torch.map(Dtype::from_torch),
                row.element.and(row.ggml).map(Dtype::from_ggml),
                row.megatron.map(Dtype::from_megatron),
                row.mds.map(Dtype::from_mds),
                row.mds.and(row.torch).map(Dtype::from_mds_name),
            ];
            assert!(
                back.into_iter().flatten().all(|found| found == Some(dtype)),
                "{dtype:?}"
            );
        }
        assert!(
            ElementType::ALL
                .iter()
                .all(|e| TABLE[Dtype::from(*e) as usize].element == Some(*e))
        );
        assert_eq!(
            Dtype::from_ggml(8),
            None,
            "stored blocks are passed through"
        );
        for dtype in [Dtype::Q8_0, Dtype::Bf16] {
            assert_eq!(dtype.packing().and_then(Dtype::of), Some(dtype));
            assert_eq!(Dtype::from_presented(&dtype.to_string()), Ok(dtype));
        }
        assert_eq!(Dtype::from_torch("torch.bfloat16"), Some(Dtype::Bf16));
        assert_eq!(Dtype::from_mds_name("bfloat16"), None);
    }

    #[test]
    fn conversions_keep_integers_and_floats_apart() {
        use Conversion::{Checked, Rounded, Same, Widened};
        assert_eq!(Dtype::F8E4m3.conversion(Dtype::F8E4m3), Ok(Same));
        assert_eq!(Dtype::U32.conversion(Dtype::I16), Ok(Checked));
        assert_eq!(Dtype::F32.conversion(Dtype::Bf16), Ok(Rounded));
        assert_eq!(Dtype::F16.conversion(Dtype::Q8_0), Ok(Rounded));
        assert_eq!(Dtype::F64.conversion(Dtype::F32), Ok(Rounded));
        assert_eq!(Dtype::Bf16.conversion(Dtype::F32), Ok(Widened));
        for (from, to) in [
            (Dtype::F32, Dtype::I32),
            (Dtype::I32, Dtype::F32),
            (Dtype::Bf16, Dtype::F16),
            (Dtype::Bool, Dtype::U8),
            (Dtype::F32, Dtype::F8E4m3),
            (Dtype::F64, Dtype::Q8_0),
            (Dtype::I32, Dtype::Q8_0),
            (Dtype::Q8_0, Dtype::F32),
        ] {
            assert!(from.conversion(to).is_err(), "{from} as {to}");
        }
    }

    #[test]
    fn elements_that_end_inside_a_byte_have_no_length() {
        assert_eq!(Dtype::F4.bytes_of(4), Some(2));
        assert_eq!(Dtype::F4.bytes_of(3), None);
        assert_eq!(Dtype::F64.bytes_of(u64::MAX), None);
        assert_eq!(Dtype::Q8_0.bytes_of(64), Some(68));
        assert_eq!(Dtype::Q8_0.bytes_of(65), None);
    }
}
