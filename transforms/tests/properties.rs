//! Properties over random chains, values, ranges and cuts.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use proptest::prelude::*;
use transforms::conformance::floats::converted;
use transforms::{
    Chain, Decoder, ElementType, Isa, OutSegments, PackedWindow, Packing, RawSegment, Scratch,
    Step, TransformId, ViewChain,
};

/// A chain's text for a source type: one element step or none, then block steps that can follow.
fn chains() -> impl Strategy<Value = Chain> {
    let source = prop::sample::select(ElementType::INTEGERS.to_vec());
    let element = prop_oneof![
        Just(None),
        (1..=32u32).prop_map(|bits| Some(format!("bitpack:{bits}"))),
        prop::sample::select(ElementType::INTEGERS.to_vec()).prop_map(|t| Some(t.name().into())),
    ];
    let shuffle = prop::bool::weighted(0.3);
    let compress = prop_oneof![
        2 => Just(None),
        1 => Just(Some("lz4".to_string())),
        1 => (1..=12).prop_map(|level| Some(format!("lz4hc:{level}"))),
        1 => (1..=6).prop_map(|level| Some(format!("zstd:{level}"))),
    ];
    (source, element, shuffle, compress).prop_filter_map(
        "shuffle needs whole bytes",
        |(source, element, shuffle, compress)| {
            let shuffle = shuffle.then(|| "shuffle".to_string());
            let steps: Vec<String> = [element, shuffle, compress].into_iter().flatten().collect();
            let text = if steps.is_empty() {
                "none".into()
            } else {
                steps.join("+")
            };
            Chain::parse(&text, source).ok()
        },
    )
}

/// A chain, values that fit it, and two places in the presented bytes.
fn cases() -> impl Strategy<Value = (Chain, Vec<i128>, usize, usize)> {
    let values = prop::collection::vec(any::<u64>(), 0..600);
    (
        chains(),
        values,
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0..3u32,
    )
        .prop_map(|(chain, seeds, one, other, spread)| {
            let range = chain.range().unwrap();
            let span = u64::try_from(range.max - range.min).unwrap();
            // Narrow spreads give frames that compressors shrink.
            let span = (span >> (spread * 8)).max(1);
            let fit = |n: u64| range.min + i128::from(span.checked_add(1).map_or(n, |s| n % s));
            let values: Vec<i128> = seeds.into_iter().map(fit).collect();
            let presented = values.len() * chain.source().bytes() + 1;
            let (one, other) = (one.index(presented), other.index(presented));
            (chain, values, one.min(other), one.max(other))
        })
}

/// A chain of one step that narrows floating point or leaves it, and a view of it.
fn float_chains() -> impl Strategy<Value = (Chain, ViewChain)> {
    let element = || prop::sample::select(ElementType::FLOATS.to_vec());
    (element(), element(), element()).prop_filter_map(
        "some types are not stored or presented in others",
        |(source, packed, presented)| {
            let chain = Chain::parse(packed.name(), source).ok()?;
            Some((chain, ViewChain::parse(presented.name(), source).ok()?))
        },
    )
}

/// A step with a known number and parameter more often than not.
fn steps() -> impl Strategy<Value = Step> {
    let known = [1, 2, 3, 0x100, 0x101, 0x102, 0x103, 0x105, 0x200];
    let id = prop_oneof![9 => prop::sample::select(known.to_vec()), 1 => any::<u16>()];
    let version = prop_oneof![9 => Just(1), 1 => any::<u16>()];
    let parameter = prop_oneof![9 => 0..34u32, 1 => any::<u32>()];
    (id, version, parameter).prop_map(|(id, version, parameter)| Step {
        id: TransformId(id),
        version,
        parameter,
    })
}

