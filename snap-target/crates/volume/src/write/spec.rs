//! What a volume is to hold, as the caller says it: of the whole, of each stream, of each view.

use transforms::{Chain, ViewChain};

use super::WriteError;
use super::batch::Cut;
use crate::format::StreamIndex;
use crate::format::raw::RawFrame;
use crate::identity::Uuid;
use crate::limits;

/// Source bytes of a frame when nobody says otherwise.
pub const FRAME_BYTES_DEFAULT: u64 = 64 << 10;
/// The largest frame that the writer makes, in source bytes; its packed form has the format's limit besides.
pub const FRAME_BYTES_MAX: u64 = limits::FRAME_PACKED_BYTES_MAX;
/// The elements of a frame are a multiple of this, so that packed frames are whole bytes; and whole groups, of a chain that packs in groups.
const FRAME_ELEMENTS_UNIT: u64 = 8;

/// What concerns the whole volume.
#[derive(Debug, Clone)]
pub struct Options {
    /// Logical block size of every view: 512 or 4096.
    pub lba_bytes: u32,
    /// Threads that encode. The volume is the same for every number.
    pub threads: usize,
    /// The volume's UUID. `None`: derived from the content, so that the same input gives the same volume.
    pub volume_uuid: Option<Uuid>,
    /// The program that writes, for people: up to 32 bytes are kept.
    pub writer: String,
}

/// What vouches for stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Integrity {
    /// A CRC-32C for each frame, or each 4 KiB.
    #[default]
    Crc32c,
    /// Nothing: a flipped bit is presented. Streams without block steps only.
    None,
}

/// How a stream is stored.
#[derive(Debug, Clone)]
pub struct StreamSpec {
    /// The stored chain; its source type is that of the input.
    pub chain: Chain,
    /// Source bytes of a frame, for chains with block steps: rounded down to a multiple of 8 elements.
    pub frame_bytes: u64,
    /// What vouches for it.
    pub integrity: Integrity,
}

impl StreamSpec {
    /// The default frame and integrity.
    #[must_use]
    pub fn new(chain: Chain) -> StreamSpec {
        StreamSpec {
            chain,
            frame_bytes: FRAME_BYTES_DEFAULT,
            integrity: Integrity::Crc32c,
        }
    }

    /// Whether a stream can be stored so.
    ///
    /// # Errors
    /// [`WriteError::Refused`], with the rule.
    pub fn check(&self) -> Result<(), WriteError> {
        self.cut().map(|_| ())
    }

    /// Elements of a frame; `None` where the chain has none, or no stream can be stored so.
    #[must_use]
    pub fn frame_elements(&self) -> Option<u64> {
        self.cut().ok()?.frame_elements
    }

    /// What a stream of so many elements takes at the least, whatever they are: the packed elements; of those that are compressed, an entry and a byte for each frame.
    #[must_use]
    pub fn bytes_min(&self, elements: u64) -> u64 {
        match self.frame_elements() {
            None => self.chain.packed_bytes(elements),
            Some(frame_elements) => {
                let frames = elements.div_ceil(frame_elements);
                frames.saturating_mul(size_of::<RawFrame>() as u64 + 1)
            }
        }
    }

    pub(super) fn cut(&self) -> Result<Cut, WriteError> {
        let refused = |field, why| Err(WriteError::Refused { field, why });
        if !self.chain.is_framed() {
            return Ok(Cut {
                chain: self.chain.clone(),
                frame_elements: None,
            });
        }
        if self.integrity == Integrity::None {
            let why = format!(
                "{} has frames, and frames always have a checksum",
                self.chain
            );
            return refused("integrity", why);
        }
        let element_bytes = self.chain.source().bytes() as u64;
        let unit = self.chain.whole_elements().max(FRAME_ELEMENTS_UNIT);
        let frame_elements = self.frame_bytes / element_bytes / unit * unit;
        if frame_elements == 0 {
            let why = format!(
                "{} bytes hold less than {unit} elements of {}; {} bytes are the least",
                self.frame_bytes,
                self.chain.source(),
                unit * element_bytes,
            );
            return refused("frame size", why);
        }
        let packed_bytes = self.chain.packed_bytes(frame_elements);
        if self.frame_bytes > FRAME_BYTES_MAX || packed_bytes > limits::FRAME_PACKED_BYTES_MAX {
            let why = format!(
                "{} source bytes, {packed_bytes} packed: a frame has at most {FRAME_BYTES_MAX} of either",
                self.frame_bytes
            );
            return refused("frame size", why);
        }
        Ok(Cut {
            chain: self.chain.clone(),
            frame_elements: Some(frame_elements),
        })
    }
}

/// What is presented under a name.
#[derive(Debug, Clone, Default)]
pub struct ViewSpec {
    /// Unique in the volume: 1 to 255 bytes of text.
    pub name: String,
    /// What is known of it, as JSON; at most [`limits::BLOB_BYTES_MAX`] bytes. A lossy view has one.
    pub manifest: Option<Vec<u8>>,
    /// What it presents is not what its source held.
    pub lossy: bool,
}

impl From<&str> for ViewSpec {
    /// The source's own bytes, without a manifest.
    fn from(name: &str) -> ViewSpec {
        ViewSpec {
            name: name.to_owned(),
            ..ViewSpec::default()
        }
    }
}

impl From<&String> for ViewSpec {
    fn from(name: &String) -> ViewSpec {
        ViewSpec::from(name.as_str())
    }
}

/// A run of presented bytes, to follow the one before.
#[derive(Debug, Clone)]
pub enum ExtentSpec {
    /// So many zeros.
    Zero {
        /// Presented bytes.
        bytes: u64,
    },
    /// These bytes, at most 40.
    Inline(Vec<u8>),
    /// Elements of a stream.
    Linear {
        /// The stream.
        stream: StreamIndex,
        /// The first of them.
        first_element: u64,
        /// How many.
        elements: u64,
        /// How they are presented.
        view: ViewChain,
    },
}
