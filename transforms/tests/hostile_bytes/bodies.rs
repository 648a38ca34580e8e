//! What bytes that nobody wrote may do to rank tables and to frames: nothing but be refused. The fuzz targets in `fuzz/` run these, and the properties beside
//! them.

use std::sync::Arc;

use transforms::{Chain, ElementType, IDS_END, Isa, RankTable, Scratch};

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
