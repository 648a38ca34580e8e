//! Chains with a dictionary: which tables they take, how it is trained, and what its frames are.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use std::sync::Arc;

use transforms::{
    Chain, Dictionary, DictionaryTrainer, ElementType, IdCounts, RankTable, Scratch, Table,
    TableKind, TransformError,
};

use ElementType::U32;

/// The ids of a text, 493,438 of them.
fn text() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/data/r50k-u32.bin");
    std::fs::read(path).unwrap()
}

fn ranks(data: &[u8]) -> Arc<RankTable> {
    let mut counts = IdCounts::new();
    counts.add(U32, data).unwrap();
    Arc::new(counts.table().unwrap())
}

fn trained(chain: &Chain, data: &[u8], frame_bytes: usize) -> Result<Dictionary, TransformError> {
    let mut trainer = DictionaryTrainer::new(chain)?;
    for frame in data.chunks(frame_bytes) {
        trainer.add_frame(frame)?;
    }
    trainer.train(data.len() as u64)
}

fn encoded(chain: &Chain, frame: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>, TransformError> {
    let mut stored = vec![0; frame.len()];
    let encoded = chain.encode_frame(frame, scratch, &mut stored)?;
    stored.truncate(encoded.stored_bytes);
    Ok(stored)
}

#[test]
fn a_chain_takes_two_tables_and_says_which_is_missing() {
    let data = &text()[..1 << 20];
    let chain = Chain::parse("u32+rank+zstd-dict:9", U32).unwrap();
    let kinds: Vec<TableKind> = chain.table_kinds().collect();
    assert_eq!(kinds, [TableKind::Ranks, TableKind::Dictionary]);
    assert!(chain.needs_table());
    assert_eq!(chain.missing_table(), Some(TableKind::Ranks));
    let mut scratch = Scratch::new();
    let without = |chain: &Chain, scratch: &mut Scratch| {
        let written = encoded(chain, &data[..4096], scratch).unwrap_err();
        let read = chain.unblock(&[1, 2], scratch, &mut [0; 400]).unwrap_err();
        assert_eq!(written, read);
        written.to_string()
    };
    let why = without(&chain, &mut scratch);
    assert_eq!(why, "u32+rank+zstd-dict:9: its rank table is not here");
    let error = DictionaryTrainer::new(&chain).unwrap_err();
    assert_eq!(error.to_string(), why);

    let ranked = chain.with_table(ranks(data)).unwrap();
    assert_eq!(ranked.missing_table(), Some(TableKind::Dictionary));
    assert!(ranked.dictionary().is_none());
    let why = without(&ranked, &mut scratch);
    assert_eq!(why, "u32+rank+zstd-dict:9: its dictionary is not here");

    let dictionary = Arc::new(trained(&ranked, data, 4096).unwrap());
    let whole = ranked.with_table(dictionary.clone()).unwrap();
    assert_eq!(whole.missing_table(), None);
    assert_eq!(whole.rank_table(), Some(&ranks(data)));
    assert_eq!(whole.dictionary(), Some(&dictionary));
    assert_eq!(whole.tables().count(), 2);
    let other_way = chain.with_table(dictionary.clone()).unwrap();
    assert_eq!(other_way.missing_table(), Some(TableKind::Ranks));
    assert_ne!(other_way, ranked);
    assert_eq!(other_way.with_table(ranks(data)).unwrap(), whole);

    let plain = Chain::parse("rank+zstd:9", U32).unwrap();
    let error = plain.with_table(dictionary).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank+zstd:9: no step of it takes a dictionary"
    );
    let error = DictionaryTrainer::new(&plain).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank+zstd:9: no step of it takes a dictionary"
    );
}

#[test]
fn small_frames_are_shorter_by_it_and_come_back() {
    let data = text();
    let (train, rest) = data.split_at(data.len() / 8 * 4);
    let plain = Chain::parse("rank+zstd:9", U32).unwrap();
    let plain = plain.with_table(ranks(&data)).unwrap();
    let chain = Chain::parse("rank+zstd-dict:9", U32).unwrap();
    let chain = chain.with_table(ranks(&data)).unwrap();
    let dictionary = trained(&chain, train, 4096).unwrap();
    let chain = chain.with_table(Arc::new(dictionary)).unwrap();
    let mut scratch = Scratch::new();
    let (mut by_it, mut by_none) = (0, 0);
    for frame in rest.chunks(4096) {
        let stored = encoded(&chain, frame, &mut scratch).unwrap();
        assert_eq!(zstd_safe::get_dict_id_from_frame(&stored), None);
        let declared = zstd_safe::get_frame_content_size(&stored).unwrap();
        assert!(declared.is_some());
        let mut packed = vec![0; frame.len()];
        chain.unblock(&stored, &mut scratch, &mut packed).unwrap();
        assert!(packed == frame);
        by_it += stored.len();

        // The contexts of zstd have met no dictionary.
        let stored = encoded(&plain, frame, &mut scratch).unwrap();
        assert_eq!(stored, encoded(&plain, frame, &mut Scratch::new()).unwrap());
        plain.unblock(&stored, &mut scratch, &mut packed).unwrap();
        by_none += stored.len();
    }
    // Where it is trained on the half before, and tried on the half behind, which are different books.
    assert!(by_it < by_none, "{by_it} of {by_none}");
}

