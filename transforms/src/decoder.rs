//! Packed elements to presented elements: undoes the element steps and applies the view, in one pass, the destination written
//! once.

#![allow(unsafe_code)]

use std::ops::Range;

use crate::TransformError;
use crate::chain::Chain;
use crate::element::{ElementType, Packing, ValueRange};
use crate::kernels::{
    BLOCK_ELEMENTS, Isa, convert, floats, pack, place::Place, q8, reference, rows, widen,
};
use crate::scales::ScaledRows;
use crate::segments::OutSegments;
use crate::view::ViewChain;

/// Some packed bytes of a frame: bytes `[first_byte, first_byte + bytes.len())` of its packed form.
#[derive(Debug, Clone, Copy)]
pub struct PackedWindow<'a> {
    /// Where the window starts in the packed form.
    pub first_byte: u64,
    /// What it holds.
    pub bytes: &'a [u8],
}

/// Decodes a stream's packed elements for one view. Stateless and small; made once for each extent or stream.
#[derive(Debug, Clone)]
pub struct Decoder {
    packing: Packing,
    presented: Packing,
    /// `None`: the bytes are copied as they are.
    work: Option<Work>,
    isa: Isa,
}

/// What is done to packed elements.
#[derive(Debug, Clone)]
enum Work {
    /// Integers are converted, and this decides whether a value is accepted.
    Integers(Check),
    /// Floating point is converted from one type to the other. Every value is accepted: any bits are one.
    Floats(ElementType, ElementType),
    /// Groups with a scale become floating point of the source's type, the first, and that is converted to the second. Scales must be finite.
    Groups(ElementType, ElementType),
    /// Floating point of this type becomes groups with a scale. Every number must have one.
    Quantized(ElementType),
    /// Rows with a scale become floating point of the source's type, the first, and that is converted to the second.
    Rows(ScaledRows, ElementType, ElementType),
    /// Rows with a scale become floating point of the source's type, and that becomes groups with one.
    Regrouped(ScaledRows, ElementType),
}

#[derive(Debug, Clone, Copy)]
struct Check {
    /// What the packer proved, or at least what the chain can have stored.
    proven: ValueRange,
    /// The presented type.
    to: ElementType,
    /// What it holds.
    target: ValueRange,
    /// Both; `None` when no value is in both.
    accepted: Option<ValueRange>,
}

impl Decoder {
    /// A decoder for a stream stored by `stored`, whose values the packer proved to lie in `proven`, presented by `view`.
    ///
    /// # Errors
    /// A view of another source type, or a proven range that the chain cannot have stored.
    pub fn new(
        stored: &Chain,
        view: &ViewChain,
        proven: Option<ValueRange>,
    ) -> Result<Decoder, TransformError> {
        let presented = view.presented(stored.source())?;
        let packing = stored.packing();
        let possible = stored.range();
        if let Some(range) = proven {
            let belongs = possible.is_some_and(|p| range.min <= range.max && p.encloses(&range));
            if !belongs {
                return Err(TransformError::ProvenRange {
                    range,
                    packing,
                    stored: stored.source(),
                });
            }
        }
        // No chain and no view turns integers into floating point, or the other way round.
        let foreign = TransformError::ViewSource {
            view: presented,
            stored: stored.source(),
        };
        let work = match (packing, possible, presented) {
            (packing, _, presented) if packing == presented => None,
            (_, Some(possible), Packing::Whole(to)) => {
                let target = to.range().ok_or(foreign)?;
                let proven = proven.unwrap_or(possible);
                Some(Work::Integers(Check {
                    proven,
                    to,
                    target,
                    accepted: proven.intersection(&target),
                }))
            }
            (_, None, Packing::Whole(to)) if to.is_integer() => return Err(foreign),
            (Packing::Whole(packed), None, Packing::Whole(to)) => Some(Work::Floats(packed, to)),
            (Packing::Q8_0, None, Packing::Whole(to)) => Some(Work::Groups(stored.source(), to)),
            (Packing::Int8 { .. }, None, to) => match (ScaledRows::of(stored)?, to) {
                (Some(rows), Packing::Whole(to)) => Some(Work::Rows(rows, stored.source(), to)),
                (Some(rows), Packing::Q8_0) => Some(Work::Regrouped(rows, stored.source())),
                _ => return Err(foreign),
            },
            (Packing::Whole(packed), None, Packing::Q8_0) => Some(Work::Quantized(packed)),
            _ => return Err(foreign),
        };
        Ok(Decoder {
            packing,
            presented,
            work,
            isa: stored.isa(),
        })
    }

