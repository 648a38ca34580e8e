//! What a view of a file consists of: new header bytes, ranges of the source, and elements to convert.

use transforms::{ElementType, Packing};

use crate::description::Payload;
use crate::{Dtype, FormatError, limits};

/// Where blocks of q8_0 can be presented, for messages.
pub(crate) const WHO_HAS_BLOCKS: &str = "GGUF has, and a file of elements without a header is blocks alone ('--as PATTERN=f32'); present f16 or f32 here";

/// Which type each payload is to be presented in; `None` for as it is.
pub type Targets<'a> = dyn Fn(&Payload) -> Option<Dtype> + 'a;

/// A run of a view's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Bytes that no source has: headers, indexes, padding.
    New(Vec<u8>),
    /// Zeros.
    Zero {
        /// How many.
        bytes: u64,
    },
    /// Bytes of the source, as they are.
    Source {
        /// First byte in the source.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Elements of the source, in another type.
    Converted {
        /// The payload that they are.
        name: String,
        /// First byte in the source.
        offset: u64,
        /// How many elements.
        elements: u64,
        /// Their type in the source.
        stored: ElementType,
        /// What they are in the view: of another type, or in blocks.
        presented: Packing,
    },
}

impl Part {
    /// Presented bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Part::New(bytes) => bytes.len() as u64,
            Part::Zero { bytes } | Part::Source { bytes, .. } => *bytes,
            Part::Converted {
                elements,
                presented,
                ..
            } => presented.bytes_of(*elements),
        }
    }
}

/// A view of one file: its parts, one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Presentation {
    parts: Vec<Part>,
}

impl Presentation {
    /// The source's exact bytes.
    #[must_use]
    pub fn exact(file_bytes: u64) -> Presentation {
        let mut whole = Presentation::default();
        whole.push_source(0, file_bytes);
        whole
    }

    /// New bytes only: a small file that is rewritten as a whole.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Presentation {
        let mut whole = Presentation::default();
        whole.push_new(&bytes);
        whole
    }

    /// The parts, in presented order; none is empty.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Presented bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts
            .iter()
            .fold(0, |sum, part| sum.saturating_add(part.bytes()))
    }

    /// Whether the source's bytes are presented as they are.
    #[must_use]
    pub fn is_exact(&self, file_bytes: u64) -> bool {
        *self == Presentation::exact(file_bytes)
    }

    pub(crate) fn push_new(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::New(before)) => before.extend_from_slice(bytes),
            _ => self.parts.push(Part::New(bytes.to_vec())),
        }
    }

    pub(crate) fn push_zeros(&mut self, bytes: u64) {
        if bytes > 0 {
            self.parts.push(Part::Zero { bytes });
        }
    }

    pub(crate) fn push_source(&mut self, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Source {
                offset: start,
                bytes: before,
            }) if *start + *before == offset => *before += bytes,
            _ => self.parts.push(Part::Source { offset, bytes }),
        }
    }

    /// The parts of another view behind these.
    pub(crate) fn append(&mut self, other: Presentation) {
        for part in other.parts {
            match part {
                Part::New(bytes) => self.push_new(&bytes),
                Part::Zero { bytes } => self.push_zeros(bytes),
                Part::Source { offset, bytes } => self.push_source(offset, bytes),
                converted @ Part::Converted { .. } => self.parts.push(converted),
            }
        }
    }

    /// The payload in its wanted type.
    pub(crate) fn push(&mut self, wanted: &Wanted<'_>) {
        let Wanted { payload, change } = wanted;
        match change {
            None => self.push_source(payload.offset, payload.bytes),
            Some(_) if payload.bytes == 0 => {}
            Some(change) => self.parts.push(Part::Converted {
                name: payload.name.clone(),
                offset: payload.offset,
                elements: payload.bytes / change.stored.bytes() as u64,
                stored: change.stored,
                presented: change.presented,
            }),
        }
    }
}

/// A payload and what it becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) payload: &'a Payload,
    pub(crate) change: Option<Change>,
}

