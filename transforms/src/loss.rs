//! What rounding did to values: measured by whoever packs, and tried on a part by whoever plans.

#![allow(unsafe_code)]

use crate::chain::Chain;
use crate::element::{ElementType, Packing};
use crate::kernels::{Isa, floats, place::Place, q8, rows};
use crate::scales::ScaledRows;
use crate::view::ViewChain;
use crate::{Contract, TransformError};

/// Measures what becomes of the values of a source when they are stored by a chain and presented by a view.
///
/// The result is a function of the elements and their order, not of the machine or of how they were cut into calls of
/// [`add`](LossMeter::add). It takes no memory but its own and goes at the speed of some arithmetic in 64 bits: of a folder of weights a part will
/// do for a plan.
///
/// ```
/// # use transforms::{Chain, ElementType, LossMeter, ViewChain};
/// let stored = Chain::parse("f16", ElementType::F32)?;
/// let mut meter = LossMeter::new(&stored, &ViewChain::identity())?;
/// meter.add(&[1.0f32, 65_535.0, 0.1].map(f32::to_le_bytes).concat())?;
/// let loss = meter.finish();
/// assert_eq!((loss.elements, loss.saturated), (3, 1));
/// assert_eq!(loss.largest_error(), Some(0.1f32 as f64 - 1638.0 / 16384.0));
/// # Ok::<(), transforms::TransformError>(())
/// ```
#[derive(Debug)]
pub struct LossMeter {
    source: ElementType,
    packed: Packing,
    presented: Packing,
    /// Of `int8`.
    scaled: Option<ScaledRows>,
    contract: Contract,
    isa: Isa,
    tile: Box<Tile>,
    /// Elements that wait in the tile.
    held: usize,
    loss: Loss,
}

/// What was lost. Errors are those of numbers that are finite in both types; the others are counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Elements measured.
    pub elements: u64,
    /// NaNs in the source, which are NaNs in what is presented.
    pub nans: u64,
    /// Infinities in the source, which stay infinite.
    pub infinities: u64,
    /// Finite numbers that became infinite.
    pub saturated: u64,
    /// Numbers other than zero that became zero.
    pub vanished: u64,
    /// The first of those with the largest error; `None` where every number was kept.
    pub worst: Option<Worst>,
    /// The smallest and largest finite number of the source.
    pub finite: Option<(f64, f64)>,
    /// The sum of the squares of all errors.
    squares: f64,
}

/// A number and what became of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worst {
    /// Its index, from the first element measured.
    pub index: u64,
    /// What it was.
    pub source: f64,
    /// What is presented.
    pub presented: f64,
}

impl Loss {
    /// The largest absolute error, 0 where every number was kept; `None` where no number is finite before and behind it: then nothing is known of
    /// errors, and no error is not a small one.
    #[must_use]
    pub fn largest_error(&self) -> Option<f64> {
        (self.finite_pairs() > 0).then(|| self.worst_error())
    }

    /// The root of the mean square of the errors; `None` as for [`largest_error`](Loss::largest_error).
    #[must_use]
    pub fn rms_error(&self) -> Option<f64> {
        let pairs = self.finite_pairs();
        #[allow(clippy::cast_precision_loss)] // of 2^53 elements and more
        (pairs > 0).then(|| (self.squares / pairs as f64).sqrt())
    }

    /// Numbers that are finite before and behind the rounding: those that have an error.
    fn finite_pairs(&self) -> u64 {
        self.elements - self.nans - self.infinities - self.saturated
    }

    fn worst_error(&self) -> f64 {
        self.worst
            .map_or(0.0, |worst| (worst.presented - worst.source).abs())
    }

    /// Adds what was measured of the elements that come behind these.
    pub fn append(&mut self, next: &Loss) {
        if next.worst_error() > self.worst_error() {
            self.worst = next.worst.map(|worst| Worst {
                index: self.elements + worst.index,
                ..worst
            });
        }
        self.finite = match (self.finite, next.finite) {
            (Some((min, max)), Some((low, high))) => Some((min.min(low), max.max(high))),
            (one, other) => one.or(other),
        };
        self.elements += next.elements;
        self.nans += next.nans;
        self.infinities += next.infinities;
        self.saturated += next.saturated;
        self.vanished += next.vanished;
        self.squares += next.squares;
    }
}

