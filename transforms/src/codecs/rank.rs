//! `rank`: each integer becomes its rank in a table, the commonest 0, written in one to three bytes. The table is the volume's.
//!
//! The decoder takes hostile input: a rank that the table has not, a code that does not end, bytes that are too few or too many are each
//! [`Corrupt`](TransformError::Corrupt). Every rank has one code, so that nothing is overlong.

use crate::TransformError;
use crate::element::Packing;
use crate::kernels::{Isa, dense};
use crate::rank_table::{CODE_BYTES_MAX, RankTable};
use crate::registry::{Descriptor, Layout, Parameter, TableTransform, Transform, TransformId};

/// The number on the volume.
pub const ID: TransformId = TransformId(0x200);

/// The step `rank`; it takes no parameter.
pub struct Rank;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "rank",
    parameter: Parameter::None,
    grammar: "rank",
    summary: "ranks by frequency in a table of the volume, in one to three bytes each",
};

impl Transform for Rank {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl TableTransform for Rank {
    fn check(&self, input: &Layout) -> Result<(), TransformError> {
        match input.packing {
            Packing::Whole(element)
                if element.is_integer() && [2, 4].contains(&element.bytes()) =>
            {
                Ok(())
            }
            input => Err(TransformError::Input {
                step: DESCRIPTOR.name.into(),
                input,
                why: match input {
                    Packing::Bits(_) => "it takes u16, i16, u32 and i32, not behind bitpack",
                    Packing::Whole(it) if it.is_integer() && it.bytes() > 4 => {
                        "it takes u16, i16, u32 and i32; write u32+rank"
                    }
                    _ => "it takes u16, i16, u32 and i32",
                },
            }),
        }
    }

    fn encoded_bytes_max(&self, elements: usize) -> usize {
        elements.saturating_mul(CODE_BYTES_MAX)
    }

    fn encode(
        &self,
        table: &RankTable,
        packed: Packing,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Option<usize>, TransformError> {
        dense::encode(table, width_bytes(packed), src, dst).map_err(|index| {
            let width = width_bytes(packed);
            let value = crate::kernels::reference::element(packed, &src[index * width..], 0);
            TransformError::NotInTable {
                index: index as u64,
                value,
            }
        })
    }

    fn decode(
        &self,
        isa: Isa,
        table: &RankTable,
        packed: Packing,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), TransformError> {
        dense::decode(isa, table, width_bytes(packed), src, dst).map_err(|why| {
            TransformError::Corrupt {
                step: DESCRIPTOR.name,
                why: why.to_string(),
            }
        })
    }
}

fn width_bytes(packed: Packing) -> usize {
    (packed.bits() / 8) as usize
}
