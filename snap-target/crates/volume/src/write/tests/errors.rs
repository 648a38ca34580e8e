//! Each thing that can be wrong with an input, with its exact place.

use std::io::Read;

use super::*;
use crate::format::StreamIndex;

fn error(spec: &StreamSpec, source: &[u8]) -> WriteError {
    let mut recorder = Recorder::default();
    let error = pack(&mut recorder, 3, spec, source).unwrap_err();
    assert!(!recorder.actions.contains(&Action::Publish));
    error
}

#[test]
fn the_first_value_that_does_not_fit_is_named_whatever_batch_it_is_in() {
    let mut source = values(900_000, 60_000);
    // 128 Ki elements are a batch: the first, a middle and the last one.
    for element in [899_999usize, 400_001, 131_072, 5, 0] {
        source[element * 4..element * 4 + 4].copy_from_slice(&70_000u32.to_le_bytes());
        for chain in ["u16", "u16+lz4", "bitpack:16+zstd:1"] {
            let error = error(&spec(chain, ElementType::U32, 65_536), &source);
            let WriteError::Encode {
                element: found,
                byte,
                ..
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!((*found, *byte), (element as u64, element as u64 * 4));
            let target = if chain.starts_with("u16") {
                "u16"
            } else {
                "16 bits"
            };
            assert_eq!(
                error.to_string(),
                format!(
                    "element {element} (byte {}) is 70000, which does not fit {target} (0..=65535): it needs 17 bits, \
                     and later elements may need more; choose a wider stored chain",
                    element * 4
                )
            );
        }
    }
}

#[test]
fn an_input_that_ends_inside_an_element_is_refused() {
    for (bytes, left, after) in [(10usize, 2, 2), (3, 3, 0), (1_048_577, 1, 262_144)] {
        let error = error(&spec("none", ElementType::U32, 65_536), &vec![0; bytes]);
        assert_eq!(
            error.to_string(),
            format!(
                "the input is {bytes} bytes, which is not a whole number of u32 elements of 4 bytes: \
                 {left} bytes are left after element {after}; check the element type, or cut the input"
            )
        );
    }
}

/// Fails after some bytes.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the cable is out")),
            bytes => Ok(bytes),
        }
    }
}

#[test]
fn of_several_errors_the_first_in_the_input_is_reported() {
    let pack = |source: &[u8]| {
        let mut recorder = Recorder::default();
        let mut writer = Writer::new(&mut recorder, options(2)).unwrap();
        let spec = spec("u16", ElementType::U32, 65_536);
        writer
            .add_stream(&spec, &mut Failing(source), &mut |_| {})
            .unwrap_err()
            .to_string()
    };
    let mut source = values(700_000, 60_000);
    assert_eq!(
        pack(&source),
        "reading the input at byte 2800000: the cable is out"
    );
    assert_eq!(
        pack(&source[..6]),
        "reading the input at byte 6: the cable is out"
    );
    source[2_799_996..].copy_from_slice(&70_000u32.to_le_bytes());
    assert!(pack(&source).starts_with("element 699999 (byte 2799996) is 70000"));
}

#[test]
fn parameters_that_no_volume_has_are_refused() {
    let refused = |field: &str, result: Result<Finished, WriteError>| match result {
        Err(WriteError::Refused { field: found, .. }) => assert_eq!(found, field),
        other => panic!("{other:?}"),
    };
    let source = values(100, 50);
    let frame = |frame_bytes| {
        let mut recorder = Recorder::default();
        pack(
            &mut recorder,
            1,
            &spec("lz4", ElementType::U32, frame_bytes),
            &source,
        )
    };
    refused("frame size", frame(31));
    assert!(frame(32).is_ok());
    assert!(frame(4 << 20).is_ok());
    refused("frame size", frame((4 << 20) + 1));

    let mut recorder = Recorder::default();
    let unchecked = StreamSpec {
        integrity: Integrity::None,
        ..spec("lz4", ElementType::U32, 4096)
    };
    refused("integrity", pack(&mut recorder, 1, &unchecked, &source));
    let mut recorder = Recorder::default();
    let odd = Options {
        lba_bytes: 520,
        ..options(1)
    };
    assert!(matches!(
        Writer::new(&mut recorder, odd),
        Err(WriteError::Refused {
            field: "logical block size",
            ..
        })
    ));
}

#[test]
fn views_that_cannot_be_are_refused() {
    let mut recorder = Recorder::default();
    let mut writer = Writer::new(&mut recorder, options(1)).unwrap();
    let source = values(100, 50);
    let stream = writer
        .add_stream(
            &spec("none", ElementType::U32, 0),
            &mut &source[..],
            &mut |_| {},
        )
        .unwrap();
    let linear = |stream, first_element, elements| ExtentSpec::Linear {
        stream,
        first_element,
        elements,
        view: ViewChain::identity(),
    };
    let mut field = |name: &str, extent: ExtentSpec| match writer.add_view(name, [extent]) {
        Err(WriteError::Refused { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field("a", linear(stream.stream, 1, 100)), "extent");
    assert_eq!(field("b", linear(stream.stream, u64::MAX, 2)), "extent");
    assert_eq!(field("c", linear(StreamIndex(1), 0, 1)), "extent");
    assert_eq!(field("d", ExtentSpec::Inline(vec![0; 41])), "extent");
    assert_eq!(field("", whole(&stream)), "name");
    assert_eq!(field(&"n".repeat(256), whole(&stream)), "name");
    writer.add_view("e", [whole(&stream)]).unwrap();
    assert!(matches!(
        writer.add_view("e", [whole(&stream)]),
        Err(WriteError::Refused { field: "name", .. })
    ));
}

#[test]
fn a_volume_presents_something() {
    let mut recorder = Recorder::default();
    let writer = Writer::new(&mut recorder, options(1)).unwrap();
    assert!(matches!(
        writer.finish(),
        Err(WriteError::Refused { field: "view", .. })
    ));
}
