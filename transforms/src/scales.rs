//! The scales of the step `int8`: one for each row of a stream, kept by the volume.

use std::sync::Arc;

use crate::TransformError;
use crate::chain::Chain;
use crate::element::{ElementType, Packing};
use crate::kernels::rows::Rows;
use crate::kernels::{Isa, floats, rows};
use crate::table::{Table, TableKind};

/// The most rows of a stream: 64 MiB of scales.
pub const ROWS_MAX: usize = 1 << 24;

/// Bytes of a scale.
const SCALE_BYTES: usize = 4;

/// The bits of the f32 infinity, above which are NaNs.
const INFINITE: u32 = 0x7F80_0000;

/// The scale of each row. Immutable, shared by the chains that use it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scales {
    /// Finite, and not below 0.
    values: Vec<f32>,
}

/// None of them is a NaN.
impl Eq for Scales {}

impl Scales {
    /// The bytes of the scale of one row.
    pub const STORED_BYTES_MIN: u64 = SCALE_BYTES as u64;
    /// The bytes of the most scales.
    pub const STORED_BYTES_MAX: u64 = (SCALE_BYTES * ROWS_MAX) as u64;

    /// Reads what [`to_bytes`](Scales::to_bytes) wrote; hostile input.
    ///
    /// # Errors
    /// [`TransformError::Scales`] for anything that is not the scales of 1 to [`ROWS_MAX`] rows.
    pub fn parse(bytes: &[u8]) -> Result<Scales, TransformError> {
        let (values, rest) = bytes.as_chunks::<SCALE_BYTES>();
        if !rest.is_empty() || values.is_empty() || values.len() > ROWS_MAX {
            return Err(broken(format!(
                "{} bytes, where 1 to {ROWS_MAX} rows have {SCALE_BYTES} each",
                bytes.len()
            )));
        }
        let values: Vec<f32> = values.iter().map(|it| f32::from_le_bytes(*it)).collect();
        // Above the infinity are NaNs, and what has a sign.
        if let Some(row) = values.iter().position(|it| it.to_bits() >= INFINITE) {
            let bits = values[row].to_bits();
            return Err(broken(format!(
                "that of row {row} is {} ({bits:#010x}); scales are finite and not below 0",
                values[row]
            )));
        }
        Ok(Scales { values })
    }

    /// As a volume stores them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    /// How many bytes that is.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        (SCALE_BYTES * self.values.len()) as u64
    }

    /// The scale of each row.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

/// Finds the scales of rows, whose elements come one after the other.
#[derive(Debug)]
pub struct RowMaxima {
    source: ElementType,
    row_elements: u32,
    isa: Isa,
    /// Elements of the row that is under way.
    held: u32,
    /// The largest magnitude of them, by its bits as f32.
    largest: u32,
    values: Vec<f32>,
}

impl RowMaxima {
    /// For the elements of a chain with the step `int8`.
    ///
    /// # Errors
    /// Another chain.
    pub fn new(chain: &Chain) -> Result<RowMaxima, TransformError> {
        let Packing::Int8 { row_elements } = chain.packing() else {
            return Err(chain.table_needed("no step of it takes scales"));
        };
        Ok(RowMaxima {
            source: chain.source(),
            row_elements,
            isa: chain.isa(),
            held: 0,
            largest: 0,
            values: Vec::new(),
        })
    }

    /// Takes in whole elements, which follow those before.
    ///
    /// # Errors
    /// [`TransformError::NotFinite`] with the first such element of `elements`; [`TransformError::Scales`] for too many rows;
    /// [`TransformError::PartialElement`].
    pub fn add(&mut self, elements: &[u8]) -> Result<(), TransformError> {
        let size = self.source.bytes();
        if !elements.len().is_multiple_of(size) {
            return Err(TransformError::PartialElement {
                bytes: elements.len(),
                element: self.source,
            });
        }
        let mut rest = elements;
        while !rest.is_empty() {
            let wanted = (self.row_elements - self.held) as usize;
            let (run, behind) = rest.split_at(rest.len().min(wanted.saturating_mul(size)));
            let largest = rows::largest(self.isa, self.source, run);
            if largest >= INFINITE {
                let (index, bits) = first_not_finite(self.source, run);
                let before = (elements.len() - rest.len()) / size;
                let index = before as u64 + index;
                return Err(TransformError::NotFinite { index, bits });
            }
            self.largest = self.largest.max(largest);
            #[allow(clippy::cast_possible_truncation)] // no more than were wanted
            let taken = (run.len() / size) as u32;
            self.held += taken;
            if self.held == self.row_elements {
                self.end_row()?;
            }
            rest = behind;
        }
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), TransformError> {
        if self.values.len() == ROWS_MAX {
            return Err(broken(format!(
                "more than {ROWS_MAX} rows: use q8_0, or longer rows"
            )));
        }
        self.values.push(rows::scale_of(self.largest));
        (self.held, self.largest) = (0, 0);
        Ok(())
    }

    /// The scales of the rows.
    ///
    /// # Errors
    /// [`TransformError::Scales`] where there is no row, or the last one is not full.
    pub fn scales(self) -> Result<Scales, TransformError> {
        if self.held > 0 {
            return Err(broken(format!(
                "the last row has {} of {} elements: int8:ROW takes whole rows, and ROW is what a row has",
                self.held, self.row_elements
            )));
        }
        if self.values.is_empty() {
            return Err(broken("there are no rows".to_owned()));
        }
        Ok(Scales {
            values: self.values,
        })
    }
}

fn first_not_finite(source: ElementType, src: &[u8]) -> (u64, u32) {
    for (index, element) in (0..).zip(src.chunks(source.bytes())) {
        let number = floats::one(source, ElementType::F32, element);
        let bits = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
        if bits & 0x7FFF_FFFF >= INFINITE {
            return (index, bits);
        }
    }
    unreachable!("a kernel met a number that is not there")
}

fn broken(why: String) -> TransformError {
    TransformError::Scales { why }
}

/// The rows of a chain with the step `int8`, and their scales.
#[derive(Debug, Clone)]
pub(crate) struct ScaledRows {
    row_elements: u32,
    scales: Arc<Scales>,
}

impl ScaledRows {
    /// Of a chain, where it has the step.
    pub(crate) fn of(chain: &Chain) -> Result<Option<ScaledRows>, TransformError> {
        let Packing::Int8 { row_elements } = chain.packing() else {
            return Ok(None);
        };
        match chain.needed_table(TableKind::Scales)? {
            Table::Scales(scales) => Ok(Some(ScaledRows {
                row_elements,
                scales: Arc::clone(scales),
            })),
            _ => Ok(None),
        }
    }

    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows {
            row_elements: self.row_elements,
            scales: self.scales.values(),
        }
    }

    /// That elements `first` to `first + count` have scales.
    pub(crate) fn check(&self, first: u64, count: u64) -> Result<(), TransformError> {
        let elements = self.rows().elements();
        match first.checked_add(count) {
            Some(end) if end <= elements => Ok(()),
            _ => Err(broken(format!(
                "{} rows of {} elements, and element {} is behind them",
                self.scales.values().len(),
                self.row_elements,
                first.saturating_add(count).saturating_sub(1)
            ))),
        }
    }
}
