//! Any sequence of all commands on two engines, against memory and a flag for each block.

use namespace::{Io, NamespaceError, NamespaceKey, Source};
use proptest::prelude::*;

use super::bench::{Bench, LBA_BYTES, buf, disk, memory, pattern};

const BLOCKS: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    Read,
    ReadDurable,
    Write,
    Zeroes { deallocate: bool },
    Deallocate,
    Mark,
    Verify,
    Compare { same: bool },
    CompareAndWrite { same: bool },
    Copy { from: u64 },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Read),
        1 => Just(Step::ReadDurable),
        3 => Just(Step::Write),
        1 => any::<bool>().prop_map(|deallocate| Step::Zeroes { deallocate }),
        1 => Just(Step::Deallocate),
        2 => Just(Step::Mark),
        1 => Just(Step::Verify),
        1 => any::<bool>().prop_map(|same| Step::Compare { same }),
        2 => any::<bool>().prop_map(|same| Step::CompareAndWrite { same }),
        1 => (0..BLOCKS).prop_map(|from| Step::Copy { from }),
        1 => Just(Step::Flush),
    ]
}

struct Model {
    bytes: Vec<u8>,
    marked: Vec<bool>,
}

fn span(lba: u64, blocks: u32) -> std::ops::Range<usize> {
    lba as usize * LBA_BYTES..(lba as usize + blocks as usize) * LBA_BYTES
}

impl Model {
    fn first_marked(&self, lba: u64, blocks: u32) -> Option<u64> {
        (lba..lba + u64::from(blocks)).find(|&block| self.marked[block as usize])
    }

    fn write(&mut self, lba: u64, data: &[u8]) {
        let blocks = (data.len() / LBA_BYTES) as u32;
        self.bytes[span(lba, blocks)].copy_from_slice(data);
        self.marked[lba as usize..][..blocks as usize].fill(false);
    }
}

/// What is to come: bytes where it reads some, or the failing block.
fn expect(model: &mut Model, step: &Step, lba: u64, blocks: u32, data: &[u8]) -> Wanted {
    let there = model.bytes[span(lba, blocks)].to_vec();
    let marked = model.first_marked(lba, blocks);
    match step {
        Step::Read | Step::ReadDurable => marked.map_or(Wanted::Bytes(there), Wanted::Marked),
        Step::Verify => marked.map_or(Wanted::Done, Wanted::Marked),
        Step::Compare { same } | Step::CompareAndWrite { same } => {
            if let Some(lba) = marked {
                return Wanted::Marked(lba);
            }
            if !same {
                return Wanted::Differs(lba + u64::from(blocks) - 1);
            }
            if matches!(step, Step::CompareAndWrite { .. }) {
                model.write(lba, data);
            }
            Wanted::Done
        }
        Step::Write => {
            model.write(lba, data);
            Wanted::Done
        }
        Step::Zeroes { .. } => {
            model.write(lba, &vec![0; data.len()]);
            Wanted::Done
        }
        Step::Deallocate => {
            model.bytes[span(lba, blocks)].fill(0);
            Wanted::Done
        }
        Step::Mark => {
            model.marked[lba as usize..][..blocks as usize].fill(true);
            Wanted::Done
        }
        Step::Copy { from } => {
            let (from, blocks) = (*from, blocks.min((BLOCKS - from) as u32));
            let blocks = blocks.min((BLOCKS - lba) as u32);
            if let Some(lba) = model.first_marked(from, blocks) {
                return Wanted::Marked(lba);
            }
            let source = model.bytes[span(from, blocks)].to_vec();
            model.write(lba, &source);
            Wanted::Done
        }
        Step::Flush => Wanted::Done,
    }
}

#[derive(Debug, PartialEq)]
enum Wanted {
    Done,
    Bytes(Vec<u8>),
    Marked(u64),
    Differs(u64),
}

fn io(key: NamespaceKey, model: &Model, step: &Step, lba: u64, blocks: u32, data: &[u8]) -> Io {
    let expected = |same: bool| {
        let mut expected = model.bytes[span(lba, blocks)].to_vec();
        if !same {
            *expected.last_mut().unwrap() ^= 1;
        }
        buf(&expected)
    };
    match *step {
        Step::Read => Io::Read {
            lba,
            blocks,
            into: None,
        },
        Step::ReadDurable => Io::ReadDurable { lba, blocks },
        Step::Write => Io::Write {
            lba,
            data: buf(data),
            durable: false,
        },
        Step::Zeroes { deallocate } => Io::WriteZeroes {
            lba,
            blocks,
            deallocate,
            durable: false,
        },
        Step::Deallocate => Io::Deallocate {
            ranges: vec![(lba, blocks)],
        },
        Step::Mark => Io::WriteUncorrectable { lba, blocks },
        Step::Verify => Io::Verify { lba, blocks },
        Step::Compare { same } => Io::Compare {
            lba,
            data: expected(same),
        },
        Step::CompareAndWrite { same } => Io::CompareAndWrite {
            lba,
            expected: Box::new(expected(same)),
            data: buf(data),
            durable: false,
        },
        Step::Copy { from } => Io::Copy {
            lba,
            sources: vec![Source {
                key,
                lba: from,
                blocks: blocks.min((BLOCKS - from) as u32),
            }],
            durable: false,
        },
        Step::Flush => Io::Flush,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_does_what_the_model_does(steps in prop::collection::vec((step(), 0..2usize, 0..BLOCKS, 1..20u32, any::<u8>()), 1..40)) {
        let mut bench = Bench::new(2, vec![disk(1, memory(BLOCKS))]);
        let mut model = Model {
            bytes: vec![0; BLOCKS as usize * LBA_BYTES],
            marked: vec![false; BLOCKS as usize],
        };
        for (step, on, lba, blocks, seed) in steps {
            let blocks = blocks.min((BLOCKS - lba) as u32);
            let data = pattern(blocks as usize, seed);
            let io = io(bench.key(1), &model, &step, lba, blocks, &data);
            let wanted = expect(&mut model, &step, lba, blocks, &data);
            let reads = matches!(step, Step::Read | Step::ReadDurable);
            let got = match bench.run(on, 1, io) {
                Ok(Some(read)) if reads => Wanted::Bytes(read.to_vec()),
                Ok(_) => Wanted::Done,
                Err(NamespaceError::Miscompare { lba, .. }) => Wanted::Differs(lba),
                Err(error) => Wanted::Marked(error.first_lba(LBA_BYTES as u32).unwrap()),
            };
            prop_assert!(got == wanted, "{step:?} of {blocks} at {lba}: {got:?}");
        }
        prop_assert!(!bench.reactors.iter().any(|each| each.engine.is_busy()));
    }
}