    /// How the elements that come out lie: whole, or in blocks with a scale. A unit of them is a whole number of bytes.
    #[must_use]
    pub fn presented(&self) -> Packing {
        self.presented
    }

    /// Whether packed bytes are presented as they are. Nothing is converted then, and nothing checked: the stream's checksum is
    /// what guards them.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.work.is_none()
    }

    /// The packed bytes that are needed for these presented bytes.
    #[must_use]
    pub fn packed_window(&self, presented: Range<u64>) -> Range<u64> {
        if self.is_copy() {
            return presented;
        }
        let (unit_bytes, unit_elements) =
            (self.presented.unit_bytes(), self.presented.unit_elements());
        let first = (presented.start / unit_bytes).saturating_mul(unit_elements);
        let start = self.first_bit_of(first) / 8;
        if presented.is_empty() {
            let at = u64::try_from(start).unwrap_or(u64::MAX);
            return at..at;
        }
        // The last element of the last unit.
        let last = ((presented.end - 1) / unit_bytes)
            .saturating_mul(unit_elements)
            .saturating_add(unit_elements - 1);
        let end = (self.first_bit_of(last) + u128::from(self.packing.unit_bits())).div_ceil(8);
        u64::try_from(start).unwrap_or(u64::MAX)..u64::try_from(end).unwrap_or(u64::MAX)
    }

    /// As [`expand_at`](Decoder::expand_at), of the first frame of a stream: of most chains there is no difference.
    ///
    /// # Errors
    /// As there.
    pub fn expand(
        &self,
        packed: PackedWindow<'_>,
        presented: Range<u64>,
        out: &mut OutSegments<'_>,
    ) -> Result<(), TransformError> {
        self.expand_at(0, packed, presented, out)
    }

    /// Decodes the presented bytes `presented` (counted from the start of the frame, which is element `frame_first` of its stream; the ends may fall
    /// inside an element) out of `packed`, and writes them to `out`, which moves on behind them.
    ///
    /// # Errors
    /// [`OutsideProven`](TransformError::OutsideProven), [`OutOfRange`](TransformError::OutOfRange), [`BadScale`](TransformError::BadScale) and
    /// [`Unscalable`](TransformError::Unscalable) with the first such element of the frame, after some of the destination may have been written; a
    /// window or a destination that is too small, and elements behind the rows that have [scales](TransformError::Scales), before.
    pub fn expand_at(
        &self,
        frame_first: u64,
        packed: PackedWindow<'_>,
        presented: Range<u64>,
        out: &mut OutSegments<'_>,
    ) -> Result<(), TransformError> {
        if presented.is_empty() {
            return Ok(());
        }
        let needed = self.packed_window(presented.clone());
        let bytes = packed.covering(&needed)?;
        let presented_len = presented.end - presented.start;
        if presented_len > out.remaining() as u64 {
            return Err(TransformError::DestinationTooSmall {
                needed: presented_len,
                available: out.remaining() as u64,
            });
        }
        let Some(work) = &self.work else {
            out.write(bytes);
            return Ok(());
        };

        if let Work::Rows(scaled, ..) | Work::Regrouped(scaled, _) = work {
            let (unit_bytes, unit_elements) =
                (self.presented.unit_bytes(), self.presented.unit_elements());
            let end = presented.end.div_ceil(unit_bytes);
            scaled.check(frame_first, end.saturating_mul(unit_elements))?;
        }
        let mut cursor = Cursor {
            decoder: self,
            work,
            frame_first,
            bytes,
            first_byte: needed.start,
            at: presented.start,
            end: presented.end,
        };
        while cursor.at < cursor.end {
            let inside = cursor.at % self.presented.unit_bytes();
            let room = out.run().len.min(cursor.left()) / self.unit_len();
            if inside == 0 && room > 0 {
                cursor.whole_units(room, out)?;
            } else {
                cursor.part_of_unit(out)?;
            }
        }
        Ok(())
    }

    /// Bytes of a presented unit.
    #[allow(clippy::cast_possible_truncation)] // at most 34
    fn unit_len(&self) -> usize {
        self.presented.unit_bytes() as usize
    }

    /// Where the unit of element `index` starts, in bits of the packed form.
    fn first_bit_of(&self, index: u64) -> u128 {
        let unit = index / self.packing.unit_elements();
        u128::from(unit) * u128::from(self.packing.unit_bits())
    }
}