fn elements(values: &[i128], element: ElementType) -> Vec<u8> {
    let size = element.bytes();
    values
        .iter()
        .flat_map(|v| v.to_le_bytes()[..size].to_vec())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_part_of_any_source_comes_back(
        (chain, values, start, end) in cases(),
        cuts in prop::collection::vec(1..40usize, 1..20),
        isa in prop::sample::select(Isa::available()),
    ) {
        let chain = chain.with_isa(isa);
        let source = elements(&values, chain.source());
        let mut scratch = Scratch::new();
        let count = values.len() as u64;
        let mut stored = vec![0; usize::try_from(chain.stored_bytes_max(count)).unwrap()];
        let encoded = chain.encode_frame(&source, &mut scratch, &mut stored).unwrap();
        let mut packed = vec![0; usize::try_from(chain.packed_bytes(count)).unwrap()];
        chain.unblock(&stored[..encoded.stored_bytes], &mut scratch, &mut packed).unwrap();
        let decoder = Decoder::new(&chain, &ViewChain::identity(), encoded.range).unwrap();

        // Raw segments of the cuts' lengths, by turns, with a gap of one byte between them.
        let mut memory = vec![0u8; 2 * source.len() + 2];
        let mut segments = Vec::new();
        let mut at = 0;
        let mut left = end - start;
        for len in cuts.iter().cycle() {
            if left == 0 {
                break;
            }
            let len = (*len).min(left);
            segments.push((at, len));
            at += len + 1;
            left -= len;
        }
        let base = memory.as_mut_ptr();
        let raw: Vec<RawSegment> = segments
            .iter()
            // SAFETY: at most `len + 1` bytes are used for every `len` written, and `memory` has twice the source.
            .map(|(at, len)| RawSegment { ptr: unsafe { base.add(*at) }, len: *len })
            .collect();
        // SAFETY: the segments are parts of `memory`, apart from each other, and nothing else uses it meanwhile.
        let mut out = unsafe { OutSegments::from_raw(&raw) };
        let range = start as u64..end as u64;
        let needed = decoder.packed_window(range.clone());
        let bytes = &packed[usize::try_from(needed.start).unwrap()..usize::try_from(needed.end).unwrap()];
        decoder.expand(PackedWindow { first_byte: needed.start, bytes }, range, &mut out).unwrap();
        prop_assert_eq!(out.remaining(), 0);

        let written: Vec<u8> = segments.iter().flat_map(|(at, len)| memory[*at..at + len].to_vec()).collect();
        prop_assert_eq!(written, &source[start..end]);
        let gaps = segments.iter().map(|(at, len)| memory[at + len]);
        prop_assert!(gaps.into_iter().all(|byte| byte == 0), "wrote between the segments");
    }

    #[test]
    fn any_part_of_any_floating_point_is_converted_as_defined(
        (chain, view) in float_chains(),
        elements in prop::collection::vec(any::<u64>(), 1..600),
        one in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        isa in prop::sample::select(Isa::available()),
    ) {
        let chain = chain.with_isa(isa);
        let source = chain.source();
        let Packing::Whole(packed_type) = chain.packing() else { unreachable!("whole elements") };
        let decoder = Decoder::new(&chain, &view, None).unwrap();
        let Packing::Whole(presented) = decoder.presented() else { unreachable!("whole elements") };
        let mut expected = Vec::new();
        for bits in &elements {
            let bits = bits & (u64::MAX >> (64 - source.bits()));
            let packed = converted(source, packed_type, bits);
            expected.extend(&converted(packed_type, presented, packed).to_le_bytes()[..presented.bytes()]);
        }
        let bytes: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()[..source.bytes()].to_vec()).collect();
        let mut packed = vec![0; elements.len() * packed_type.bytes()];
        chain.encode_frame(&bytes, &mut Scratch::new(), &mut packed).unwrap();

        let (one, other) = (one.index(expected.len() + 1), other.index(expected.len() + 1));
        let (start, end) = (one.min(other), one.max(other));
        let mut out = vec![0; end - start];
        let (front, back) = out.split_at_mut(cut.index(end - start + 1));
        let mut slices = [front, back];
        let window = PackedWindow { first_byte: 0, bytes: &packed };
        decoder.expand(window, start as u64..end as u64, &mut OutSegments::from_slices(&mut slices)).unwrap();
        prop_assert_eq!(&out[..], &expected[start..end]);
    }

    #[test]
    fn any_bytes_are_a_frame_or_an_error((chain, values, ..) in cases(), noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut packed = vec![0; usize::try_from(chain.packed_bytes(values.len() as u64)).unwrap()];
        let _ = chain.unblock(&noise, &mut Scratch::new(), &mut packed);
    }

    #[test]
    fn any_steps_are_a_chain_or_an_error(
        steps in prop::collection::vec(steps(), 0..5),
        source in prop::sample::select(ElementType::ALL.to_vec()),
    ) {
        if let Ok(chain) = Chain::from_steps(&steps, source) {
            prop_assert_eq!(chain.steps(), &steps[..]);
            prop_assert_eq!(Chain::parse(&chain.to_string(), source).unwrap(), chain);
        }
    }

    #[test]
    fn any_text_is_a_chain_or_an_error(text in "[a-z0-9:+]{0,20}", source in prop::sample::select(ElementType::ALL.to_vec())) {
        if let Ok(chain) = Chain::parse(&text, source) {
            prop_assert_eq!(Chain::parse(&chain.to_string(), source).unwrap(), chain);
        }
    }
}