/// Elements of a tile. Sums are made tile by tile, so that they do not depend on how the elements came.
const TILE_ELEMENTS: usize = 1024;

/// Room for a tile of elements of any type.
type Elements = [u8; 8 * TILE_ELEMENTS];

struct Tile {
    source: Elements,
    packed: Elements,
    presented: Elements,
    was: Elements,
    is: Elements,
}

impl std::fmt::Debug for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tile")
    }
}

impl LossMeter {
    /// For elements of the chain's source, from the first of its stream on.
    ///
    /// # Errors
    /// A view of another type; a chain without the scales that it needs.
    pub fn new(stored: &Chain, view: &ViewChain) -> Result<LossMeter, TransformError> {
        let source = stored.source();
        let contract = match (stored.contract(), view.contract()) {
            (Contract::Lossless, contract) => contract,
            (contract, _) => contract,
        };
        Ok(LossMeter {
            source,
            packed: stored.packing(),
            presented: view.presented(source)?,
            scaled: ScaledRows::of(stored)?,
            contract,
            isa: stored.isa(),
            tile: Box::new(Tile {
                source: [0; 8 * TILE_ELEMENTS],
                packed: [0; 8 * TILE_ELEMENTS],
                presented: [0; 8 * TILE_ELEMENTS],
                was: [0; 8 * TILE_ELEMENTS],
                is: [0; 8 * TILE_ELEMENTS],
            }),
            held: 0,
            loss: Loss::default(),
        })
    }

    /// Measures whole elements, which follow those before. Integers are counted and not looked at: nothing happens to them.
    ///
    /// # Errors
    /// Bytes that end inside an element; elements behind the rows that have scales.
    pub fn add(&mut self, mut elements: &[u8]) -> Result<(), TransformError> {
        let size = self.source.bytes();
        if !elements.len().is_multiple_of(size) {
            return Err(TransformError::PartialElement {
                bytes: elements.len(),
                element: self.source,
            });
        }
        if let Some(scaled) = &self.scaled {
            let first = self.loss.elements + self.held as u64;
            scaled.check(first, (elements.len() / size) as u64)?;
        }
        if self.source.is_integer() {
            self.loss.elements += (elements.len() / size) as u64;
            return Ok(());
        }
        while !elements.is_empty() {
            let now = (elements.len() / size).min(TILE_ELEMENTS - self.held);
            let (taken, rest) = elements.split_at(now * size);
            self.tile.source[self.held * size..][..taken.len()].copy_from_slice(taken);
            self.held += now;
            elements = rest;
            if self.held == TILE_ELEMENTS {
                self.measure();
            }
        }
        Ok(())
    }

    /// What was measured.
    #[must_use]
    pub fn finish(mut self) -> Loss {
        self.measure();
        self.loss
    }

