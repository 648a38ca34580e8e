//! Any sequence of all commands on two engines, against memory and two flags for each block: of a plain disk, and of a mixed one with parts that nobody
//! may write.

use namespace::{Io, Namespace, NamespaceError, NamespaceKey, Source};
use nvme_spec::Status;
use proptest::prelude::*;
use reactor::buf::IoBuf;

use super::bench::{Bench, LBA_BYTES, buf, disk, memory, pattern};
use super::support::{Packed, source};

const BLOCKS: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    Read,
    ReadDurable,
    Write,
    Zeroes {
        deallocate: bool,
    },
    /// This range, and another one before it.
    Deallocate {
        first: (u64, u32),
    },
    Mark,
    Verify,
    Compare {
        same: bool,
    },
    CompareAndWrite {
        same: bool,
    },
    Copy {
        from: u64,
    },
    Flush,
}

fn step(blocks: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Read),
        1 => Just(Step::ReadDurable),
        3 => Just(Step::Write),
        1 => any::<bool>().prop_map(|deallocate| Step::Zeroes { deallocate }),
        1 => (0..blocks, 1..9u32).prop_map(|first| Step::Deallocate { first }),
        2 => Just(Step::Mark),
        1 => Just(Step::Verify),
        1 => any::<bool>().prop_map(|same| Step::Compare { same }),
        2 => any::<bool>().prop_map(|same| Step::CompareAndWrite { same }),
        1 => (0..blocks).prop_map(|from| Step::Copy { from }),
        1 => Just(Step::Flush),
    ]
}

struct Model {
    bytes: Vec<u8>,
    marked: Vec<bool>,
    protected: Vec<bool>,
}

fn span(lba: u64, blocks: u32) -> std::ops::Range<usize> {
    lba as usize * LBA_BYTES..(lba as usize + blocks as usize) * LBA_BYTES
}

impl Model {
    fn blocks(&self) -> u64 {
        self.marked.len() as u64
    }

    fn first_protected(&self, lba: u64, blocks: u32) -> Option<u64> {
        (lba..lba + u64::from(blocks)).find(|&block| self.protected[block as usize])
    }

    /// How many of these are there.
    fn up_to_end(&self, lba: u64, blocks: u32) -> u32 {
        blocks.min((self.blocks() - lba) as u32)
    }

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
    if let Some(lba) = first_refused(model, step, lba, blocks) {
        return Wanted::ReadOnly(lba);
    }
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
        Step::Deallocate { first } => {
            let first = (first.0, model.up_to_end(first.0, first.1));
            for (lba, blocks) in [first, (lba, blocks)] {
                model.bytes[span(lba, blocks)].fill(0);
            }
            Wanted::Done
        }
        Step::Mark => {
            model.marked[lba as usize..][..blocks as usize].fill(true);
            Wanted::Done
        }
        Step::Copy { from } => {
            let (from, blocks) = (*from, model.up_to_end(*from, blocks));
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

/// The first block that nobody may write, where a command would change some.
fn first_refused(model: &Model, step: &Step, lba: u64, blocks: u32) -> Option<u64> {
    match step {
        Step::Read | Step::ReadDurable | Step::Verify | Step::Compare { .. } | Step::Flush => None,
        Step::Deallocate { first } => {
            let of_first = model.first_protected(first.0, model.up_to_end(first.0, first.1));
            of_first.or(model.first_protected(lba, blocks))
        }
        Step::Copy { from } => model.first_protected(lba, model.up_to_end(*from, blocks)),
        _ => model.first_protected(lba, blocks),
    }
}

#[derive(Debug, PartialEq)]
enum Wanted {
    Done,
    Bytes(Vec<u8>),
    Marked(u64),
    Differs(u64),
    ReadOnly(u64),
}

/// What it came to, by its status on the wire.
fn outcome(step: &Step, result: Result<Option<IoBuf>, NamespaceError>) -> Wanted {
    let error = match result {
        Ok(Some(read)) if matches!(step, Step::Read | Step::ReadDurable) => {
            return Wanted::Bytes(read.to_vec());
        }
        Ok(_) => return Wanted::Done,
        Err(error) => error,
    };
    let lba = error.first_lba(LBA_BYTES as u32).unwrap();
    let is_write = !matches!(step, Step::Read | Step::ReadDurable | Step::Verify);
    match error.status(is_write) {
        status if status == Status::WRITE_TO_READ_ONLY_RANGE.dnr() => Wanted::ReadOnly(lba),
        status if status == Status::COMPARE_FAILURE.dnr() => Wanted::Differs(lba),
        status if status == Status::UNRECOVERED_READ_ERROR.dnr() => Wanted::Marked(lba),
        status => panic!("{step:?}: {status}: {error}"),
    }
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
        Step::Deallocate { first } => Io::Deallocate {
            ranges: vec![(first.0, model.up_to_end(first.0, first.1)), (lba, blocks)],
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
                blocks: model.up_to_end(from, blocks),
            }],
            durable: false,
        },
        Step::Flush => Io::Flush,
    }
}