#[test]
fn the_same_frames_train_the_same_dictionary() {
    let data = text();
    let chain = Chain::parse("u16+zstd-dict:3", U32).unwrap();
    let one = trained(&chain, &data, 4096).unwrap();
    let again = trained(&chain, &data, 4096).unwrap();
    assert_eq!(one, again);
    assert_eq!(one.to_bytes(), again.to_bytes());
    let other = trained(&chain, &data[4096..], 4096).unwrap();
    assert_ne!(one, other);
    // A 32nd part of what zstd gets, the half of the source.
    assert!(one.stored_bytes() <= data.len() as u64 / 64);
    assert_eq!(Dictionary::parse(&one.to_bytes()).unwrap(), one);
    let table = Table::parse(TableKind::Dictionary, &one.to_bytes()).unwrap();
    assert_eq!(table.to_bytes(), one.to_bytes());
    assert_eq!(table.stored_bytes(), one.stored_bytes());
}

#[test]
fn what_is_too_little_is_told_with_what_to_do() {
    let data = text();
    let chain = Chain::parse("u16+zstd-dict:19", U32).unwrap();
    let untrained = |bytes: usize, frame| trained(&chain, &data[..bytes], frame).unwrap_err();
    assert_eq!(
        untrained(28_000, 4_000).to_string(),
        "no dictionary is trained: it has 7 frames to be trained on, and at least 8 are needed; shorter ones would be more; u16+zstd:19 needs none"
    );
    assert_eq!(
        untrained(65_532, 4_096).to_string(),
        "no dictionary is trained: 32766 bytes that zstd would get are too few for a dictionary to earn its own; at least 32768 are needed; u16+zstd:19 needs none"
    );
    let mut trainer = DictionaryTrainer::new(&chain).unwrap();
    for _ in 0..100 {
        trainer.add_frame(&[0; 4]).unwrap();
    }
    let error = trainer.train(1 << 30).unwrap_err().to_string();
    assert!(
        error.contains("have too little in common or only repeat themselves"),
        "{error}"
    );
    assert!(error.ends_with("; u16+zstd:19 needs none"), "{error}");
    let error = trainer.add_frame(&[0; 5]).unwrap_err();
    assert!(matches!(error, TransformError::PartialElement { .. }));
    let error = trainer.add_frame(&u32::MAX.to_le_bytes()).unwrap_err();
    assert!(matches!(error, TransformError::OutOfRange { .. }));
    assert_eq!(trainer.frames(), 100);
}

#[test]
fn a_trainer_keeps_so_much_and_no_more() {
    let chain = Chain::parse("zstd-dict:1", ElementType::U8).unwrap();
    let mut trainer = DictionaryTrainer::new(&chain).unwrap();
    let frame = vec![7; 1 << 20];
    let most = DictionaryTrainer::SAMPLE_BYTES_MAX >> 20;
    for kept in 1..=most {
        assert_eq!(trainer.add_frame(&frame).unwrap(), kept < most, "{kept}");
    }
    assert!(!trainer.add_frame(&frame).unwrap());
    assert_eq!(trainer.frames(), most);
}

/// Its magic number and id as they must be, and then what breaks a rule.
#[test]
fn what_is_no_dictionary_is_refused_by_the_rule() {
    let good = include_bytes!("hostile_bytes/dictionary.bin").to_vec();
    Dictionary::parse(&good).unwrap();
    let refused = |bytes: &[u8]| Dictionary::parse(bytes).unwrap_err().to_string();
    let short = "not a dictionary of zstd-dict: 255 bytes; 256 to 1048576 are possible";
    assert_eq!(refused(&good[..255]), short);
    let mut long = good.clone();
    long.resize(1 << 20, 0);
    Dictionary::parse(&long).unwrap();
    long.push(0);
    let why = "not a dictionary of zstd-dict: 1048577 bytes; 256 to 1048576 are possible";
    assert_eq!(refused(&long), why);
    let mut other = good.clone();
    other[0] ^= 1;
    let why = "not a dictionary of zstd-dict: it does not begin with the magic number";
    assert_eq!(refused(&other), why);
    let mut nameless = good.clone();
    nameless[4..8].fill(0);
    let why = "not a dictionary of zstd-dict: its id is 0, which no dictionary has";
    assert_eq!(refused(&nameless), why);
    let mut noise = good.clone();
    noise[8..].fill(0xFF);
    let why = "not a dictionary of zstd-dict: its tables of codes are not right";
    assert_eq!(refused(&noise), why);
}

