//! What a view presents, byte by byte, before a volume holds it: digests, and the values that a conversion meets.

use std::collections::BTreeMap;
use std::path::Path;

use formats::{ByteSource, Part, Presentation};
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};
use transforms::{
    Chain, Decoder, ElementType, OutSegments, PackedWindow, TransformError, ViewChain,
};

use crate::DatasetError;

/// Source bytes that are converted at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Takes presented bytes, in order.
pub trait Sink {
    /// The next of them.
    fn bytes(&mut self, presented: &[u8]);

    /// What they were in the source, where they are converted: called before [`bytes`](Sink::bytes), with whole elements.
    fn converted(&mut self, _stored: (ElementType, &[u8]), _presented: (ElementType, &[u8])) {}
}

/// Gives all that `presentation` presents of `source` to `sink`.
///
/// # Errors
/// Reads that fail; integers that the presented type does not hold, with their place in the file.
pub fn feed(
    source: &dyn ByteSource,
    path: &Path,
    presentation: &Presentation,
    sink: &mut dyn Sink,
) -> Result<(), DatasetError> {
    let mut buffer = Vec::new();
    let read = |buffer: &mut Vec<u8>, offset: u64, bytes: u64| {
        // At most CHUNK_BYTES.
        buffer.resize(usize::try_from(bytes).unwrap_or(0), 0);
        let read = source.read_at(offset, buffer);
        read.map_err(|error| DatasetError::io("reading", path, error))
    };
    for part in presentation.parts() {
        match part {
            Part::New(bytes) => sink.bytes(bytes),
            Part::Zero { bytes } => zeros(*bytes, sink),
            Part::Source { offset, bytes } => {
                for (at, chunk) in chunks(*bytes) {
                    read(&mut buffer, offset + at, chunk)?;
                    sink.bytes(&buffer);
                }
            }
            Part::Converted {
                name,
                offset,
                elements,
                stored,
                presented,
            } => {
                let failed = |at: u64, error: TransformError| {
                    let place = format!("{}: {name}", path.display());
                    let why = format!(
                        "cannot be {presented}: from byte {} on: {error}; choose a type that holds it",
                        offset + at
                    );
                    DatasetError::data(place, why)
                };
                let decoder = converter(*stored, *presented).map_err(|error| failed(0, error))?;
                let mut out = Vec::new();
                for (at, chunk) in chunks(elements * stored.bytes() as u64) {
                    read(&mut buffer, offset + at, chunk)?;
                    convert(&decoder, *stored, &buffer, &mut out)
                        .map_err(|error| failed(at, error))?;
                    sink.converted((*stored, &buffer), (*presented, &out));
                    sink.bytes(&out);
                }
            }
        }
    }
    Ok(())
}

fn zeros(mut bytes: u64, sink: &mut dyn Sink) {
    const ZEROS: [u8; 4096] = [0; 4096];
    while bytes > 0 {
        let len = usize::try_from(bytes).map_or(ZEROS.len(), |bytes| bytes.min(ZEROS.len()));
        sink.bytes(ZEROS.get(..len).unwrap_or_default());
        bytes -= len as u64;
    }
}

fn chunks(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..bytes.div_ceil(CHUNK_BYTES)).map(|chunk| chunk * CHUNK_BYTES);
    starts.map(move |at| (at, CHUNK_BYTES.min(bytes - at)))
}

fn converter(stored: ElementType, presented: ElementType) -> Result<Decoder, TransformError> {
    let plain = Chain::from_steps(&[], stored)?;
    Decoder::new(&plain, &ViewChain::parse(presented.name(), stored)?, None)
}

fn convert(
    decoder: &Decoder,
    stored: ElementType,
    elements: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), TransformError> {
    let presented = elements.len() / stored.bytes() * decoder.presented().bytes();
    out.resize(presented, 0);
    let window = PackedWindow {
        first_byte: 0,
        bytes: elements,
    };
    decoder.expand(
        window,
        0..presented as u64,
        &mut OutSegments::from_slice(out),
    )
}

/// The SHA-256 of what is presented.
///
/// # Errors
/// As [`feed`].
pub fn sha256(
    source: &dyn ByteSource,
    path: &Path,
    presentation: &Presentation,
) -> Result<[u8; 32], DatasetError> {
    use sha2::Digest;
    struct Hash(Sha256);
    impl Sink for Hash {
        fn bytes(&mut self, presented: &[u8]) {
            Digest::update(&mut self.0, presented);
        }
    }
    let mut hash = Hash(Sha256::new());
    feed(source, path, presentation, &mut hash)?;
    Ok(hash.0.finalize().into())
}

/// The hashes of what is presented, as an index asks for them by name; hexadecimal.
///
/// # Errors
/// An algorithm that is not made here; as [`feed`].
pub(crate) fn hashes(
    source: &dyn ByteSource,
    path: &Path,
    presentation: &Presentation,
    names: &[&str],
) -> Result<BTreeMap<String, String>, DatasetError> {
    struct Hashes(Vec<(String, Box<dyn DynDigest>)>);
    impl Sink for Hashes {
        fn bytes(&mut self, presented: &[u8]) {
            for (_, hash) in &mut self.0 {
                hash.update(presented);
            }
        }
    }
    let mut hashes = Hashes(Vec::new());
    for name in names {
        let hash: Box<dyn DynDigest> = match *name {
            "sha256" => Box::new(<Sha256 as Default>::default()),
            "sha512" => Box::new(<Sha512 as Default>::default()),
            name => {
                let why = format!(
                    "its index has {name} hashes, and of changed shards only sha256 and sha512 are made; write the dataset with one of these, or without"
                );
                return Err(DatasetError::refused(format!("{}:", path.display()), why));
            }
        };
        hashes.0.push(((*name).to_owned(), hash));
    }
    if !names.is_empty() {
        feed(source, path, presentation, &mut hashes)?;
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let finished = hashes.0.into_iter();
    Ok(finished
        .map(|(name, hash)| (name, hex(&hash.finalize())))
        .collect())
}
