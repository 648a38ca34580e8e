//! The writer against its contract.

mod crash;
mod errors;
mod files;
mod forecast;
mod mapped;
mod round_trip;
mod threads;

use std::fs::File;
use std::io;
use std::path::PathBuf;

use transforms::{Chain, ElementType, ViewChain};

use super::{
    ExtentSpec, Finished, Integrity, Options, Output, StreamSpec, WriteError, Writer, Written,
};

/// What a writer did to its output.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Write { offset: u64, bytes: Vec<u8> },
    Sync,
    Publish,
}

/// An output that remembers.
#[derive(Debug, Default)]
struct Recorder {
    actions: Vec<Action>,
}

impl Output for &mut Recorder {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let bytes = bytes.to_vec();
        self.actions.push(Action::Write { offset, bytes });
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.actions.push(Action::Sync);
        Ok(())
    }

    fn publish(&mut self) -> Result<(), WriteError> {
        self.actions.push(Action::Publish);
        Ok(())
    }

    fn scratch_file(&self) -> Result<File, WriteError> {
        Err(self.failed("creating", io::ErrorKind::Unsupported.into()))
    }

    fn failed(&self, action: &'static str, error: io::Error) -> WriteError {
        let path = PathBuf::from("memory");
        WriteError::Output {
            action,
            path,
            error,
        }
    }
}

impl Recorder {
    /// The bytes after all that was recorded.
    fn image(&self) -> Vec<u8> {
        let mut image = Vec::new();
        for action in &self.actions {
            if let Action::Write { offset, bytes } = action {
                apply(&mut image, *offset, bytes);
            }
        }
        image
    }
}

/// Writes `bytes` at `offset` of a file that grows as files do.
fn apply(image: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let offset = usize::try_from(offset).unwrap();
    if image.len() < offset + bytes.len() {
        image.resize(offset + bytes.len(), 0);
    }
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn options(threads: usize) -> Options {
    Options {
        lba_bytes: 4096,
        threads,
        volume_uuid: None,
        writer: "test".into(),
    }
}

fn spec(chain: &str, element: ElementType, frame_bytes: u64) -> StreamSpec {
    StreamSpec {
        chain: Chain::parse(chain, element).unwrap(),
        frame_bytes,
        integrity: Integrity::Crc32c,
    }
}

fn whole(stream: &Written) -> ExtentSpec {
    ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 0,
        elements: stream.elements,
        view: ViewChain::identity(),
    }
}

/// A volume of one stream and one view over it.
fn pack<O: Output>(
    output: O,
    threads: usize,
    spec: &StreamSpec,
    mut source: &[u8],
) -> Result<Finished, WriteError> {
    let mut writer = Writer::new(output, options(threads))?;
    let stream = writer.add_stream(spec, &mut source, &mut |_| {})?;
    writer.add_view("all", [whole(&stream)])?;
    writer.finish()
}

/// u32 values below `limit`, the same each time.
fn values(count: usize, limit: u32) -> Vec<u8> {
    let mut state = 1u32;
    (0..count)
        .flat_map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Runs, so that compressors have something to find.
            ((state >> 8) % limit / 16 * 16).to_le_bytes()
        })
        .collect()
}
