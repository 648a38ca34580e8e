//! What stands in front of the planes of a frame, and where each part lies.

use std::ops::Range;

use super::code::Code;
use super::{GROUP_ELEMENTS, corrupt};
use crate::TransformError;
use crate::kernels::huffman::STREAMS;
use crate::kernels::rotated::PLANES_MAX;

/// Bytes of a stream's length.
const LENGTH_BYTES: usize = 2;

/// Bytes of the lengths of a group's streams, of one plane.
pub(super) const LENGTHS_BYTES: usize = STREAMS * LENGTH_BYTES;

/// A frame whose parts are all there; of the streams only where they lie is known.
pub(super) struct Frame<'a> {
    pub(super) planes: [Plane<'a>; PLANES_MAX],
    streams: Streams<'a>,
}

/// How a plane is stored.
#[derive(Clone, Copy)]
pub(super) enum Plane<'a> {
    /// One that the elements do not have.
    None,
    /// As it is.
    Raw(&'a [u8]),
    /// The same byte in every element.
    Constant(u8),
    /// In streams, with this code.
    Coded(&'a Code),
}

/// The streams that have not been taken yet.
pub(super) struct Streams<'a> {
    lengths: std::slice::Iter<'a, [u8; LENGTH_BYTES]>,
    at: usize,
}

impl<'a> Frame<'a> {
    /// Reads a frame of `elements` elements of `width` bytes. `codes` is for the codes of its planes.
    pub(super) fn read(
        src: &'a [u8],
        width: usize,
        elements: usize,
        codes: &'a mut [Code; PLANES_MAX],
    ) -> Result<Frame<'a>, TransformError> {
        let mut rest = src;
        let coded = read_head(&mut rest, width, elements)?;
        let mut planes = [Plane::None; PLANES_MAX];
        for ((j, plane), code) in planes[..width].iter_mut().enumerate().zip(codes) {
            if coded >> j & 1 == 1 {
                code.read(&mut rest)?;
                *plane = code.constant().map_or(Plane::Coded(code), Plane::Constant);
            }
        }
        let in_streams = planes
            .iter()
            .filter(|it| matches!(it, Plane::Coded(_)))
            .count();
        let lengths_bytes = elements.div_ceil(GROUP_ELEMENTS) * in_streams * LENGTHS_BYTES;
        let lengths = take(
            &mut rest,
            lengths_bytes,
            "it ends in the lengths of its streams",
        )?;
        let (lengths, _) = lengths.as_chunks();
        for (j, plane) in planes[..width].iter_mut().enumerate() {
            if coded >> j & 1 == 0 {
                *plane = Plane::Raw(take(&mut rest, elements, "it ends in a plane")?);
            }
        }
        let stream_bytes: usize = lengths
            .iter()
            .map(|it| usize::from(u16::from_le_bytes(*it)))
            .sum();
        if stream_bytes != rest.len() {
            return Err(corrupt(&format!(
                "streams of {stream_bytes} bytes in {}",
                rest.len()
            )));
        }
        Ok(Frame {
            planes,
            streams: Streams {
                lengths: lengths.iter(),
                at: src.len() - rest.len(),
            },
        })
    }

    /// The planes, and their streams.
    pub(super) fn parts(self) -> ([Plane<'a>; PLANES_MAX], Streams<'a>) {
        (self.planes, self.streams)
    }
}

impl Streams<'_> {
    /// Where those of the next group lie in the frame.
    pub(super) fn next_group(&mut self) -> [Range<usize>; STREAMS] {
        std::array::from_fn(|_| {
            let length = self
                .lengths
                .next()
                .map_or(0, |it| usize::from(u16::from_le_bytes(*it)));
            self.at += length;
            self.at - length..self.at
        })
    }
}

/// The first four bytes of a frame: its elements, and the planes that have a code.
pub(super) fn head(elements: usize, coded: u8) -> [u8; 4] {
    let elements = u32::try_from(elements).unwrap_or(u32::MAX);
    (elements | u32::from(coded) << 24).to_le_bytes()
}

/// Checks the first four bytes; returns the planes that have a code.
fn read_head(rest: &mut &[u8], width: usize, elements: usize) -> Result<u8, TransformError> {
    let head = take(rest, 4, "it ends in its head")?;
    let coded = head[3];
    if head != self::head(elements, coded) {
        return Err(corrupt(&format!(
            "another number of elements than {elements}"
        )));
    }
    if coded == 0 || u32::from(coded) >> width != 0 {
        return Err(corrupt(&format!("planes {coded:#010b} of {width}")));
    }
    Ok(coded)
}

/// The first `len` bytes of `rest`, which moves on behind them.
fn take<'a>(rest: &mut &'a [u8], len: usize, why: &str) -> Result<&'a [u8], TransformError> {
    let (taken, behind) = rest.split_at_checked(len).ok_or_else(|| corrupt(why))?;
    *rest = behind;
    Ok(taken)
}
