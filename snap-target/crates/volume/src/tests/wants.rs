//! Drivers that have a place of their own for frames: the same bytes, and each rule of the interface.

use std::collections::HashMap;

use transforms::{ElementType, Scratch, ViewChain};

use super::sample::{Random, Sample, builder, small_volume, store_sample};
use crate::assemble::{Run, ViewSpec};
use crate::blocking::{ReadAt, open};
use crate::format::Layout;
use crate::limits::FETCH_BYTES_MAX;
use crate::{
    Cache, ErrorKind, FrameId, FrameWant, OutBuf, Placement, Progress, Reach, ReadOp, SourceId,
    StoredFrame, TableBlock, Volume, VolumeError, Want,
};

/// Reads with frames decoded elsewhere.
struct Elsewhere {
    store: Vec<u8>,
    volume: Volume,
    cache: Cache,
    scratch: Scratch,
    op: ReadOp,
    random: Random,
    frames: HashMap<FrameId, Vec<u8>>,
    /// Frames asked for by the last read.
    asked: Vec<FrameWant>,
}

impl Elsewhere {
    fn new(store: Vec<u8>) -> Elsewhere {
        Elsewhere {
            volume: open(&store, store.len() as u64).unwrap(),
            store,
            cache: Cache::new(0),
            scratch: Scratch::new(),
            op: ReadOp::new(),
            random: Random::new(3),
            frames: HashMap::new(),
            asked: Vec::new(),
        }
    }

