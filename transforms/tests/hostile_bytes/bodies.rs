//! What bytes that nobody wrote may do to rank tables, to scales and to frames: nothing but be refused. The fuzz targets in `fuzz/` run these, and the properties beside
//! them.

use std::sync::Arc;

use transforms::{
    Chain, Decoder, Dictionary, ElementType, IDS_END, Isa, OutSegments, PackedWindow, RankTable,
    Scales, Scratch, ViewChain,
};

/// A table that is read is written again, and keeps its rules.
pub fn rank_table(data: &[u8]) {
    let Ok(table) = RankTable::parse(data) else {
        return;
    };
    let mut ids = table.ids().to_vec();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|two| two[0] < two[1]), "an id twice");
    assert!(ids.last().is_some_and(|last| *last < IDS_END), "no id");
    let again = RankTable::parse(&table.to_bytes());
    assert!(again.is_ok_and(|again| again == table), "another table");
}

/// The elements of a split frame: two bytes say how many, one of which type.
pub fn split_frame(data: &[u8]) {
    use ElementType::{Bf16, F16, F32, F64};
    let [kind, low, high, frame @ ..] = data else {
        return;
    };
    let element = [F16, Bf16, F32, F64][usize::from(*kind % 4)];
    let count = usize::from(u16::from_le_bytes([*low, *high]));
    let chain = Chain::parse("floatsplit", element).expect("it is a chain");
    same_by_every_kernel(&chain, frame, count * element.bytes());
}

/// Ranks of 16- or 32-bit ids in a table of 600.
pub fn ranks(data: &[u8]) {
    let [kind, count, frame @ ..] = data else {
        return;
    };
    let element = [ElementType::U16, ElementType::U32][usize::from(*kind % 2)];
    let ids = (0u16..600).flat_map(u16::to_le_bytes);
    let table: Vec<u8> = [88, 2, 0, 0, 254, 2, 0, 0].into_iter().chain(ids).collect();
    let table = Arc::new(RankTable::parse(&table).expect("it is a table"));
    let chain = Chain::parse("rank", element).and_then(|chain| chain.with_table(table));
    let packed_bytes = usize::from(*count) * element.bytes();
    same_by_every_kernel(&chain.expect("it is a chain"), frame, packed_bytes);
}

/// The first dictionary of fixtures/golden-vectors/zstd-dict.txt.
pub const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");

/// A dictionary, and a frame by it: two bytes say how many the frame is to fill, two how many are the dictionary's; none, that it is a right one. What is
/// stored by a dictionary that is taken comes back.
pub fn dictionary(data: &[u8]) {
    let [low, high, length_low, length_high, rest @ ..] = data else {
        return;
    };
    let length = usize::from(u16::from_le_bytes([*length_low, *length_high]));
    let Some((mut bytes, frame)) = rest.split_at_checked(length) else {
        return;
    };
    if length == 0 {
        bytes = DICTIONARY;
    }
    let Ok(dictionary) = Dictionary::parse(bytes) else {
        return;
    };
    assert_eq!(dictionary.to_bytes(), bytes);
    let chain = Chain::parse("zstd-dict:3", ElementType::U8).expect("it is a chain");
    let chain = chain
        .with_table(Arc::new(dictionary))
        .expect("it takes a dictionary");
    let mut scratch = Scratch::new();
    let mut packed = vec![0xA5; usize::from(u16::from_le_bytes([*low, *high]))];
    let _ = chain.unblock(frame, &mut scratch, &mut packed);

    let mut stored = vec![0; frame.len()];
    // A dictionary may be good for reading alone.
    if let Ok(encoded) = chain.encode_frame(frame, &mut scratch, &mut stored) {
        let mut back = vec![0xA5; frame.len()];
        let read = chain.unblock(&stored[..encoded.stored_bytes], &mut scratch, &mut back);
        read.expect("it was written");
        assert_eq!(back, frame);
    }
}

/// Rows of 8 bits with scales: five bytes say the type, the view, the elements of a row, the rows, and the element that the frame begins with; the scales
/// come first. Finite scales make the same numbers by every kernel, in whatever they are presented, or are refused by each.
pub fn rows(data: &[u8]) {
    use ElementType::{Bf16, F16, F32};
    let [kind, view, row_elements, rows, first, rest @ ..] = data else {
        return;
    };
    let Some((scales, steps)) = rest.split_at_checked(4 * usize::from(*rows)) else {
        return;
    };
    let Ok(scales) = Scales::parse(scales) else {
        return;
    };
    assert!(
        scales
            .values()
            .iter()
            .all(|it| it.is_finite() && *it >= 0.0)
    );
    let element = [F32, Bf16, F16][usize::from(*kind % 3)];
    let Ok(chain) = Chain::parse(&format!("int8:{row_elements}"), element) else {
        assert_eq!(*row_elements, 0);
        return;
    };
    let chain = chain.with_table(Arc::new(scales)).expect("it takes scales");
    let view = ["none", "f32", "f64", "q8_0"][usize::from(*view % 4)];
    let view = ViewChain::parse(view, element).expect("it is a view");
    let mut results = Isa::available().into_iter().map(|isa| {
        let decoder = Decoder::new(&chain.with_isa(isa), &view, None).expect("it has its scales");
        let unit = decoder.presented();
        let bytes = steps.len() as u64 / unit.unit_elements() * unit.unit_bytes();
        let mut out = vec![0xA5; usize::try_from(bytes).expect("few")];
        let window = PackedWindow {
            first_byte: 0,
            bytes: steps,
        };
        let mut segments = OutSegments::from_slice(&mut out);
        let read = decoder.expand_at(u64::from(*first), window, 0..bytes, &mut segments);
        read.map(|()| out)
    });
    let of_first = results.next();
    assert!(results.all(|result| Some(&result) == of_first.as_ref()));
}

/// Every kernel refuses the frame, or makes the same of it.
fn same_by_every_kernel(chain: &Chain, frame: &[u8], packed_bytes: usize) {
    let mut scratch = Scratch::new();
    let mut results = Isa::available().into_iter().map(|isa| {
        let mut packed = vec![0xA5; packed_bytes];
        let read = chain
            .with_isa(isa)
            .unblock(frame, &mut scratch, &mut packed);
        // What is wrong first is told in the order in which a kernel meets it.
        read.ok().map(|()| packed)
    });
    let first = results.next();
    assert!(results.all(|result| Some(&result) == first.as_ref()));
}
