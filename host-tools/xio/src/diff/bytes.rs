//! Element by element, where there is no filesystem.

use std::sync::{Arc, Mutex, PoisonError};

use mount::Medium;
use printout::size::grouped;
use serde_json::{Value, json};
use transforms::ElementType;

use super::side::Side;
use crate::chunks;
use crate::failure::Failure;
use crate::medium::{self, Source};
use crate::pack::available_threads;
use crate::progress::Progress;

/// What came of it.
pub struct Compared {
    element: ElementType,
    /// Bytes of A and of B.
    lengths: (u64, u64),
    /// A namespace ends with a whole block: the zeros behind the bytes of the other side.
    padded: bool,
    /// Whether one side is a namespace.
    served: bool,
    compared: u64,
    different: u64,
    first: Option<First>,
}

struct First {
    element: u64,
    a: String,
    b: String,
}

impl Compared {
    /// Whether it is not the same.
    pub fn differs(&self) -> bool {
        self.different > 0 || (self.lengths.0 != self.lengths.1 && !self.padded)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "type": self.element.name(),
            "a_bytes": self.lengths.0,
            "b_bytes": self.lengths.1,
            "compared_elements": self.compared,
            "different_elements": self.different,
            "first": self.first.as_ref().map(|first| json!({
                "element": first.element,
                "byte": first.element * self.element.bytes() as u64,
                "a": first.a,
                "b": first.b,
            })),
        })
    }

    /// For people.
    pub fn to_text(&self, a: &str, b: &str) -> String {
        let (compared, name) = (grouped(self.compared), self.element.name());
        if !self.differs() {
            let length = match self.served {
                true => medium::LENGTH_UNKNOWN,
                false => "",
            };
            return format!(
                "{a} and {b} hold the same: {compared} elements of {name} compared{length}\n"
            );
        }
        let mut lines = Vec::new();
        if let Some(First { element, a, b }) = &self.first {
            let byte = grouped(element * self.element.bytes() as u64);
            lines.push(format!(
                "{} of {compared} elements of {name} differ; the first is element {} (byte {byte}): {a}; {b}",
                grouped(self.different),
                grouped(*element)
            ));
        }
        let (in_a, in_b) = self.lengths;
        if in_a != in_b && !self.padded {
            lines.push(format!(
                "{a} has {} bytes, {b} {}",
                grouped(in_a),
                grouped(in_b)
            ));
        }
        lines.join("\n") + "\n"
    }
}

/// Compares two sides without a filesystem.
pub fn compare(a: &Side, b: &Side) -> Result<Compared, Failure> {
    let (Side::Source(_, in_a), Side::Source(_, in_b)) = (a, b) else {
        return Err(Failure::usage(anyhow::anyhow!("a folder has files")));
    };
    let (medium_a, medium_b) = (in_a.medium(), in_b.medium());
    let lengths = (medium_a.bytes(), medium_b.bytes());
    let padded = is_padded(in_a, in_b) || is_padded(in_b, in_a);
    let total = match padded {
        true => lengths.0.max(lengths.1),
        false => lengths.0.min(lengths.1),
    };
    let element = element_of(in_a, in_b);
    let progress = Progress::start("comparing", Some(total));
    let found = Mutex::new((0, None::<First>));
    let bytes = element.bytes();
    chunks::for_each(
        total,
        available_threads(),
        || (Vec::new(), Vec::new()),
        |(one, other): &mut (Vec<u8>, Vec<u8>), range| {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            fill(a, &medium_a, range.start, len, one)?;
            fill(b, &medium_b, range.start, len, other)?;
            if one == other {
                return Ok(());
            }
            let pairs = one.chunks(bytes).zip(other.chunks(bytes));
            let differ = pairs.enumerate().filter(|(_, (one, other))| one != other);
            let first = differ.clone().next().map(|(index, (one, other))| First {
                element: range.start / bytes as u64 + index as u64,
                a: value(element, one),
                b: value(element, other),
            });
            let count = differ.count() as u64;
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.0 += count;
            let earlier = |first: &First| {
                let there = found.1.as_ref();
                there.is_none_or(|there| first.element < there.element)
            };
            if let Some(first) = first.filter(earlier) {
                found.1 = Some(first);
            }
            Ok(())
        },
        |done| progress.set(done),
    )?;
    let (different, first) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Compared {
        element,
        lengths,
        padded,
        served: [in_a, in_b]
            .iter()
            .any(|it| matches!(it, Source::Namespace(_))),
        compared: total.div_ceil(bytes as u64),
        different,
        first,
    })
}