    /// The stored bytes of a frame, rounded out.
    fn stored(&self, frame: &StoredFrame) -> Vec<u8> {
        let blocks = frame.blocks();
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize];
        let read = self.store.read_at(frame.source, blocks.start, &mut bytes);
        assert_eq!(read.unwrap(), bytes.len());
        bytes
    }

    fn decode(&mut self, frame: &StoredFrame, pieces: &[&[u8]]) -> Result<Vec<u8>, VolumeError> {
        let mut packed = vec![0xA5; frame.packed_bytes as usize];
        let (mut assembly, offset) = (Vec::new(), frame.blocks().start);
        let scratch = &mut self.scratch;
        frame.decode(
            &self.volume,
            pieces,
            offset,
            scratch,
            &mut assembly,
            &mut packed,
        )?;
        Ok(packed)
    }

    fn packed(&mut self, frame: &StoredFrame) -> Vec<u8> {
        if let Some(packed) = self.frames.get(&frame.id) {
            return packed.clone();
        }
        let stored = self.stored(frame);
        let cut = self.random.below(stored.len() as u64) as usize;
        let (head, tail) = stored.split_at(cut);
        let packed = self.decode(frame, &[head, tail]).unwrap();
        self.frames.insert(frame.id, packed.clone());
        packed
    }

    fn framed(
        &mut self,
        want: &FrameWant,
        packed: &[u8],
        memory: &mut [u8],
    ) -> Result<(), VolumeError> {
        let out = OutBuf::from_slice(memory);
        let (cache, scratch) = (&mut self.cache, &mut self.scratch);
        self.op
            .framed(want.id, packed, &self.volume, cache, scratch, &out)
    }

    /// Begins a read, and gives it everything but frames until frames are all that it waits for.
    fn start(&mut self, at: u64, memory: &mut [u8]) -> Vec<FrameWant> {
        self.asked.clear();
        self.op
            .start(&self.volume, at..at + memory.len() as u64)
            .unwrap();
        let out = OutBuf::from_slice(memory);
        let (cache, scratch) = (&mut self.cache, &mut self.scratch);
        self.op.step(&self.volume, cache, scratch, &out).unwrap();
        self.fetch_all(memory)
    }

    /// Answers every fetch; returns the frames that were asked for meanwhile.
    fn fetch_all(&mut self, memory: &mut [u8]) -> Vec<FrameWant> {
        let mut frames = Vec::new();
        while let Some(want) = self.op.next_want() {
            let fetch = match want {
                Want::Frame(want) => {
                    frames.push(want);
                    continue;
                }
                Want::Fetch(fetch) => fetch,
                Want::Stored(_) | Want::Table(_) => panic!("no survey was begun"),
            };
            let mut bytes = vec![0; fetch.len as usize];
            self.store
                .read_at(fetch.source, fetch.offset, &mut bytes)
                .unwrap();
            if let Placement::Direct { out_offset } = fetch.placement {
                memory[out_offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            let out = OutBuf::from_slice(memory);
            let (cache, scratch) = (&mut self.cache, &mut self.scratch);
            self.op
                .fetched(fetch.id, &[&bytes], &self.volume, cache, scratch, &out)
                .unwrap();
        }
        self.asked.extend(&frames);
        frames
    }

    /// A whole read; frames come in any order.
    fn read(&mut self, at: u64, len: usize) -> Vec<u8> {
        let mut memory = vec![0xA5; len];
        let mut waiting = self.start(at, &mut memory);
        while self.op.progress() == Progress::Fetching {
            let next = self.random.below(waiting.len() as u64) as usize;
            let want = waiting.swap_remove(next);
            let packed = self.packed(&want.frame);
            self.framed(&want, &packed, &mut memory).unwrap();
            waiting.extend(self.fetch_all(&mut memory));
        }
        assert!(waiting.is_empty(), "done while frames are wanted");
        memory
    }
}

/// What a read of `at..end` fetches and wants, the tables left out: bytes of the source by source, and frames.
type Named = (Vec<(SourceId, std::ops::Range<u64>)>, Vec<FrameId>);

fn joined(
    mut stored: Vec<(SourceId, std::ops::Range<u64>)>,
) -> Vec<(SourceId, std::ops::Range<u64>)> {
    stored.sort_by_key(|(source, bytes)| (source.0, bytes.start));
    let mut joined: Vec<(SourceId, std::ops::Range<u64>)> = Vec::new();
    for (source, bytes) in stored {
        match joined.last_mut() {
            Some((last, end)) if *last == source && end.end >= bytes.start => {
                end.end = end.end.max(bytes.end)
            }
            _ => joined.push((source, bytes)),
        }
    }
    joined
}

impl Elsewhere {
    fn survey(&mut self, at: u64, end: u64) -> Named {
        let mut named = (Vec::new(), Vec::new());
        self.op
            .start_survey(&self.volume, at..end, Reach::Range)
            .unwrap();
        let mut nothing = [];
        let out = OutBuf::from_slice(&mut nothing);
        loop {
            let progress = self
                .op
                .step(&self.volume, &mut self.cache, &mut self.scratch, &out)
                .unwrap();
            while let Some(want) = self.op.next_want() {
                match want {
                    Want::Frame(want) => named.1.push(want.frame.id),
                    Want::Stored(fetch) => named.0.push((
                        fetch.source,
                        fetch.offset..fetch.offset + u64::from(fetch.len),
                    )),
                    Want::Table(block) => {
                        let mut bytes = vec![0; TableBlock::BYTES as usize];
                        self.store
                            .read_at(SourceId::OWN, block.offset(), &mut bytes)
                            .unwrap();
                        bytes[100] ^= 1;
                        let cache = &mut self.cache;
                        assert!(block.keep(&[&bytes], &self.volume, cache).is_err());
                        bytes[100] ^= 1;
                        block.keep(&[&bytes], &self.volume, cache).unwrap();
                    }
                    Want::Fetch(fetch) => {
                        let mut bytes = vec![0; fetch.len as usize];
                        self.store
                            .read_at(fetch.source, fetch.offset, &mut bytes)
                            .unwrap();
                        self.op
                            .fetched(
                                fetch.id,
                                &[&bytes],
                                &self.volume,
                                &mut self.cache,
                                &mut self.scratch,
                                &out,
                            )
                            .unwrap();
                    }
                }
            }
            if progress == Progress::Done {
                return (joined(named.0), named.1);
            }
        }
    }

    /// The same of a read that is carried out.
    fn wanted(&mut self, at: u64, end: u64) -> Named {
        let (mut stored, mut frames) = (Vec::new(), Vec::new());
        let mut memory = vec![0; (end - at) as usize];
        self.op.start(&self.volume, at..end).unwrap();
        loop {
            let out = OutBuf::from_slice(&mut memory);
            let progress = self
                .op
                .step(&self.volume, &mut self.cache, &mut self.scratch, &out)
                .unwrap();
            let mut asked = Vec::new();
            while let Some(want) = self.op.next_want() {
                asked.push(want);
            }
            for want in asked {
                match want {
                    Want::Frame(want) => {
                        frames.push(want.frame.id);
                        let packed = self.packed(&want.frame);
                        self.framed(&want, &packed, &mut memory).unwrap();
                    }
                    Want::Fetch(fetch) => {
                        let mut bytes = vec![0; fetch.len as usize];
                        self.store
                            .read_at(fetch.source, fetch.offset, &mut bytes)
                            .unwrap();
                        if let Placement::Direct { out_offset } = fetch.placement {
                            memory[out_offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                        }
                        let before = self.op.counters().table_bytes;
                        let out = OutBuf::from_slice(&mut memory);
                        self.op
                            .fetched(
                                fetch.id,
                                &[&bytes],
                                &self.volume,
                                &mut self.cache,
                                &mut self.scratch,
                                &out,
                            )
                            .unwrap();
                        if self.op.counters().table_bytes == before {
                            stored.push((
                                fetch.source,
                                fetch.offset..fetch.offset + u64::from(fetch.len),
                            ));
                        }
                    }
                    Want::Stored(_) | Want::Table(_) => panic!("no survey was begun"),
                }
            }
            if progress == Progress::Done && self.op.progress() == Progress::Done {
                return (joined(stored), frames);
            }
        }
    }
}

#[test]
fn a_survey_names_what_a_read_fetches() {
    let (store, presented) = small_volume();
    let mut reading = Elsewhere::new(store);
    let mut random = Random::new(12);
    let mut found = (0, 0);
    for _ in 0..300 {
        let at = random.below(presented.len() as u64);
        let end = random.between(at, presented.len() as u64);
        let survey = reading.survey(at, end);
        assert_eq!(survey, reading.wanted(at, end), "{at}..{end}");
        assert_eq!(
            reading.op.counters().table_bytes,
            0,
            "the survey had them read"
        );
        found.0 += survey.0.len();
        found.1 += survey.1.len();
    }
    assert!(found.0 > 0 && found.1 > 0, "streams of both kinds");
}

#[test]
fn frames_that_were_decoded_elsewhere_give_the_same_bytes() {
    let (store, presented) = small_volume();
    let mut reading = Elsewhere::new(store);
    let mut random = Random::new(11);
    for _ in 0..300 {
        let at = random.below(presented.len() as u64) as usize;
        let end = random.between(at as u64, presented.len() as u64) as usize;
        let found = reading.read(at as u64, end - at);
        assert!(found == presented[at..end], "{at}..{end}");
        assert_eq!(reading.op.counters().frames_decoded, 0);
    }
    assert!(!reading.frames.is_empty());
    // What has frames is asked for in frames: all of them, in their order.
    let all = reading.read(0, presented.len());
    assert!(all == presented);
    let frames = reading
        .volume
        .streams()
        .iter()
        .map(|stream| match stream.layout {
            Layout::Framed { frames, .. } => frames.entry_count(),
            Layout::Unframed { .. } => 0,
        });
    assert_eq!(reading.asked.len() as u64, frames.sum::<u64>());
    assert!(reading.asked.is_sorted_by_key(|want| want.frame.offset));
}

/// A volume of one stream of random bytes in frames of `frame_elements`.
fn framed(frame_elements: u64, elements: u64) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random::new(1);
    let sample = Sample::new(&mut random, "shuffle", ElementType::U32, 32, elements);
    let mut builder = builder(4096);
    let run = Run::Linear {
        stream: store_sample(&mut builder, &sample, frame_elements),
        first_element: 0,
        elements,
        view: ViewChain::identity(),
    };
    let spec = ViewSpec {
        name: "framed".into(),
        ..ViewSpec::default()
    };
    builder.add_view(spec, [run]).unwrap();
    (builder.finish().unwrap().into_bytes(), sample.data)
}

#[test]
fn a_frame_longer_than_a_fetch_is_asked_for_once() {
    let (store, data) = framed(1 << 19, (1 << 19) + 1000);
    let mut reading = Elsewhere::new(store);
    assert!(reading.read(0, data.len()) == data);
    let lens: Vec<_> = reading
        .asked
        .iter()
        .map(|want| want.frame.stored_bytes)
        .collect();
    assert_eq!(lens, [2 << 20, 4000]);
    assert!(lens[0] > FETCH_BYTES_MAX);
}

#[test]
fn frames_that_were_not_asked_for_change_nothing() {
    let (store, data) = framed(1024, 1 << 14);
    let mut reading = Elsewhere::new(store);
    let mut memory = vec![0; 4 * 4096];
    let old = reading.start(0, &mut memory);
    let wants = reading.start(0, &mut memory);
    assert_eq!((old.len(), wants.len()), (4, 4));
    let packed: Vec<_> = wants
        .iter()
        .map(|want| reading.packed(&want.frame))
        .collect();
    for (want, packed) in wants.iter().zip(&packed) {
        // Of an earlier read, and twice.
        for _ in 0..2 {
            let error = reading.framed(&old[0], packed, &mut memory).unwrap_err();
            assert!(matches!(error, VolumeError::UnknownFetch { .. }), "{error}");
        }
        reading.framed(want, packed, &mut memory).unwrap();
        let error = reading.framed(want, packed, &mut memory).unwrap_err();
        assert!(matches!(error, VolumeError::UnknownFetch { .. }), "{error}");
    }
    assert_eq!(reading.op.progress(), Progress::Done);
    assert!(memory == data[..memory.len()]);
    // Frames that the read did not ask for yet.
    let wants = reading.start(4 * 4096, &mut memory);
    let out = OutBuf::from_slice(&mut memory);
    reading.op.start(&reading.volume, 0..4 * 4096).unwrap();
    let (cache, scratch) = (&mut reading.cache, &mut reading.scratch);
    reading
        .op
        .step(&reading.volume, cache, scratch, &out)
        .unwrap();
    let error = reading
        .framed(&wants[0], &packed[0], &mut memory)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[test]
fn a_frame_of_another_length_ends_the_read() {
    let (store, _) = framed(1024, 1 << 14);
    let mut reading = Elsewhere::new(store);
    let mut memory = vec![0; 4096];
    let wants = reading.start(0, &mut memory);
    let packed = reading.packed(&wants[0].frame);
    let error = reading
        .framed(&wants[0], &packed[1..], &mut memory)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert_eq!(reading.op.next_want(), None);
    assert!(reading.framed(&wants[0], &packed, &mut memory).is_err());
}

#[test]
fn an_error_of_a_frame_is_told_with_the_byte_it_is_about() {
    let (store, _) = framed(1024, 1 << 14);
    let mut reading = Elsewhere::new(store);
    let mut memory = vec![0; 3 * 4096];
    let wants = reading.start(8192, &mut memory);
    let want = wants[2];
    let mut stored = reading.stored(&want.frame);
    let at = (want.frame.offset - want.frame.blocks().start) as usize;
    stored[at + 5] ^= 1;
    let cause = reading.decode(&want.frame, &[&stored]).unwrap_err();
    let VolumeError::Checksum { place, .. } = cause else {
        panic!("{cause}")
    };
    assert_eq!(place.offset, want.frame.offset);
    assert_eq!(place.source, SourceId::OWN);
    let error = reading.op.frame_failed(want.id, cause, &reading.volume);
    assert_eq!(error.presented_byte(), Some(8192 + 2 * 4096));
    assert!(matches!(error.cause(), VolumeError::Checksum { .. }));
    assert_eq!(reading.op.next_want(), None, "the read is over");
}

#[test]
fn stored_bytes_that_are_not_all_there_are_refused() {
    let (store, _) = framed(1000, 1 << 14);
    let mut reading = Elsewhere::new(store);
    let mut memory = vec![0; 4096];
    let frame = reading.start(4096, &mut memory)[0].frame;
    let stored = reading.stored(&frame);
    let error = reading.decode(&frame, &[&stored[..4000]]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    let mut copy = vec![1; 9];
    let offset = frame.blocks().start;
    let short = frame.copy_stored(&[&stored[..4000]], offset, &mut copy);
    assert_eq!(short.unwrap_err().kind(), ErrorKind::Usage);
    frame
        .copy_stored(&[&stored[..4000], &stored[4000..]], offset, &mut copy)
        .unwrap();
    let at = (frame.offset - offset) as usize;
    assert!(copy == stored[at..at + frame.stored_bytes as usize]);
}
