//! The volume does not depend on the number of threads, nor on how the input comes.

use std::io::Read;

use super::*;

/// An input that comes in odd pieces.
struct Pieces<'a> {
    rest: &'a [u8],
    next: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.next = self.next * 5 % 65_521 + 1;
        let bytes = self.next.min(buffer.len());
        self.rest.read(&mut buffer[..bytes])
    }
}

fn image(threads: usize, spec: &StreamSpec, input: &mut (dyn Read + Send)) -> (Vec<u8>, Finished) {
    image_of(threads, spec, input, None)
}

fn image_of(
    threads: usize,
    spec: &StreamSpec,
    input: &mut (dyn Read + Send),
    known: Option<[u8; 32]>,
) -> (Vec<u8>, Finished) {
    let mut recorder = Recorder::default();
    let mut writer = Writer::new(&mut recorder, options(threads)).unwrap();
    let stream = match known {
        None => writer.add_stream(spec, input, &mut |_| {}),
        Some(sha256) => writer.add_stream_of_digest(spec, input, sha256, &mut |_| {}),
    };
    let stream = stream.unwrap();
    writer.add_view("all", [whole(&stream)]).unwrap();
    let finished = writer.finish().unwrap();
    (recorder.image(), finished)
}

#[test]
fn the_volume_is_the_same_for_every_number_of_threads() {
    // A batch is 131,072 u32: none, one element, and around the ends of batches and frames.
    for count in [0, 1, 16_383, 16_385, 131_072, 131_073, 500_000] {
        let source = values(count, 60_000);
        for chain in [
            "none",
            "u16",
            "bitpack:17",
            "u16+lz4",
            "bitpack:17+shuffle+zstd:3",
            "shuffle+lz4",
        ] {
            let Ok(chain) = Chain::parse(chain, ElementType::U32) else {
                continue;
            };
            let spec = StreamSpec::new(chain);
            let (one, finished) = image(1, &spec, &mut &source[..]);
            for threads in [2, 3, 8] {
                assert!(
                    image(threads, &spec, &mut &source[..]).0 == one,
                    "{count} {:?}",
                    spec.chain
                );
            }
            let mut pieces = Pieces {
                rest: &source,
                next: 1,
            };
            assert!(
                image(4, &spec, &mut pieces).0 == one,
                "{count} {:?}",
                spec.chain
            );

            let stream = &finished.streams[0];
            assert_eq!(stream.source_bytes, source.len() as u64);
            assert_eq!(stream.elements, count as u64);
            assert_eq!(stream.sha256, crate::identity::sha256(&source));
            let numbers = source
                .chunks_exact(4)
                .map(|v| u32::from_le_bytes(v.try_into().unwrap()));
            let range = stream.proven.map(|range| (range.min, range.max));
            let expected = numbers.clone().min().zip(numbers.max());
            assert_eq!(range, expected.map(|(min, max)| (min.into(), max.into())));
        }
    }
}

#[test]
fn a_digest_that_is_known_is_taken_and_the_volume_is_the_same() {
    // One batch, and several.
    for count in [1, 500_000] {
        let source = values(count, 60_000);
        let spec = StreamSpec::new(Chain::parse("u16", ElementType::U32).unwrap());
        let (made, _) = image(2, &spec, &mut &source[..]);
        let sha256 = crate::identity::sha256(&source);
        let (taken, _) = image_of(2, &spec, &mut &source[..], Some(sha256));
        assert!(taken == made, "{count}");
        let (_, finished) = image_of(2, &spec, &mut &source[..], Some([7; 32]));
        assert_eq!(finished.streams[0].sha256, [7; 32], "nobody makes it again");
    }
}

#[test]
fn the_uuid_follows_the_content_and_how_it_is_stored_and_presented() {
    let source = values(5000, 60_000);
    let uuid = |chain: &str, frame_bytes, source: &[u8]| {
        image(
            1,
            &spec(chain, ElementType::U32, frame_bytes),
            &mut &source[..],
        )
        .1
        .volume_uuid
    };
    let first = uuid("u16+lz4", 65_536, &source);
    assert_eq!(first, uuid("u16+lz4", 65_536, &source));
    assert_eq!((first[6] >> 4, first[8] >> 6), (8, 2), "RFC 9562 version 8");
    let mut others = vec![
        uuid("u16+lz4hc", 65_536, &source),
        uuid("u16+lz4", 32_768, &source),
        uuid("u16+lz4", 65_536, &source[4..]),
        uuid("u16", 0, &source),
    ];
    let mut changed = source.clone();
    changed[8] ^= 1;
    others.push(uuid("u16+lz4", 65_536, &changed));
    assert!(others.iter().all(|other| *other != first));
}

#[test]
fn progress_reaches_the_end_and_never_goes_back() {
    let source = values(600_000, 60_000);
    let mut recorder = Recorder::default();
    let mut writer = Writer::new(&mut recorder, options(3)).unwrap();
    let mut seen = Vec::new();
    let spec = spec("u16+lz4", ElementType::U32, 65_536);
    let stream = writer
        .add_stream(&spec, &mut &source[..], &mut |now| seen.push(now))
        .unwrap();
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by_key(|now| (now.source_bytes, now.stored_bytes)));
    let last = seen.last().unwrap();
    assert_eq!(
        (last.source_bytes, last.stored_bytes),
        (2_400_000, stream.stored_bytes)
    );
}