/// A change of type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) stored: ElementType,
    pub(crate) presented: Packing,
}

impl Wanted<'_> {
    /// The presented type; `None` for what has none.
    pub(crate) fn dtype(&self) -> Option<Dtype> {
        match self.change {
            Some(change) => Dtype::of(change.presented),
            None => self.payload.contents.dtype(),
        }
    }

    /// Presented bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self.change {
            Some(Change { stored, presented }) => {
                // No longer than the file times eight: the widest type is eight times the narrowest.
                presented.bytes_of(self.payload.bytes / stored.bytes() as u64)
            }
            None => self.payload.bytes,
        }
    }
}

/// Every payload of a file, and what it becomes, in the file's order.
pub(crate) struct AllWanted<'a>(pub(crate) Vec<Wanted<'a>>);

impl AllWanted<'_> {
    /// Whether no type changes.
    pub(crate) fn is_exact(&self) -> bool {
        self.0.iter().all(|wanted| wanted.change.is_none())
    }

    /// Presented bytes of all payloads.
    pub(crate) fn bytes(&self) -> u64 {
        let each = self.0.iter().map(Wanted::bytes);
        each.fold(0, u64::saturating_add)
    }
}

/// Asks `targets` for each payload, and checks that the conversion exists.
pub(crate) fn wanted<'a>(
    payloads: &'a [Payload],
    targets: &Targets<'_>,
) -> Result<AllWanted<'a>, FormatError> {
    let one = |payload: &'a Payload| -> Result<Wanted<'a>, FormatError> {
        let Some(presented) = targets(payload) else {
            return Ok(Wanted {
                payload,
                change: None,
            });
        };
        let change = match payload.contents.dtype() {
            Some(stored) => stored.change_to(presented).map_err(|why| {
                FormatError::refused(shown(payload), format!("{stored} as {presented}: {why}"))
            })?,
            None => {
                let why = format!("holds no plain elements, so it cannot become {presented}");
                return Err(FormatError::refused(shown(payload), why));
            }
        };
        Ok(Wanted { payload, change })
    };
    Ok(AllWanted(
        payloads.iter().map(one).collect::<Result<_, _>>()?,
    ))
}

/// A view of elements without a header.
pub(crate) fn raw(file_bytes: u64, wanted: &AllWanted<'_>) -> Result<Presentation, FormatError> {
    let mut view = Presentation::default();
    let mut position = 0;
    for wanted in &wanted.0 {
        check_blocks(wanted)?;
        view.push_source(position, wanted.payload.offset.saturating_sub(position));
        view.push(wanted);
        position = wanted.payload.range().end;
    }
    view.push_source(position, file_bytes.saturating_sub(position));
    Ok(view)
}

/// What is presented in blocks is whole blocks: one that zeros filled up would present elements that are not there.
fn check_blocks(wanted: &Wanted<'_>) -> Result<(), FormatError> {
    let Wanted { payload, change } = wanted;
    let Some(Change { stored, presented }) = *change else {
        return Ok(());
    };
    let width = stored.bytes() as u64;
    let (elements, unit) = (payload.bytes / width, presented.unit_elements());
    let left = elements % unit;
    if left == 0 {
        return Ok(());
    }
    let byte = payload.offset + (elements - left) * width;
    let blocks = elements / unit;
    let why = format!(
        "{stored} as {presented}: {elements} elements are {blocks} blocks of {unit} and {left} more, from byte {byte} of the file on, which are no block"
    );
    Err(FormatError::refused(shown(payload), why))
}

/// A payload's name, for a message.
pub(crate) fn shown(payload: &Payload) -> &str {
    if payload.name.is_empty() {
        "the array"
    } else {
        &payload.name
    }
}

pub(crate) fn check_alignment(alignment: u64) -> Result<(), FormatError> {
    if alignment.is_power_of_two() && alignment <= limits::ALIGNMENT_MAX {
        return Ok(());
    }
    let why = format!(
        "{alignment} is no power of two up to {}",
        limits::ALIGNMENT_MAX
    );
    Err(FormatError::refused("alignment", why))
}