    /// Whether anything can have been lost.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.contract.is_lossy()
    }

    /// Measures the elements in the tile.
    fn measure(&mut self) {
        let (isa, count, first) = (self.isa, self.held, self.loss.elements);
        let tile = &mut *self.tile;
        let packed_bytes = usize::try_from(self.packed.bytes_of(count as u64)).unwrap_or(0);
        let source = &tile.source[..count * self.source.bytes()];
        // What has no scale is the packer's to refuse: until it does, it is measured as something.
        match self.packed {
            Packing::Whole(packed) => {
                let types = (self.source, packed);
                convert(isa, types, &tile.source, &mut tile.packed, count);
            }
            Packing::Q8_0 | Packing::Bits(_) => {
                let _ = q8::quantize(isa, self.source, source, &mut tile.packed[..packed_bytes]);
            }
            Packing::Int8 { .. } => {
                if let Some(scaled) = &self.scaled {
                    let packed = &mut tile.packed[..packed_bytes];
                    let _ = rows::quantize(isa, self.source, scaled.rows(), first, source, packed);
                }
            }
        }
        let packed = &tile.packed[..packed_bytes];
        let presented = match (self.packed, self.presented) {
            (Packing::Int8 { .. }, presented) => {
                let presented = match presented {
                    Packing::Whole(presented) => presented,
                    _ => self.source,
                };
                let numbers = &mut tile.presented[..count * presented.bytes()];
                if let Some(scaled) = &self.scaled {
                    let types = (self.source, presented);
                    rows::present(isa, types, scaled.rows(), first, packed, numbers);
                }
                match self.presented {
                    Packing::Whole(presented) => presented,
                    _ => {
                        let groups = count.div_ceil(q8::GROUP_ELEMENTS) * q8::GROUP_BYTES;
                        let groups = &mut tile.is[..groups];
                        let _ = q8::quantize(isa, presented, numbers, groups);
                        in_f32(isa, groups, &mut tile.presented, count)
                    }
                }
            }
            (Packing::Whole(packed), Packing::Whole(presented)) => {
                let types = (packed, presented);
                convert(isa, types, &tile.packed, &mut tile.presented, count);
                presented
            }
            (Packing::Whole(from), _) => {
                let groups = count.div_ceil(q8::GROUP_ELEMENTS) * q8::GROUP_BYTES;
                // Until numbers are compared, `is` is free.
                let groups = &mut tile.is[..groups];
                let _ = q8::quantize(isa, from, packed, groups);
                in_f32(isa, groups, &mut tile.presented, count)
            }
            (_, presented) => {
                // Whoever reads the groups themselves multiplies, in f32.
                let types = match presented {
                    Packing::Whole(presented) => (self.source, presented),
                    _ => (ElementType::F32, ElementType::F32),
                };
                let numbers = &mut tile.presented[..count * types.1.bytes()];
                let _ = q8::present(isa, types, packed, 0, numbers);
                types.1
            }
        };
        let to = ElementType::F64;
        convert(isa, (self.source, to), &tile.source, &mut tile.was, count);
        convert(isa, (presented, to), &tile.presented, &mut tile.is, count);
        let loss = compare(&tile.was[..8 * count], &tile.is[..8 * count]);
        self.loss.append(&loss);
        self.held = 0;
    }
}

/// What who reads groups makes of them, in f32.
fn in_f32(isa: Isa, groups: &[u8], presented: &mut Elements, count: usize) -> ElementType {
    let numbers = &mut presented[..count * ElementType::F32.bytes()];
    let types = (ElementType::F32, ElementType::F32);
    let _ = q8::present(isa, types, groups, 0, numbers);
    ElementType::F32
}

/// Converts `count` elements of a tile.
fn convert(
    isa: Isa,
    (from, to): (ElementType, ElementType),
    src: &Elements,
    dst: &mut Elements,
    count: usize,
) {
    assert!(count <= TILE_ELEMENTS && isa.is_available());
    // SAFETY: both have room for a tile of elements of 8 bytes, and `dst` is not used otherwise until the place is dropped; the instruction set
    // was asserted.
    unsafe {
        let mut place = Place::new(isa, dst.as_mut_ptr(), count * to.bytes());
        floats::convert(isa, from, to, src, &mut place, count);
    }
}

/// Sums are made in so many lanes, one after the other, whatever the machine's vectors are: the same elements give the same sum.
const LANES: usize = 8;

/// Numbers of 64 bits, and what became of them.
fn compare(was: &[u8], is: &[u8]) -> Loss {
    let mut loss = Loss::default();
    let mut squares = [0f64; LANES];
    let (mut largest, mut min, mut max) = (0f64, f64::INFINITY, f64::NEG_INFINITY);
    let pairs = was.as_chunks().0.iter().zip(is.as_chunks().0);
    let pairs = pairs.map(|(was, is)| (f64::from_le_bytes(*was), f64::from_le_bytes(*is)));
    for (i, (was, is)) in pairs.clone().enumerate() {
        let error = if was.is_finite() && is.is_finite() {
            (is - was).abs()
        } else {
            0.0
        };
        squares[i % LANES] += error * error;
        largest = largest.max(error);
        loss.nans += u64::from(was.is_nan());
        loss.infinities += u64::from(was.is_infinite());
        loss.saturated += u64::from(was.is_finite() && is.is_infinite());
        loss.vanished += u64::from(was != 0.0 && is == 0.0);
        if was.is_finite() {
            min = min.min(was);
            max = max.max(was);
        }
    }
    loss.elements = (was.len() / 8) as u64;
    loss.finite = (min <= max).then_some((min, max));
    loss.squares = squares.iter().sum();
    if largest > 0.0 {
        let found = (0..)
            .zip(pairs)
            .find(|(_, (was, is))| (is - was).abs() == largest);
        loss.worst = found.map(|(index, (source, presented))| Worst {
            index,
            source,
            presented,
        });
    }
    loss
}
