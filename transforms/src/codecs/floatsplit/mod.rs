//! `floatsplit`: lossless for floating point. The exponents of weights are few and unequal, their fractions are noise: each element is turned
//! left by a bit, so that its exponent fills the highest byte and the sign is the lowest bit; then each plane of bytes is stored as it is, or in a
//! canonical prefix code of its own where that is shorter.
//!
//! The idea is ZipNN's (M. Hershcovitch and others, "ZipNN: Lossless Compression for AI Models", 2024, arXiv:2411.05239), and DFloat11's
//! (T. Zhang and others, 2025, arXiv:2504.11651). What is coded is cut into groups of [`GROUP_ELEMENTS`], so that a decoder puts elements
//! together out of the cache, and each group into streams (`kernels::huffman`).

mod code;
mod frame;
mod lengths;
mod streams;
#[cfg(test)]
mod tests;

use crate::TransformError;
use crate::chain::FRAME_BYTES_MAX;
use crate::element::Packing;
use crate::kernels::huffman::{self, Table};
use crate::kernels::rotated::{self, PLANES_MAX};
use crate::registry::{BlockTransform, Descriptor, Geometry, Parameter, Transform, TransformId};
use crate::scratch::{Contexts, sized};
use code::Code;
use frame::{Frame, Plane};
use lengths::Counts;
use streams::Codes;

/// The number on the volume.
pub const ID: TransformId = TransformId(0x104);

/// Elements of a group, which has streams of its own.
pub const GROUP_ELEMENTS: usize = 1 << 14;

/// A plane is coded where that saves more than this part of it: decoding costs more than copying.
const SAVED_PART_MIN: usize = 32;

/// The number of elements has three bytes, the length of a stream two.
const _: () = assert!(FRAME_BYTES_MAX / 2 < 1 << 24);
const _: () =
    assert!(GROUP_ELEMENTS / huffman::STREAMS * huffman::CODE_BITS_MAX as usize / 8 < 1 << 16);

/// The step `floatsplit`; it takes no parameter: the width is the packed element's.
pub struct FloatSplit;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "floatsplit",
    parameter: Parameter::None,
    grammar: "floatsplit",
    summary: "codes the exponents of floating point, and leaves fractions as they are",
};

impl Transform for FloatSplit {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl BlockTransform for FloatSplit {
    fn check(&self, input: Packing, reordered: bool) -> Result<(), TransformError> {
        let why = match input {
            Packing::Whole(element) if !element.is_integer() && !reordered => return Ok(()),
            Packing::Whole(element) if !element.is_integer() => {
                return Err(TransformError::Order {
                    step: DESCRIPTOR.name.into(),
                    why: "it splits elements itself: no shuffle comes before it",
                });
            }
            _ => "only floating point has exponents",
        };
        Err(TransformError::Input {
            step: DESCRIPTOR.name.into(),
            input,
            why,
        })
    }

    fn encode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let work: &mut Encoding = contexts
            .get(|| Some(Encoding::default()))
            .ok_or(NO_MEMORY)?;
        Ok(work.frame(geometry, src, dst))
    }

    fn decode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        let work: &mut Decoding = contexts
            .get(|| Some(Decoding::default()))
            .ok_or(NO_MEMORY)?;
        work.frame(geometry, src, dst)
    }
}

/// Work memory of encoding.
#[derive(Default)]
struct Encoding {
    /// The planes, one behind the other.
    planes: Vec<u8>,
    /// The codes, and the lengths of the streams behind them.
    head: Vec<u8>,
    streams: Vec<u8>,
}

