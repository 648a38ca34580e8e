//! What can go wrong while a volume is written. Places are positions in the input, where a person can look for them.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use transforms::{ElementType, TransformError};

/// An error of the writer. After one, nothing is at the output's name that was not there before.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The input could not be read.
    #[error("reading the input at byte {offset}: {error}")]
    Input {
        /// Bytes that were read before.
        offset: u64,
        /// What the system says.
        error: io::Error,
    },

    /// A file that was to be mapped is not what it was when the scan began.
    #[error("it changed while it was read ({what}): map it when nothing writes to it")]
    Changed {
        /// What is another one now.
        what: &'static str,
    },

    /// The input ends inside an element.
    #[error(
        "the input is {bytes} bytes, which is not a whole number of {element_type} elements of {} bytes: \
         {} bytes are left after element {}; check the element type, or cut the input",
        element_type.bytes(),
        bytes % element_type.bytes() as u64,
        bytes / element_type.bytes() as u64,
    )]
    PartialElement {
        /// Length of the input.
        bytes: u64,
        /// What it was said to hold.
        element_type: ElementType,
    },

    /// A value does not fit what it was to be stored as. Nothing is ever truncated.
    #[error("{}", describe_encode(*.element, *.byte, .error))]
    Encode {
        /// Index in the input of the first element that does not fit, or of the first of the frame that failed.
        element: u64,
        /// Its byte offset in the input.
        byte: u64,
        /// Why, with indices counted from the start of the input.
        error: TransformError,
    },

    /// The output could not be written.
    #[error("{action} {}: {error}", path.display())]
    Output {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },

    /// Table entries that were put aside could not be had back.
    #[error("reading the tables back from their scratch file: {error}")]
    Spool {
        /// What the system says.
        error: io::Error,
    },

    /// The output is there already.
    #[error("{} exists already; choose another name, or replace it with --force", path.display())]
    Exists {
        /// Its name.
        path: PathBuf,
    },

    /// The output's file system is full.
    #[error(
        "writing {}: {error}: it takes at least {bytes} bytes{}; nothing of it is kept: choose another place, or make room",
        path.display(),
        .room.map(|room| format!(", and there is room for {room}")).unwrap_or_default()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// What was written of it, and what was to be written then.
        bytes: u64,
        /// What it could have become, as far as the system says.
        room: Option<u64>,
        /// What the system said.
        error: io::Error,
    },

    /// The output is longer than a file may be.
    #[error(
        "writing {}: {error}: it takes at least {bytes} bytes; nothing of it is kept: the limit on files is smaller (RLIMIT_FSIZE; ulimit -f unlimited), or the file system's is",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What was written of it, and what was to be written then.
        bytes: u64,
        /// What the system said.
        error: io::Error,
    },

    /// The output's name belongs to something that is not a regular file.
    #[error("{} is not a regular file; choose the name of a file", path.display())]
    NotAFile {
        /// Its name.
        path: PathBuf,
    },

    /// A volume whose streams were to be taken over cannot be read.
    #[error("{error}")]
    Lender {
        /// Why.
        error: Box<crate::VolumeError>,
    },

    /// A rule of the format that the caller's parameters break.
    #[error("{field}: {why}")]
    Refused {
        /// Which parameter.
        field: &'static str,
        /// The rule.
        why: String,
    },
}

fn describe_encode(element: u64, byte: u64, error: &TransformError) -> String {
    match error {
        TransformError::OutOfRange { value, target, .. } => {
            let holds = target
                .range()
                .map(|range| format!(" ({range})"))
                .unwrap_or_default();
            let needs = match bits_needed(*value) {
                Some(bits) => format!("it needs {bits} bits"),
                None => "it is negative".to_owned(),
            };
            format!(
                "element {element} (byte {byte}) is {value}, which does not fit {target}{holds}: {needs}, \
                 and later elements may need more; choose a wider stored chain"
            )
        }
        TransformError::LargeId { value, end, .. } => format!(
            "element {element} (byte {byte}) is {value}, {}",
            transforms::no_id(*value, *end)
        ),
        TransformError::Unscalable { bits, .. } => format!(
            "element {element} (byte {byte}) is {}, for which q8_0 has no scale: it takes finite numbers below 8,321,040; store it as it is, or f32 as bf16",
            f32::from_bits(*bits)
        ),
        TransformError::NotFinite { bits, .. } => format!(
            "element {element} (byte {byte}) is {}, for which int8 has no scale: it takes finite numbers; store it as it is, or f32 as bf16",
            f32::from_bits(*bits)
        ),
        TransformError::BeyondScale { bits, .. } => format!(
            "element {element} (byte {byte}) is {}, and the scale of its row is too small for it",
            f32::from_bits(*bits)
        ),
        other => format!("frame at element {element} (byte {byte}): {other}"),
    }
}

/// Bits of an unsigned field that holds `value`; `None` for negative values, which no such field holds.
fn bits_needed(value: i128) -> Option<u32> {
    let magnitude = u128::try_from(value).ok()?;
    Some((u128::BITS - magnitude.leading_zeros()).max(1))
}
