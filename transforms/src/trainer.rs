//! Makes a dictionary out of frames like those that it is for.

use crate::dictionary::Dictionary;
use crate::scratch::Scratch;
use crate::table::TableKind;
use crate::{Chain, TransformError};

/// Trains the dictionary of a chain with the step `zstd-dict` on some of the frames that it will store.
///
/// Frames go through the steps before the compressor: the chain has the tables of these. Few frames are enough, if they are spread evenly over
/// the data. The same frames give the same dictionary.
#[derive(Debug)]
pub struct DictionaryTrainer {
    chain: Chain,
    scratch: Scratch,
    /// What the compressor would get, frame behind frame.
    samples: Vec<u8>,
    lengths: Vec<usize>,
    /// Of the source, in these frames.
    source_bytes: u64,
}

impl DictionaryTrainer {
    /// The most bytes of a trained dictionary. More gains little in frames of some KiB.
    pub const DICTIONARY_BYTES_MAX: usize = 110 << 10;
    /// The least: with fewer, one that is made of less than this is not worth having.
    pub const DICTIONARY_BYTES_MIN: usize = 1 << 10;
    /// What is behind the steps before the compressor is so many times as long as the dictionary, or longer: so little is lost where it gains nothing.
    pub const DATA_PER_DICTIONARY: u64 = 32;
    /// The most bytes of samples that are kept: a hundred times the dictionary, as zstd advises.
    pub const SAMPLE_BYTES_MAX: usize = 100 * Self::DICTIONARY_BYTES_MAX;
    /// The least frames that zstd trains on.
    pub const SAMPLES_MIN: usize = 8;

    /// A trainer for a chain, which has all its tables but the dictionary.
    ///
    /// # Errors
    /// [`TransformError::TableNeeded`]: no step of it takes a dictionary, or another table is not there.
    pub fn new(chain: &Chain) -> Result<DictionaryTrainer, TransformError> {
        if !chain.takes(TableKind::Dictionary) {
            return Err(chain.table_needed(TableKind::Dictionary.not_taken()));
        }
        for kind in chain.table_kinds() {
            if kind != TableKind::Dictionary {
                chain.needed_table(kind)?;
            }
        }
        Ok(DictionaryTrainer {
            chain: chain.clone(),
            scratch: Scratch::new(),
            samples: Vec::new(),
            lengths: Vec::new(),
            source_bytes: 0,
        })
    }

    /// As [`add_frame_at`](Self::add_frame_at), of the first frame of a stream: of most chains there is no difference.
    ///
    /// # Errors
    /// As there.
    pub fn add_frame(&mut self, src: &[u8]) -> Result<bool, TransformError> {
        self.add_frame_at(0, src)
    }

    /// Takes a frame in, which begins with element `first` of its stream: whole elements of the source type. Says whether there is room for another
    /// one as long; without room it does nothing.
    ///
    /// # Errors
    /// As [`Chain::encode_frame_at`].
    pub fn add_frame_at(&mut self, first: u64, src: &[u8]) -> Result<bool, TransformError> {
        if src.is_empty() {
            return Ok(true);
        }
        let sample = (self.chain).compressor_input(first, src, &mut self.scratch)?;
        let len = sample.len();
        if self.samples.len() + len > Self::SAMPLE_BYTES_MAX {
            return Ok(false);
        }
        self.samples.extend_from_slice(sample);
        self.lengths.push(len);
        self.source_bytes += src.len() as u64;
        Ok(self.samples.len() + len <= Self::SAMPLE_BYTES_MAX)
    }

    /// How many frames it has taken in.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.lengths.len()
    }

    /// Trains a dictionary for `data_bytes` bytes of the source, of which the frames are a part: the less that is, the shorter it is.
    ///
    /// # Errors
    /// [`TransformError::Untrained`]: there is too little of it, and what to do.
    pub fn train(&self, data_bytes: u64) -> Result<Dictionary, TransformError> {
        if self.lengths.len() < Self::SAMPLES_MIN {
            let frames = match self.lengths.len() {
                1 => "1 frame".to_owned(),
                many => format!("{many} frames"),
            };
            return Err(self.untrained(format!(
                "it has {frames} to be trained on, and at least {} are needed; shorter ones would be more",
                Self::SAMPLES_MIN
            )));
        }
        let data = self.compressor_input_bytes(data_bytes);
        let most = usize::try_from(data / Self::DATA_PER_DICTIONARY).unwrap_or(usize::MAX);
        if most < Self::DICTIONARY_BYTES_MIN {
            return Err(self.untrained(format!(
                "{data} bytes that zstd would get are too few for a dictionary to earn its own; at least {} are needed",
                Self::DICTIONARY_BYTES_MIN as u64 * Self::DATA_PER_DICTIONARY
            )));
        }
        let mut bytes = vec![0; most.min(Self::DICTIONARY_BYTES_MAX)];
        let made = zstd_safe::train_from_buffer(&mut bytes[..], &self.samples, &self.lengths);
        let len = made.map_err(|code| self.unlike(zstd_safe::get_error_name(code)))?;
        // Of what repeats itself alone it makes less than a dictionary.
        Dictionary::parse(&bytes[..len]).map_err(|error| self.unlike(&error.to_string()))
    }

    fn unlike(&self, why: &str) -> TransformError {
        let why = why.to_lowercase();
        self.untrained(format!(
            "zstd makes none of its frames, which have too little in common or only repeat themselves ({why})"
        ))
    }

    /// What a compressor would get of so many bytes of the source, by the frames that are here.
    fn compressor_input_bytes(&self, data_bytes: u64) -> u64 {
        let data = u128::from(data_bytes.max(self.source_bytes));
        let samples = self.samples.len() as u128;
        let bytes = samples * data / u128::from(self.source_bytes.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn untrained(&self, why: String) -> TransformError {
        TransformError::Untrained {
            why,
            instead: self.chain.to_string().replace("zstd-dict:", "zstd:"),
        }
    }
}
