//! A column's encoding, and the arrays of an `ndarray` column.

use super::malformed;
use crate::presentation::Wanted;
use crate::source;
use crate::{ByteSource, Dtype, Format, FormatError};

/// How a column's bytes are read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Encoding {
    /// An array; type and dimensions where they are the same for all samples.
    Array {
        dtype: Option<Dtype>,
        shape: Option<Vec<u64>>,
    },
    /// Anything else, by its name.
    Other(String),
}

/// An array's head, as it is in a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Array {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    /// Bytes before the values.
    pub(super) prefix_bytes: u64,
    /// Whether the first of them is the type's code.
    has_code: bool,
}

impl Encoding {
    /// What streaming does not read as an array is left alone.
    pub(super) fn parse(text: &str) -> Encoding {
        parse_array(text).unwrap_or_else(|| Encoding::Other(text.to_owned()))
    }

    pub(super) fn is_array(&self) -> bool {
        matches!(self, Encoding::Array { .. })
    }

    /// The type that it says.
    pub(super) fn dtype(&self) -> Option<Dtype> {
        match self {
            Encoding::Array { dtype, .. } => *dtype,
            Encoding::Other(_) => None,
        }
    }

    /// Bytes of every sample's array, where the encoding says both type and dimensions.
    pub(super) fn fixed_bytes(&self) -> Option<u64> {
        match self {
            Encoding::Array {
                dtype: Some(dtype),
                shape: Some(shape),
            } => array_bytes(*dtype, shape).or(Some(u64::MAX)),
            _ => None,
        }
    }

    /// The encoding's text when its arrays are presented as `presented`.
    pub(super) fn presented(&self, presented: Option<Dtype>) -> String {
        match self {
            Encoding::Other(text) => text.clone(),
            Encoding::Array { dtype: None, .. } => "ndarray".to_owned(),
            Encoding::Array {
                dtype: Some(dtype),
                shape,
            } => {
                let name = presented.unwrap_or(*dtype).row().torch.unwrap_or_default();
                match shape {
                    None => format!("ndarray:{name}"),
                    Some(shape) => {
                        let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
                        format!("ndarray:{name}:{}", dims.join(","))
                    }
                }
            }
        }
    }

    /// The array in the `bytes` bytes at `offset`; `None` for other columns.
    pub(super) fn read(
        &self,
        source: &dyn ByteSource,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<Array>, FormatError> {
        let Encoding::Array { dtype, shape } = self else {
            return Ok(None);
        };
        // The longest: code, rank and width, 63 dimensions of 8 bytes.
        let read = bytes.min(2 + 63 * 8);
        let prefix = source::range(source, Format::MdsShard, offset, read, read)?;
        let array = read_prefix(&prefix, *dtype, shape.as_deref())
            .filter(|array| array.values_bytes() == bytes.checked_sub(array.prefix_bytes));
        match array {
            Some(array) => Ok(Some(array)),
            None => Err(malformed(
                offset,
                format!("{bytes} bytes that are no array of the column's encoding"),
            )),
        }
    }
}

fn parse_array(text: &str) -> Option<Encoding> {
    let rest = text.strip_prefix("ndarray")?;
    if rest.is_empty() {
        return Some(Encoding::Array {
            dtype: None,
            shape: None,
        });
    }
    let (name, dims) = match rest.strip_prefix(':')?.split_once(':') {
        Some((name, dims)) => (name, Some(dims)),
        None => (rest.strip_prefix(':')?, None),
    };
    let shape = match dims {
        None => None,
        Some(dims) => Some(
            dims.split(',')
                .map(|dim| dim.parse().ok().filter(|dim| *dim > 0))
                .collect::<Option<Vec<u64>>>()?,
        ),
    };
    Some(Encoding::Array {
        dtype: Some(Dtype::from_mds_name(name)?),
        shape,
    })
}

fn read_prefix(prefix: &[u8], dtype: Option<Dtype>, shape: Option<&[u64]>) -> Option<Array> {
    let (dtype, rest, has_code) = match dtype {
        Some(dtype) => (dtype, prefix, false),
        None => {
            let (code, rest) = prefix.split_first()?;
            (Dtype::from_mds(*code)?, rest, true)
        }
    };
    let (shape, shape_bytes) = match shape {
        Some(shape) => (shape.to_vec(), 0),
        None => {
            let (packed, rest) = rest.split_first()?;
            let (rank, width) = (usize::from(packed >> 2), 1usize << (packed & 3));
            let dims = rest.get(..rank * width)?;
            let shape = dims.chunks_exact(width).map(little_endian).collect();
            (shape, 1 + rank * width)
        }
    };
    Some(Array {
        dtype,
        shape,
        prefix_bytes: u64::from(has_code) + shape_bytes as u64,
        has_code,
    })
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn array_bytes(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    let elements = shape
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim))?;
    dtype.bytes_of(elements)
}

impl Array {
    fn values_bytes(&self) -> Option<u64> {
        array_bytes(self.dtype, &self.shape)
    }

    /// The bytes before the values, with the code of the presented type.
    pub(super) fn presented_prefix(
        &self,
        source: &dyn ByteSource,
        offset: u64,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<u8>, FormatError> {
        let mut prefix = source::range(
            source,
            Format::MdsShard,
            offset,
            self.prefix_bytes,
            self.prefix_bytes,
        )?;
        let code = wanted.dtype().and_then(|dtype| dtype.row().mds);
        if let (true, Some(first), Some(code)) = (self.has_code, prefix.first_mut(), code) {
            *first = code;
        }
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_read_and_written_as_streaming_has_it() {
        for text in [
            "ndarray",
            "ndarray:float32",
            "ndarray:uint16:3,4",
            "jpeg",
            "ndarray:bfloat16",
        ] {
            assert_eq!(Encoding::parse(text).presented(None), text);
        }
        assert!(!Encoding::parse("ndarray:float32:0").is_array());
        assert!(!Encoding::parse("ndarray::3").is_array());
        let fixed = Encoding::parse("ndarray:float32:3,4");
        assert_eq!(fixed.fixed_bytes(), Some(48));
        assert_eq!(fixed.presented(Some(Dtype::F16)), "ndarray:float16:3,4");
    }

    #[test]
    fn dimensions_are_as_wide_as_their_array_says() {
        let array = read_prefix(&[34, 2 << 2 | 1, 0x34, 0x12, 2, 0, 9], None, None).unwrap();
        assert_eq!((array.shape, array.prefix_bytes), (vec![0x1234, 2], 6));
        assert_eq!(read_prefix(&[34, 2 << 2 | 3, 1], None, None), None);
        assert_eq!(read_prefix(&[35], None, Some(&[1])), None);
    }
}