/// A step, the engine that it is for, its first block and number of blocks, and what its data are made of.
type Turn = (Step, usize, u64, u32, u8);

fn check(namespace: Namespace, mut model: Model, turns: Vec<Turn>) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(2, vec![namespace]);
    for (step, on, lba, blocks, seed) in turns {
        let lba = lba % model.blocks();
        let blocks = model.up_to_end(lba, blocks);
        let blocks = match step {
            // All that is copied has its place.
            Step::Copy { from } => blocks.min(model.up_to_end(from, blocks)),
            _ => blocks,
        };
        let data = pattern(blocks as usize, seed);
        let io = io(bench.key(1), &model, &step, lba, blocks, &data);
        let wanted = expect(&mut model, &step, lba, blocks, &data);
        let got = outcome(&step, bench.run(on, 1, io));
        prop_assert!(got == wanted, "{step:?} of {blocks} at {lba}: {got:?}");
        if matches!(got, Wanted::ReadOnly(_)) && model.first_marked(lba, blocks).is_none() {
            let there = bench.read(1, lba, blocks).unwrap();
            prop_assert!(
                there == model.bytes[span(lba, blocks)],
                "{step:?} left its mark"
            );
        }
    }
    for lba in 0..model.blocks() {
        let there = bench.read(1, lba, 1).ok();
        let wanted = (!model.marked[lba as usize]).then(|| model.bytes[span(lba, 1)].to_vec());
        prop_assert!(there == wanted, "block {lba} at the end");
    }
    prop_assert!(!bench.reactors.iter().any(|each| each.engine.is_busy()));
    Ok(())
}

fn turns(blocks: u64, near: impl Strategy<Value = u64>) -> impl Strategy<Value = Vec<Turn>> {
    let turn = (step(blocks), 0..2usize, near, 1..20u32, any::<u8>());
    prop::collection::vec(turn, 1..40)
}

/// Blocks of the view of [`mixed`]; two pieces of memory and a disk without its own content follow.
const VIEW_BLOCKS: u64 = 2344;
const MIXED_BLOCKS: u64 = VIEW_BLOCKS + 3 * BLOCKS / 2 + 24;

/// A view, memory, memory that nobody may write, memory and memory: and what it presents.
fn mixed() -> (Packed, Namespace, Model) {
    let packed = Packed::with_blocks("model-mixed", "u16+lz4", LBA_BYTES as u32);
    let view = Namespace::of_view(7, packed.volume(), vec![packed.store()]);
    assert_eq!(view.blocks, VIEW_BLOCKS);
    let mut protected = disk(4, memory(24));
    protected.write_protected = true;
    let half = BLOCKS / 2;
    let parts = vec![
        view,
        disk(2, memory(half)),
        protected,
        disk(3, memory(half)),
        disk(5, memory(half)),
    ];
    let namespace = Namespace::mixed(1, "mix".into(), parts).unwrap();
    let mut bytes = source();
    bytes.resize(MIXED_BLOCKS as usize * LBA_BYTES, 0);
    let after = VIEW_BLOCKS + half;
    let is_protected = |lba| lba < VIEW_BLOCKS || (after..after + 24).contains(&lba);
    let model = Model {
        bytes,
        marked: vec![false; MIXED_BLOCKS as usize],
        protected: (0..MIXED_BLOCKS).map(is_protected).collect(),
    };
    (packed, namespace, model)
}

/// Mostly where a part ends.
fn near_the_parts() -> impl Strategy<Value = u64> {
    prop_oneof![4 => VIEW_BLOCKS - 20..MIXED_BLOCKS, 1 => 0..MIXED_BLOCKS]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_does_what_the_model_does(turns in turns(BLOCKS, 0..BLOCKS)) {
        let model = Model {
            bytes: vec![0; BLOCKS as usize * LBA_BYTES],
            marked: vec![false; BLOCKS as usize],
            protected: vec![false; BLOCKS as usize],
        };
        check(disk(1, memory(BLOCKS)), model, turns)?;
    }

    #[test]
    fn any_sequence_on_a_mixed_disk_does_what_the_model_does(turns in turns(MIXED_BLOCKS, near_the_parts())) {
        let (_packed, namespace, model) = mixed();
        check(namespace, model, turns)?;
    }
}
