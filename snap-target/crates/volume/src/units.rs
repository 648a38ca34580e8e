//! What presented bytes are counted in: units of one element, or of several that are presented together, the blocks of `q8_0`.

use std::ops::Range;

use transforms::Packing;

/// A presented unit. Elements of an extent are whole units of its stream, and so are those of each frame: no unit has bytes of two frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Units {
    /// Bytes of one.
    pub(crate) bytes: u64,
    /// Elements of one.
    pub(crate) elements: u64,
}

impl Units {
    pub(crate) fn of(presented: Packing) -> Units {
        Units {
            bytes: presented.unit_bytes(),
            elements: presented.unit_elements(),
        }
    }

    /// Presented bytes before the unit that an element is in. Saturates.
    pub(crate) fn bytes_before(self, element: u64) -> u64 {
        (element / self.elements).saturating_mul(self.bytes)
    }

    /// The elements of so many whole units. Saturates.
    pub(crate) fn elements_in(self, bytes: u64) -> u64 {
        (bytes / self.bytes).saturating_mul(self.elements)
    }

    /// Presented bytes of elements of a stream with frames of so many, for a writer. The error says why there is no extent of them.
    pub(crate) fn presented_bytes(
        self,
        elements: Range<u64>,
        frame_elements: Option<u64>,
    ) -> Result<u64, String> {
        let unit = self.elements;
        for (what, count) in [
            ("begins at element", elements.start),
            ("has elements", elements.end - elements.start),
            (
                "is of a stream whose frames have elements",
                frame_elements.unwrap_or(0),
            ),
        ] {
            if !count.is_multiple_of(unit) {
                return Err(format!(
                    "an extent that {what}, {count}, where the view presents {unit} at a time"
                ));
            }
        }
        ((elements.end - elements.start) / unit)
            .checked_mul(self.bytes)
            .ok_or_else(|| "2^64 bytes and more".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_32_elements_are_34_bytes_and_no_part_of_one_is_presented() {
        let units = Units::of(Packing::Q8_0);
        assert_eq!((units.bytes_before(64), units.bytes_before(95)), (68, 68));
        assert_eq!(units.elements_in(68), 64);
        assert_eq!(units.presented_bytes(32..96, Some(1024)), Ok(68));
        assert_eq!(units.presented_bytes(32..96, None), Ok(68));
        for (elements, frame) in [(8..40, 1024), (32..72, 1024), (32..96, 1000)] {
            let why = units.presented_bytes(elements, Some(frame)).unwrap_err();
            assert!(
                why.ends_with("where the view presents 32 at a time"),
                "{why}"
            );
        }
        let u32s = Units::of(Packing::Whole(transforms::ElementType::U32));
        assert_eq!(u32s.presented_bytes(3..10, Some(8)), Ok(28));
    }
}