impl Encoding {
    /// Writes a frame; `None` where it does not fit.
    fn frame(&mut self, geometry: Geometry<'_>, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let width = width_bytes(geometry);
        let elements = src.len() / width;
        if elements == 0 {
            return None;
        }
        let planes = sized(&mut self.planes, src.len());
        let mut parts: [&mut [u8]; PLANES_MAX] = Default::default();
        for (part, plane) in parts.iter_mut().zip(planes.chunks_mut(elements)) {
            *part = plane;
        }
        rotated::split(geometry.isa, src, &mut parts[..width]);

        let (head, streams) = (&mut self.head, &mut self.streams);
        let codes: [Option<Code>; PLANES_MAX] =
            std::array::from_fn(|j| worth_coding(parts[j], head));
        head.clear();
        streams.clear();
        let mut coded = 0;
        for (j, code) in codes.iter().enumerate() {
            if let Some(code) = code {
                coded |= 1 << j;
                code.write(head);
            }
        }
        let coders: [Option<Codes>; PLANES_MAX] = std::array::from_fn(|j| {
            let code = codes[j].as_ref().filter(|code| code.constant().is_none())?;
            Some(Codes::new(code))
        });
        for start in (0..elements).step_by(GROUP_ELEMENTS) {
            let end = elements.min(start + GROUP_ELEMENTS);
            for (plane, coder) in parts.iter().zip(&coders) {
                if let Some(coder) = coder {
                    let lengths = coder.encode(&plane[start..end], streams);
                    head.extend(lengths.iter().flat_map(|it| it.to_le_bytes()));
                }
            }
        }
        if coded == 0 {
            return None;
        }
        let first = frame::head(elements, coded);
        let raw = parts[..width]
            .iter()
            .zip(&codes)
            .filter(|(_, code)| code.is_none());
        let mut end = 0;
        let all = [&first, &head[..]]
            .into_iter()
            .chain(raw.map(|(plane, _)| &**plane))
            .chain([&streams[..]]);
        for part in all {
            dst.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        Some(end)
    }
}

/// The best code for the bytes of a plane, where it saves enough. `described` is work memory.
fn worth_coding(plane: &[u8], described: &mut Vec<u8>) -> Option<Code> {
    let counts = counts(plane);
    if is_noise(&counts, plane.len()) {
        return None;
    }
    let lengths = lengths::lengths(&counts);
    let code = Code::new(&lengths)?;
    described.clear();
    code.write(described);
    let mut bytes = described.len();
    if code.constant().is_none() {
        let bits: u64 = counts
            .iter()
            .zip(&lengths)
            .map(|(count, bits)| u64::from(*count) * u64::from(*bits))
            .sum();
        let groups = plane.len().div_ceil(GROUP_ELEMENTS);
        bytes += usize::try_from(bits.div_ceil(8)).ok()? + groups * frame::LENGTHS_BYTES;
    }
    (bytes < plane.len() - plane.len() / SAVED_PART_MIN).then_some(code)
}

/// Whether bytes that come so often are sure to save too little: their collision entropy (A. Renyi, 1961), which is not above the entropy that
/// bounds every code, is over 7.75 of 8 bits. It needs no search for a code, and no logarithm.
fn is_noise(counts: &Counts, len: usize) -> bool {
    /// A little more than 2^7.75.
    const EQUAL_SYMBOLS: u64 = 216;
    let squares: u64 = counts.iter().map(|count| u64::from(*count).pow(2)).sum();
    (len as u64).pow(2) > EQUAL_SYMBOLS * squares
}

/// How often each byte comes.
fn counts(plane: &[u8]) -> Counts {
    // Four of them, since the same byte again would have to wait for the count before.
    let mut counts = [[0u32; 256]; 4];
    let (quads, last) = plane.as_chunks::<4>();
    for quad in quads {
        for (counts, byte) in counts.iter_mut().zip(quad) {
            counts[usize::from(*byte)] += 1;
        }
    }
    for byte in last {
        counts[0][usize::from(*byte)] += 1;
    }
    std::array::from_fn(|i| counts.iter().map(|counts| counts[i]).sum())
}

/// Work memory of decoding: of each plane.
#[derive(Default)]
struct Decoding {
    codes: [Code; PLANES_MAX],
    planes: [Option<Box<Decoded>>; PLANES_MAX],
}

/// A plane that is decoded.
struct Decoded {
    table: Table,
    /// A group of its bytes.
    group: [u8; GROUP_ELEMENTS],
}

impl Decoding {
    /// Decodes a frame into `dst`, which is whole elements.
    fn frame(
        &mut self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), TransformError> {
        let width = width_bytes(geometry);
        let frame = Frame::read(src, width, dst.len() / width, &mut self.codes)?;
        let (planes, mut streams) = frame.parts();
        for (plane, decoded) in planes.iter().zip(&mut self.planes) {
            if let Plane::None | Plane::Raw(_) = plane {
                continue;
            }
            let decoded = decoded.get_or_insert_with(|| {
                Box::new(Decoded {
                    table: Table::new(),
                    group: [0; GROUP_ELEMENTS],
                })
            });
            match plane {
                Plane::Constant(byte) => decoded.group.fill(*byte),
                Plane::Coded(code) => decoded.table.set(geometry.isa, code.symbols()),
                _ => {}
            }
        }
        for (index, dst) in dst.chunks_mut(GROUP_ELEMENTS * width).enumerate() {
            let count = dst.len() / width;
            let mut parts = [&[][..]; PLANES_MAX];
            for ((part, plane), decoded) in parts.iter_mut().zip(&planes).zip(&mut self.planes) {
                *part = match (plane, decoded) {
                    (Plane::Raw(bytes), _) => &bytes[index * GROUP_ELEMENTS..][..count],
                    (Plane::Constant(_), Some(decoded)) => &decoded.group[..count],
                    (Plane::Coded(_), Some(decoded)) => {
                        let group = &mut decoded.group[..count];
                        huffman::decode(
                            geometry.isa,
                            &decoded.table,
                            src,
                            &streams.next_group(),
                            group,
                        )
                        .map_err(|wrong| {
                            corrupt(&format!(
                                "stream {} of group {index} does not end with its elements",
                                wrong.stream
                            ))
                        })?;
                        group
                    }
                    _ => continue,
                };
            }
            rotated::join(geometry.isa, &parts[..width], dst);
        }
        Ok(())
    }
}

fn width_bytes(geometry: Geometry<'_>) -> usize {
    (geometry.packed_bits / 8) as usize
}

fn corrupt(why: &str) -> TransformError {
    TransformError::Corrupt {
        step: DESCRIPTOR.name,
        why: why.into(),
    }
}

const NO_MEMORY: TransformError = TransformError::Memory {
    step: DESCRIPTOR.name,
};