/// Whether `longer` is the namespace of whole blocks that presents as many bytes as `shorter`.
fn is_padded(longer: &Source, shorter: &Source) -> bool {
    let (Source::Namespace(namespace), Source::Volume(volume)) = (longer, shorter) else {
        return false;
    };
    let lba_bytes = u64::from(namespace.lba_bytes());
    volume.bytes().next_multiple_of(lba_bytes) == namespace.bytes()
}

/// Zeros behind the end.
fn fill(
    side: &Side,
    medium: &Arc<dyn Medium>,
    at: u64,
    len: usize,
    into: &mut Vec<u8>,
) -> Result<(), Failure> {
    into.clear();
    into.resize(len, 0);
    let left = medium.bytes().saturating_sub(at);
    let there = usize::try_from(left).map_or(len, |left| left.min(len));
    let read = medium.read(at, &mut into[..there]);
    read.map_err(|failure| Failure::from(failure).about(side.name()))
}

/// What both consist of: a namespace does not say, and is taken for what the other is.
fn element_of(a: &Source, b: &Source) -> ElementType {
    let of = |source: &Source| match source {
        Source::Volume(volume) => Some(volume.element()),
        Source::Namespace(_) => None,
    };
    match (of(a), of(b)) {
        (Some(Some(a)), Some(Some(b))) if a == b => a,
        (Some(Some(only)), None) | (None, Some(Some(only))) => only,
        _ => ElementType::U8,
    }
}

/// An element for people; the last may be cut off.
fn value(element: ElementType, bytes: &[u8]) -> String {
    let whole = bytes.len() == element.bytes();
    let mut wide = [0; 8];
    if let Some(into) = wide.get_mut(..bytes.len()) {
        into.copy_from_slice(bytes);
    }
    let number = u64::from_le_bytes(wide);
    match (element, whole) {
        (ElementType::F64, true) => f64::from_bits(number).to_string(),
        (ElementType::F32, true) => f32::from_bits(u32::try_from(number).unwrap_or(0)).to_string(),
        (element, true) if element.is_signed_integer() => {
            let unused = 64 - element.bits();
            (number.cast_signed() << unused >> unused).to_string()
        }
        (element, true) if element.is_integer() => number.to_string(),
        (_, _) => format!("{number:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_as_its_type_says() {
        for (element, bytes, text) in [
            (ElementType::U8, &[200][..], "200"),
            (ElementType::I8, &[200], "-56"),
            (ElementType::I32, &[0xfe, 0xff, 0xff, 0xff], "-2"),
            (ElementType::U32, &[1, 2, 0, 0], "513"),
            (ElementType::I64, &[0xff; 8], "-1"),
            (ElementType::U64, &[0xff; 8], "18446744073709551615"),
            (ElementType::F32, &[0, 0, 0x80, 0x3f], "1"),
            (ElementType::F64, &[0, 0, 0, 0, 0, 0, 0xe0, 0xbf], "-0.5"),
            (ElementType::Bf16, &[0x80, 0x3f], "0x3f80"),
            (ElementType::U32, &[1, 2], "0x201"),
        ] {
            assert_eq!(value(element, bytes), text, "{element}");
        }
    }
}