impl<'a> PackedWindow<'a> {
    /// The bytes `needed` of the packed form.
    fn covering(&self, needed: &Range<u64>) -> Result<&'a [u8], TransformError> {
        let bounds = || {
            let start = usize::try_from(needed.start.checked_sub(self.first_byte)?).ok()?;
            let end = usize::try_from(needed.end.checked_sub(self.first_byte)?).ok()?;
            self.bytes.get(start..end)
        };
        bounds().ok_or_else(|| TransformError::WindowTooSmall {
            needed: needed.clone(),
            held: self.first_byte..self.first_byte.saturating_add(self.bytes.len() as u64),
        })
    }
}

/// One `expand` under way.
struct Cursor<'a> {
    decoder: &'a Decoder,
    work: &'a Work,
    /// The element of the stream that the frame begins with.
    frame_first: u64,
    bytes: &'a [u8],
    /// Where `bytes` starts in the packed form.
    first_byte: u64,
    /// Presented bytes before the cursor, and the end, from the start of the frame.
    at: u64,
    end: u64,
}

impl Cursor<'_> {
    fn left(&self) -> usize {
        usize::try_from(self.end - self.at).unwrap_or(usize::MAX)
    }

    /// Decodes `count` whole units into the run of memory at the destination's cursor, which holds them.
    fn whole_units(
        &mut self,
        mut count: usize,
        out: &mut OutSegments<'_>,
    ) -> Result<(), TransformError> {
        let size = self.decoder.unit_len();
        let run = out.run();
        assert!(run.len / size >= count);
        // SAFETY: the run is writable for `count` units (asserted), and the constructors of `OutSegments` promise that it does not
        // overlap the source. A chain has only instruction sets that the machine has.
        let mut place = unsafe { Place::new(self.decoder.isa, run.ptr, count * size) };
        while count > 0 {
            let first = self.at / size as u64;
            let block = match self.work {
                Work::Quantized(_) | Work::Regrouped(..) => BLOCK_ELEMENTS / q8::GROUP_ELEMENTS,
                // Blocks end at multiples of 8 elements, so that only the first may start inside a byte.
                _ => BLOCK_ELEMENTS - (first % 8) as usize,
            };
            let now = count.min(block);
            // SAFETY: the blocks together are `count` units.
            unsafe { self.block(first, now, &mut place) }?;
            out.skip(now * size);
            self.at += (now * size) as u64;
            count -= now;
        }
        Ok(())
    }

    /// Decodes `count` units from `first` on, and checks them where there is something to check.
    ///
    /// # Safety
    /// `place` has room for them, and does not overlap the source.
    unsafe fn block(
        &self,
        first: u64,
        count: usize,
        place: &mut Place,
    ) -> Result<(), TransformError> {
        let isa = self.decoder.isa;
        match self.work {
            Work::Integers(check) => {
                // SAFETY: passed on to the caller.
                let met = unsafe { self.integers(check, first, count, place) };
                match check.accepted {
                    Some(accepted) if accepted.encloses(&met) => Ok(()),
                    _ => Err(self.first_refused(check, first, count)),
                }
            }
            Work::Floats(from, to) => {
                let (src, _) = self.packed_from(first);
                // SAFETY: passed on to the caller; a chain has only instruction sets that the machine has.
                unsafe { floats::convert(isa, *from, *to, src, place, count) };
                Ok(())
            }
            Work::Groups(source, to) => {
                let (src, _) = self.packed_from(first);
                let inside = inside_group(first);
                // SAFETY: as above.
                unsafe { q8::expand(isa, (*source, *to), src, inside, place, count) }
                    .map_err(|bad| bad_scale(first - inside as u64, bad))
            }
            Work::Quantized(from) => {
                let src = self.numbers(*from, first, count);
                // SAFETY: as above; there are so many groups of them.
                unsafe { q8::quantize_at(isa, *from, src, place) }
                    .map_err(|refused| unscalable(first, refused))
            }
            Work::Rows(scaled, source, to) => {
                let types = (*source, *to);
                let src = &self.packed_from(first).0[..count];
                let first = self.frame_first + first;
                // SAFETY: as above.
                unsafe { rows::expand(isa, types, scaled.rows(), first, src, place) };
                Ok(())
            }
            Work::Regrouped(scaled, source) => {
                let mut tile = [0; 4 * BLOCK_ELEMENTS];
                let numbers = self.regrouped(scaled, *source, first, count, &mut tile);
                // SAFETY: as above; there are so many groups of them.
                unsafe { q8::quantize_at(isa, *source, numbers, place) }
                    .map_err(|refused| unscalable(first, refused))
            }
        }
    }

    /// The numbers of `count` presented groups from group `first` on, of rows, in a tile.
    fn regrouped<'b>(
        &self,
        scaled: &ScaledRows,
        source: ElementType,
        first: u64,
        count: usize,
        tile: &'b mut [u8],
    ) -> &'b [u8] {
        let elements = count * q8::GROUP_ELEMENTS;
        let first = first * q8::GROUP_ELEMENTS as u64;
        let packed = &self.packed_from(first).0[..elements];
        let numbers = &mut tile[..elements * source.bytes()];
        let types = (source, source);
        let first = self.frame_first + first;
        rows::present(
            self.decoder.isa,
            types,
            scaled.rows(),
            first,
            packed,
            numbers,
        );
        numbers
    }

    /// The packed numbers of `count` presented groups from group `first` on.
    fn numbers(&self, from: ElementType, first: u64, count: usize) -> &[u8] {
        let (src, _) = self.packed_from(first * q8::GROUP_ELEMENTS as u64);
        &src[..count * q8::GROUP_ELEMENTS * from.bytes()]
    }

    /// Decodes `count` integers from `first` on; returns the range of the values met.
    ///
    /// # Safety
    /// `place` has room for them, and does not overlap the source.
    unsafe fn integers(
        &self,
        check: &Check,
        first: u64,
        count: usize,
        place: &mut Place,
    ) -> ValueRange {
        let isa = self.decoder.isa;
        let to_bytes = check.to.bytes();
        let (src, first_bit) = self.packed_from(first);
        match self.decoder.packing {
            // SAFETY: passed on to the caller; a chain has only instruction sets that the machine has.
            Packing::Whole(from) => unsafe {
                convert::convert(isa, from, to_bytes, src, place, count)
            },
            // SAFETY: as above.
            Packing::Bits(bits) if bits as usize <= 8 * to_bytes => unsafe {
                pack::unpack(isa, bits, to_bytes, src, first_bit, place, count)
            },
            Packing::Bits(bits) => {
                // Fields wider than the presented type: through a tile of 32-bit values in the cache.
                let mut tile = [0u8; TILE_ELEMENTS * 4];
                let mut seen = None;
                let mut done = 0;
                while done < count {
                    let now = (count - done).min(TILE_ELEMENTS);
                    let (src, first_bit) = self.packed_from(first + done as u64);
                    // SAFETY: the tile holds `now` values of 4 bytes and is not used otherwise until they are there; the rest is passed
                    // on to the caller.
                    unsafe {
                        let mut fields = Place::new(isa, tile.as_mut_ptr(), tile.len());
                        let met = pack::unpack(isa, bits, 4, src, first_bit, &mut fields, now);
                        drop(fields);
                        widen(&mut seen, met);
                        convert::convert(isa, ElementType::U32, to_bytes, &tile, place, now);
                    }
                    done += now;
                }
                seen.unwrap_or(check.target)
            }
            Packing::Q8_0 | Packing::Int8 { .. } => unreachable!("they have no integers"),
        }
    }

    /// Decodes one unit aside, and writes the part of it that is wanted: at the ends of the range, and where a unit straddles two segments.
    fn part_of_unit(&mut self, out: &mut OutSegments<'_>) -> Result<(), TransformError> {
        let size = self.decoder.unit_len();
        let index = self.at / size as u64;
        #[allow(clippy::cast_possible_truncation)] // a remainder of a usize
        let from = (self.at % size as u64) as usize;
        let to = size.min(from + self.left());
        let isa = self.decoder.isa;
        let mut unit = [0; UNIT_BYTES_MAX];
        match self.work {
            Work::Integers(check) => {
                let value = self.element(index);
                self.accept(check, index, value)?;
                unit[..8].copy_from_slice(&reference::low_bytes(value));
            }
            Work::Floats(from, to) => {
                let number = floats::one(*from, *to, self.packed_from(index).0);
                unit[..8].copy_from_slice(&number);
            }
            Work::Groups(source, to) => {
                let (src, inside) = (self.packed_from(index).0, inside_group(index));
                q8::present(isa, (*source, *to), src, inside, &mut unit[..size])
                    .map_err(|bad| bad_scale(index - inside as u64, bad))?;
            }
            Work::Quantized(from) => {
                let src = self.numbers(*from, index, 1);
                q8::quantize(isa, *from, src, &mut unit)
                    .map_err(|refused| unscalable(index, refused))?;
            }
            Work::Rows(scaled, source, to) => {
                let packed = &self.packed_from(index).0[..1];
                let types = (*source, *to);
                let first = self.frame_first + index;
                rows::present(isa, types, scaled.rows(), first, packed, &mut unit[..size]);
            }
            Work::Regrouped(scaled, source) => {
                let mut tile = [0; 4 * q8::GROUP_ELEMENTS];
                let numbers = self.regrouped(scaled, *source, index, 1, &mut tile);
                q8::quantize(isa, *source, numbers, &mut unit)
                    .map_err(|refused| unscalable(index, refused))?;
            }
        }
        out.write(&unit[from..to]);
        self.at += (to - from) as u64;
        Ok(())
    }

    fn element(&self, index: u64) -> i128 {
        let (src, first_bit) = self.packed_from(index);
        reference::element(self.decoder.packing, src, u64::from(first_bit))
    }

    /// The packed bytes from the one on where the unit of element `index` starts, and the bit of it where it starts.
    #[allow(clippy::cast_possible_truncation)] // the window covers the element, so the difference is a slice's offset
    fn packed_from(&self, index: u64) -> (&[u8], u32) {
        let bit = self.decoder.first_bit_of(index) - u128::from(self.first_byte) * 8;
        (&self.bytes[(bit / 8) as usize..], (bit % 8) as u32)
    }

    fn accept(&self, check: &Check, index: u64, value: i128) -> Result<(), TransformError> {
        if !check.proven.contains(value) {
            return Err(TransformError::OutsideProven {
                index,
                value,
                range: check.proven,
            });
        }
        if !check.target.contains(value) {
            return Err(TransformError::OutOfRange {
                index,
                value,
                target: Packing::Whole(check.to),
            });
        }
        Ok(())
    }

    /// The error for the first element that is not accepted, of a block in which a kernel met one.
    fn first_refused(&self, check: &Check, first: u64, count: usize) -> TransformError {
        for index in first..first + count as u64 {
            if let Err(error) = self.accept(check, index, self.element(index)) {
                return error;
            }
        }
        unreachable!("a kernel met a value that is not there")
    }
}

/// Which element of its group it is.
#[allow(clippy::cast_possible_truncation)] // below 32
fn inside_group(element: u64) -> usize {
    (element % q8::GROUP_ELEMENTS as u64) as usize
}

/// The error for a group, counted from the one of element `first`.
fn bad_scale(first: u64, bad: q8::BadScale) -> TransformError {
    TransformError::BadScale {
        index: first + (bad.group * q8::GROUP_ELEMENTS) as u64,
        bits: bad.bits,
    }
}

/// The error for a number of the groups from `first` on, counted from the first of theirs.
fn unscalable(first: u64, (index, bits): (u64, u32)) -> TransformError {
    TransformError::Unscalable {
        index: first * q8::GROUP_ELEMENTS as u64 + index,
        bits,
    }
}

/// The largest presented unit: a group with its scale.
const UNIT_BYTES_MAX: usize = q8::GROUP_BYTES;

/// Elements of a tile between two kernels: 4 KiB of 32-bit values.
const TILE_ELEMENTS: usize = 1024;
