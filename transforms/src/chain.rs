//! The stored chain: how a source was encoded. Element steps first, then block steps.

mod by_table;
mod elements;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::TransformError;
use crate::contract::Contract;
use crate::element::{ElementType, Packing, ValueRange};
use crate::encoder;
use crate::kernels::Isa;
use crate::registry::{self, BlockTransform, Geometry, Kind, Layout, Step, TableTransform};
use crate::scratch::{BlockTimes, Contexts, Scratch, sized};
use crate::table::{Table, Tables};

/// The most steps in a chain.
pub const CHAIN_STEPS_MAX: usize = 8;

/// The largest packed frame of a framed chain: what the codecs are bounded by. A frame is decoded whole, into memory: 16 MiB is far over
/// every frame size that serves random access. A format sets a limit of its own below it, and asserts that: the volume's is 4 MiB
/// (`volume::limits::FRAME_PACKED_BYTES_MAX`).
pub const FRAME_BYTES_MAX: u64 = 16 << 20;

/// A stored chain: immutable, typed, cheap to clone.
///
/// Written `STEP+STEP...`: element steps (`u16`, `bitpack:17`), then block steps (`shuffle` or `rank`, then at most one of `lz4`, `lz4hc:9`,
/// `zstd:3`, `zstd-dict:9`). `none` is the chain without steps. A chain with `rank`, `int8` or `zstd-dict` encodes and decodes once it has the
/// [table](Chain::with_table) of each.
#[derive(Clone)]
pub struct Chain {
    inner: Arc<Inner>,
    /// Of the steps that take one.
    tables: Tables,
    /// Whose kernels run.
    isa: Isa,
}

struct Inner {
    source: ElementType,
    steps: Vec<Step>,
    /// What each element step packs into, in order: to name the one that a value did not fit.
    packings: Vec<Packing>,
    layout: Layout,
    by_table: Option<&'static dyn TableTransform>,
    reorder: Option<Block>,
    compress: Option<Block>,
}

#[derive(Clone, Copy)]
struct Block {
    transform: &'static dyn BlockTransform,
    parameter: u32,
    packed_bits: u32,
}

/// What [`Chain::encode_frame`] made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes written to the destination.
    pub stored_bytes: usize,
    /// The smallest and largest value of the frame; `None` for floating point and for the empty frame.
    pub range: Option<ValueRange>,
}

impl Chain {
    /// Reads a chain for a source of this type.
    ///
    /// # Errors
    /// An unknown name or a parameter out of its bounds, or steps that cannot follow each other.
    pub fn parse(text: &str, source: ElementType) -> Result<Chain, TransformError> {
        if text == "none" {
            return Chain::from_steps(&[], source);
        }
        let mut steps = Vec::new();
        for part in text.split('+') {
            let (kind, parameter) = registry::by_text(part)?;
            let descriptor = kind.transform().descriptor();
            steps.push(Step {
                id: descriptor.id,
                version: descriptor.version,
                parameter,
            });
        }
        Chain::from_steps(&steps, source)
    }

    /// The chain of stored steps.
    ///
    /// # Errors
    /// An unknown transform or version (named), a parameter out of its bounds, or steps that cannot follow each other.
    pub fn from_steps(steps: &[Step], source: ElementType) -> Result<Chain, TransformError> {
        if steps.len() > CHAIN_STEPS_MAX {
            return Err(TransformError::TooManySteps {
                steps: steps.len(),
                max: CHAIN_STEPS_MAX,
            });
        }
        let mut inner = Inner {
            source,
            steps: steps.to_vec(),
            packings: Vec::new(),
            layout: Layout {
                packing: Packing::Whole(source),
                range: source.range(),
            },
            by_table: None,
            reorder: None,
            compress: None,
        };
        for step in steps {
            inner.push(step)?;
        }
        Ok(Chain {
            inner: Arc::new(inner),
            tables: Tables::default(),
            isa: Isa::best(),
        })
    }

    /// The same chain with the kernels of one instruction set, here and in decoders made from it: for tests and benchmarks.
    ///
    /// # Panics
    /// When this machine does not have it.
    #[must_use]
    pub fn with_isa(&self, isa: Isa) -> Chain {
        assert!(isa.is_available(), "this machine has no {isa:?}");
        Chain {
            inner: Arc::clone(&self.inner),
            tables: self.tables.clone(),
            isa,
        }
    }