#[test]
fn a_frame_of_another_dictionary_is_refused_where_it_names_it() {
    let good = include_bytes!("hostile_bytes/dictionary.bin");
    let chain = |bytes: &[u8]| {
        let chain = Chain::parse("zstd-dict:3", ElementType::U8).unwrap();
        let dictionary = Arc::new(Dictionary::parse(bytes).unwrap());
        chain.with_table(dictionary).unwrap()
    };
    let mut renamed = good.to_vec();
    renamed[4..8].copy_from_slice(&77_777u32.to_le_bytes());
    let named = Dictionary::parse(good).unwrap().id();
    // A frame of 100 equal bytes by a dictionary that is named: descriptor, id, content size; one run.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x23];
    frame.extend(named.get().to_le_bytes());
    frame.push(100);
    frame.extend(&(1u32 | 1 << 1 | 100 << 3).to_le_bytes()[..3]);
    frame.push(7);
    let mut out = [0; 100];
    let scratch = &mut Scratch::new();
    chain(good).unblock(&frame, scratch, &mut out).unwrap();
    assert_eq!(out, [7; 100]);
    let error = chain(&renamed)
        .unblock(&frame, scratch, &mut out)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "zstd-dict: corrupt frame: the frame names dictionary {named}, and the chain has 77777"
        )
    );
    // Its bytes are others: it is another chain, and writes the same frames, which name none.
    assert_ne!(chain(good), chain(&renamed));
    let data: Vec<u8> = (0..400u32).map(|n| (n / 7).to_le_bytes()[0]).collect();
    let written = [&good[..], &renamed].map(|it| encoded(&chain(it), &data, scratch).unwrap());
    assert_eq!(written[0], written[1]);
}

/// RFC 8878, 3.1.1.1.3: the field may be there, and say that it is not said.
#[test]
fn a_frame_that_names_dictionary_0_names_none() {
    let data = &text()[..1 << 20];
    let chain = Chain::parse("u16+zstd-dict:9", U32).unwrap();
    let dictionary = trained(&chain, data, 4096).unwrap();
    let chain = chain.with_table(Arc::new(dictionary)).unwrap();
    let mut scratch = Scratch::new();
    let stored = encoded(&chain, &data[..4096], &mut scratch).unwrap();
    let mut packed = vec![0; 2048];
    chain.unblock(&stored, &mut scratch, &mut packed).unwrap();
    // Behind the magic number and the descriptor, whose low bits say how long the field is; a frame as short as this has no window descriptor.
    assert_eq!(stored[4] & 0b0010_0011, 0b0010_0000);
    for (flag, bytes) in [(1, 1), (2, 2), (3, 4)] {
        let mut named = stored.clone();
        named[4] |= flag;
        named.splice(5..5, std::iter::repeat_n(0, bytes));
        let mut again = vec![0; 2048];
        chain.unblock(&named, &mut scratch, &mut again).unwrap();
        assert_eq!(again, packed, "a field of {bytes} bytes");
    }
}

#[test]
fn a_window_or_a_length_that_does_not_belong_is_refused() {
    let good = include_bytes!("hostile_bytes/dictionary.bin");
    let chain = Chain::parse("zstd-dict:3", ElementType::U8).unwrap();
    let chain = chain
        .with_table(Arc::new(Dictionary::parse(good).unwrap()))
        .unwrap();
    let run = |window: u8| {
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x80, window];
        frame.extend(100u32.to_le_bytes());
        frame.extend(&(1u32 | 1 << 1 | 100 << 3).to_le_bytes()[..3]);
        frame.push(7);
        frame
    };
    let mut scratch = Scratch::new();
    let mut refused = |frame: &[u8], len: usize| {
        let read = chain.unblock(frame, &mut scratch, &mut vec![0; len]);
        read.err().map(|error| error.to_string())
    };
    assert_eq!(refused(&run(14 << 3), 100), None);
    let why = "zstd-dict: corrupt frame: the frame asks for a window of 18874368 bytes; at most 16777216 are allowed";
    assert_eq!(refused(&run(14 << 3 | 1), 100).unwrap(), why);
    let why = "zstd-dict: corrupt frame: the frame declares 100 bytes where 99 belong";
    assert_eq!(refused(&run(0), 99).unwrap(), why);
    let mut longer = run(0);
    longer.push(0);
    let why = "zstd-dict: corrupt frame: 1 bytes behind the frame";
    assert_eq!(refused(&longer, 100).unwrap(), why);
}