    /// Whose kernels run.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// The steps, as a volume stores them.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.inner.steps
    }

    /// The type of the source's elements.
    #[must_use]
    pub fn source(&self) -> ElementType {
        self.inner.source
    }

    /// Whether there are no steps: the stored bytes are the source's.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.inner.steps.is_empty()
    }

    /// Whether there is a block step: frames have lengths of their own, and are undone whole.
    #[must_use]
    pub fn is_framed(&self) -> bool {
        let Inner {
            by_table,
            reorder,
            compress,
            ..
        } = &*self.inner;
        by_table.is_some() || reorder.is_some() || compress.is_some()
    }

    /// Whether frames may be shorter than their packed form: then one that would not be is its packed form.
    #[must_use]
    pub fn shrinks(&self) -> bool {
        self.inner.by_table.is_some() || self.inner.compress.is_some()
    }

    /// How elements lie after the element steps.
    #[must_use]
    pub fn packing(&self) -> Packing {
        self.inner.layout.packing
    }

    /// The values that fit every element step; `None` for floating point.
    #[must_use]
    pub fn range(&self) -> Option<ValueRange> {
        self.inner.layout.range
    }

    /// What becomes of values that are stored so and read back in the source's type.
    #[must_use]
    pub fn contract(&self) -> Contract {
        match self.packing() {
            Packing::Whole(packed) => Contract::of(self.source(), packed),
            Packing::Bits(_) => Contract::Lossless,
            Packing::Q8_0 => Contract::of_q8_0(self.source()),
            Packing::Int8 { row_elements } => Contract::of_int8(self.source(), row_elements),
        }
    }

    /// Bits per element after the element steps, rounded up: `q8_0` has 8.5.
    #[must_use]
    pub fn packed_bits(&self) -> u32 {
        self.packing().bits()
    }

    /// The byte that an element begins in after the element steps; of groups, the first of its group. Saturates.
    #[must_use]
    pub fn packed_byte_of(&self, element: u64) -> u64 {
        self.packing().byte_of(element)
    }

    /// Bytes of `elements` elements after the element steps: the last byte may be partly used. Saturates.
    #[must_use]
    pub fn packed_bytes(&self, elements: u64) -> u64 {
        self.packing().bytes_of(elements)
    }

    /// The elements of which any bit, or the scale, is in these bytes of the packed form. Saturates.
    #[must_use]
    pub fn elements_in(&self, packed: Range<u64>) -> Range<u64> {
        let (elements, bits) = (self.packing().unit_elements(), self.packing().unit_bits());
        let (elements, bits) = (u128::from(elements), u128::from(bits.max(1)));
        let narrow = |units: u128| u64::try_from(units * elements).unwrap_or(u64::MAX);
        let (start, end) = (u128::from(packed.start) * 8, u128::from(packed.end) * 8);
        narrow(start / bits)..narrow(end.div_ceil(bits))
    }

    /// A run of so many elements, or a multiple, is packed into whole bytes that no other element is in.
    #[must_use]
    pub fn whole_elements(&self) -> u64 {
        match self.packing() {
            Packing::Bits(bits) if !bits.is_multiple_of(8) => 8,
            packing => packing.unit_elements(),
        }
    }

    /// The most bytes that a frame of `elements` elements is stored in. A frame that a compressor would not shrink is stored
    /// packed, so this is the packed length.
    #[must_use]
    pub fn stored_bytes_max(&self, elements: u64) -> u64 {
        self.packed_bytes(elements)
    }

    /// As [`encode_frame_at`](Chain::encode_frame_at), of the first frame of a stream: of most chains there is no difference.
    ///
    /// # Errors
    /// As there.
    pub fn encode_frame(
        &self,
        src: &[u8],
        scratch: &mut Scratch,
        dst: &mut [u8],
    ) -> Result<Encoded, TransformError> {
        self.encode_frame_at(0, src, scratch, dst)
    }

    /// Encodes one frame, which begins with element `first` of its stream: whole elements of the source type in `src`, into the front of `dst`.
    /// Checked: a value that does not fit is an error with its index in `src`. Groups of elements that share a scale begin with the frame, rows
    /// with the stream.
    ///
    /// A frame that the compressor would not shrink is stored as its packed bytes; a reader knows it by its length.
    ///
    /// # Errors
    /// [`OutOfRange`](TransformError::OutOfRange), [`Unscalable`](TransformError::Unscalable), [`BeyondScale`](TransformError::BeyondScale), or a
    /// `src` or `dst` of the wrong size.
    pub fn encode_frame_at(
        &self,
        first: u64,
        src: &[u8],
        scratch: &mut Scratch,
        dst: &mut [u8],
    ) -> Result<Encoded, TransformError> {
        let inner = &*self.inner;
        if !src.len().is_multiple_of(inner.source.bytes()) {
            return Err(TransformError::PartialElement {
                bytes: src.len(),
                element: inner.source,
            });
        }
        let elements = src.len() / inner.source.bytes();
        let packed_bytes = self.packed_bytes(elements as u64);
        self.check_frame_size(packed_bytes)?;
        let available = dst.len() as u64;
        let too_small = TransformError::DestinationTooSmall {
            needed: packed_bytes,
            available,
        };
        let Some(dst) = usize::try_from(packed_bytes)
            .ok()
            .and_then(|needed| dst.get_mut(..needed))
        else {
            return Err(too_small);
        };
        let packed_len = dst.len();
        if !self.is_framed() {
            let range = self.pack(first, src, dst)?;
            return Ok(Encoded {
                stored_bytes: packed_len,
                range,
            });
        }

        let (packed, range): (&[u8], _) = if inner.packings.is_empty() {
            (src, encoder::range(self.isa, inner.source, src))
        } else {
            let packed = sized(&mut scratch.packed, packed_len);
            let range = self.pack(first, src, packed)?;
            (packed, range)
        };
        let contexts = &mut scratch.contexts;
        let stored_bytes = match (self.by_table()?, inner.reorder, inner.compress) {
            (Some(by_table), ..) => {
                let codes = &mut scratch.reordered;
                self.encode_by_table(by_table, packed, codes, shorter(dst), contexts)?
            }
            (None, Some(reorder), None) => reorder.encode(self, packed, dst, contexts)?,
            (None, None, Some(compress)) => {
                compress.encode(self, packed, shorter(dst), contexts)?
            }
            (None, Some(reorder), Some(compress)) => {
                let reordered = sized(&mut scratch.reordered, packed_len);
                reorder.encode(self, packed, reordered, contexts)?;
                compress.encode(self, reordered, shorter(dst), contexts)?
            }
            (None, None, None) => None,
        };
        let stored_bytes = stored_bytes.unwrap_or_else(|| {
            dst.copy_from_slice(packed);
            packed_len
        });
        Ok(Encoded {
            stored_bytes,
            range,
        })
    }

    /// Undoes the block steps: `stored`, hostile input, is one stored frame; `packed.len()` is the exact packed length expected.
    /// `packed` is private memory: codecs read back what they wrote.
    ///
    /// # Errors
    /// [`Corrupt`](TransformError::Corrupt) for anything that is not a frame of that length. What `packed` holds then is
    /// unspecified.
    pub fn unblock(
        &self,
        stored: &[u8],
        scratch: &mut Scratch,
        packed: &mut [u8],
    ) -> Result<(), TransformError> {
        let inner = &*self.inner;
        scratch.times = BlockTimes::default();
        self.check_frame_size(packed.len() as u64)?;
        if stored.len() == packed.len() && (inner.compress.is_some() || inner.reorder.is_none()) {
            packed.copy_from_slice(stored);
            return Ok(());
        }
        if let Some(by_table) = self.by_table()? {
            return self.decode_by_table(by_table, stored, scratch, packed);
        }
        let (contexts, times) = (&mut scratch.contexts, &mut scratch.times);
        let undo =
            |step: Block, from: &[u8], to: &mut [u8], contexts: &mut Contexts, ns: &mut u64| {
                let begun = Instant::now();
                let undone = step.decode(self, from, to, contexts);
                *ns = ns_since(begun);
                undone
            };
        match (inner.reorder, inner.compress) {
            (Some(reorder), None) => undo(reorder, stored, packed, contexts, &mut times.reorder_ns),
            (_, Some(compress)) if stored.len() > packed.len() => {
                Err(compress.corrupt(stored, packed))
            }
            (None, Some(compress)) => {
                undo(compress, stored, packed, contexts, &mut times.compress_ns)
            }
            (Some(reorder), Some(compress)) => {
                let reordered = sized(&mut scratch.reordered, packed.len());
                undo(
                    compress,
                    stored,
                    reordered,
                    contexts,
                    &mut times.compress_ns,
                )?;
                undo(reorder, reordered, packed, contexts, &mut times.reorder_ns)
            }
            (None, None) => Err(TransformError::Corrupt {
                step: "none",
                why: wrong_length(stored, packed),
            }),
        }
    }

    fn check_frame_size(&self, packed_bytes: u64) -> Result<(), TransformError> {
        if self.is_framed() && packed_bytes > FRAME_BYTES_MAX {
            return Err(TransformError::FrameTooLarge {
                bytes: packed_bytes,
                max: FRAME_BYTES_MAX,
            });
        }
        Ok(())
    }
}

impl Inner {
    fn push(&mut self, step: &Step) -> Result<(), TransformError> {
        let kind = registry::by_step(step)?;
        let refuse = |why| TransformError::Order {
            step: kind.transform().format(step.parameter),
            why,
        };
        match kind {
            Kind::Element(transform) => {
                if self.by_table.is_some() || self.reorder.is_some() || self.compress.is_some() {
                    return Err(refuse("element steps come before block steps"));
                }
                transform.descriptor().check(step.parameter)?;
                let output = transform.output(&self.layout, step.parameter)?;
                if !self.source.is_integer() {
                    if !self.packings.is_empty() {
                        return Err(refuse("floating point is rounded once"));
                    }
                    if output.packing.bits() > self.source.bits() {
                        return Err(refuse("it would store more bits and no more values"));
                    }
                }
                self.layout = output;
                self.packings.push(self.layout.packing);
            }
            Kind::Block(transform) => {
                if self.compress.is_some() {
                    return Err(refuse("nothing comes behind a compressor"));
                }
                if self.reorder.is_some() && !transform.shrinks() {
                    return Err(refuse("one reordering step is enough"));
                }
                if self.by_table.is_some() && !transform.tells_length() {
                    return Err(refuse("behind rank comes a compressor, or nothing"));
                }
                let packed_bits = self.layout.packing.bits();
                transform.descriptor().check(step.parameter)?;
                transform.check(self.layout.packing, self.reorder.is_some())?;
                let block = Some(Block {
                    transform,
                    parameter: step.parameter,
                    packed_bits,
                });
                if transform.shrinks() {
                    self.compress = block;
                } else {
                    self.reorder = block;
                }
            }
            Kind::Table(transform) => {
                if self.by_table.is_some() || self.reorder.is_some() || self.compress.is_some() {
                    return Err(refuse("it is the first block step"));
                }
                transform.descriptor().check(step.parameter)?;
                transform.check(&self.layout)?;
                self.by_table = Some(transform);
            }
        }
        Ok(())
    }
}

impl Block {
    fn encode(
        self,
        chain: &Chain,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        self.transform
            .encode(self.geometry(chain)?, src, dst, contexts)
    }

    fn decode(
        self,
        chain: &Chain,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        self.transform
            .decode(self.geometry(chain)?, src, dst, contexts)
    }

    fn geometry(self, chain: &Chain) -> Result<Geometry<'_>, TransformError> {
        let table = self.transform.descriptor().id.table_kind();
        let table = table.map(|kind| chain.needed_table(kind)).transpose()?;
        Ok(Geometry {
            parameter: self.parameter,
            packed_bits: self.packed_bits,
            isa: chain.isa,
            dictionary: match table {
                Some(Table::Dictionary(dictionary)) => Some(dictionary),
                _ => None,
            },
        })
    }

    fn corrupt(self, stored: &[u8], packed: &[u8]) -> TransformError {
        TransformError::Corrupt {
            step: self.transform.descriptor().name,
            why: wrong_length(stored, packed),
        }
    }
}

/// All but the last byte: a compressed frame is shorter than the packed one, or it is not kept.
fn shorter(dst: &mut [u8]) -> &mut [u8] {
    let len = dst.len().saturating_sub(1);
    &mut dst[..len]
}

fn ns_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn wrong_length(stored: &[u8], packed: &[u8]) -> String {
    format!("{} bytes where {} belong", stored.len(), packed.len())
}

/// The canonical text, which [`Chain::parse`] reads back.
impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_identity() {
            return f.pad("none");
        }
        let mut texts = Vec::new();
        for step in self.steps() {
            let kind = registry::by_step(step).map_err(|_| fmt::Error)?;
            texts.push(kind.transform().format(step.parameter));
        }
        f.pad(&texts.join("+"))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({} from {})", self, self.source())
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Chain) -> bool {
        self.source() == other.source()
            && self.steps() == other.steps()
            && self.tables == other.tables
    }
}

impl Eq for Chain {}
