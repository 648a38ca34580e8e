//! Writes of all kinds that overlap in blocks and in time, on two engines, ending in any order. What a block reads as must be what some order of them
//! allows in which nobody who began after another had ended comes before it. So must what a restart at that moment finds.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use namespace::Io;
use proptest::prelude::*;
use store::SharedStore;

use super::bench::{Bench, LBA_BYTES, Notebook, buf, memory};
use super::marks::kept;
use super::stepped::Steps;

/// Blocks that are written; as many follow that are copied from.
const BLOCKS: u64 = 8;

#[derive(Clone, Debug)]
enum Action {
    Begin {
        kind: Kind,
        on: usize,
        lba: u64,
        blocks: u32,
    },
    /// One of the operations that the store has happens.
    Happen(usize),
    /// The keeper saves the first of the records that it has.
    Save,
    Read(u64),
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Zeroes,
    Copy,
    Mark,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let kind = prop_oneof![
        4 => Just(Kind::Write),
        1 => Just(Kind::Zeroes),
        1 => Just(Kind::Copy),
        3 => Just(Kind::Mark),
    ];
    let begin =
        (kind, 0..2usize, 0..BLOCKS, 1..=BLOCKS as u32).prop_map(|(kind, on, lba, blocks)| {
            Action::Begin {
                kind,
                on,
                lba,
                blocks: blocks.min((BLOCKS - lba) as u32),
            }
        });
    let action = prop_oneof![
        4 => begin,
        8 => any::<usize>().prop_map(Action::Happen),
        5 => Just(Action::Save),
        3 => (0..BLOCKS).prop_map(Action::Read),
        1 => Just(Action::Restart),
    ];
    prop::collection::vec(action, 1..200)
}

/// What a block reads as; none where it is marked.
#[derive(Clone, PartialEq)]
struct Value(Option<Vec<u8>>);

impl Value {
    const MARKED: Value = Value(None);

    /// As one command wrote it.
    fn written(lba: u64, seed: u8) -> Value {
        let mut bytes = vec![seed; LBA_BYTES];
        bytes[..8].copy_from_slice(&lba.to_le_bytes());
        Value(Some(bytes))
    }

    fn zeros() -> Value {
        Value(Some(vec![0; LBA_BYTES]))
    }
}

impl std::fmt::Debug for Value {
    /// The block and the seed are enough.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(bytes) => write!(f, "{:?}", [bytes[0], bytes[8], bytes[LBA_BYTES - 1]]),
            None => f.write_str("marked"),
        }
    }
}

/// A command, for one of its blocks.
#[derive(Clone, Debug)]
struct Change {
    /// Its token, with its engine.
    command: (usize, u64),
    value: Value,
    begun: usize,
    ended: Option<usize>,
    /// When a read has shown it: since then at the latest it has happened.
    shown: Option<usize>,
}

struct Model {
    /// By block, each from what was there at first on.
    blocks: Vec<Vec<Change>>,
    now: usize,
}

/// Who looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// A host, after what it has seen.
    On,
    /// A restart, which what was not answered need not outlast.
    Anew,
}

impl Model {
    fn new() -> Model {
        let first = Change {
            command: (0, 0),
            value: Value::zeros(),
            begun: 0,
            ended: Some(0),
            shown: None,
        };
        Model {
            blocks: vec![vec![first]; BLOCKS as usize],
            now: 0,
        }
    }

    fn tick(&mut self) -> usize {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, command: (usize, u64), lba: u64, values: Vec<Value>) {
        let begun = self.tick();
        for (block, value) in self.blocks[lba as usize..].iter_mut().zip(values) {
            block.push(Change {
                command,
                value,
                begun,
                ended: None,
                shown: None,
            });
        }
    }

    fn end(&mut self, command: (usize, u64)) {
        let ended = self.tick();
        for change in self.blocks.iter_mut().flatten() {
            if change.command == command {
                change.ended = Some(ended);
            }
        }
    }

    /// Checks what a block reads as, and draws the conclusion.
    fn read(&mut self, lba: u64, value: &Value, looks: Looks) -> Result<(), TestCaseError> {
        let now = self.tick();
        let block = &self.blocks[lba as usize];
        let happened = |change: &Change| {
            let shown = change.shown.filter(|_| looks == Looks::On);
            change.ended.into_iter().chain(shown).min()
        };
        let is_over = |change: &Change| {
            let at = happened(change);
            let behind = |other: &Change| happened(other).is_some() && Some(other.begun) > at;
            at.is_some() && block.iter().any(behind)
        };
        let can_be: Vec<usize> = (0..block.len())
            .filter(|&at| block[at].value == *value && !is_over(&block[at]))
            .collect();
        prop_assert!(!can_be.is_empty(), "block {lba}: {value:?} of {block:#?}");
        if let (&[at], Looks::On) = (&can_be[..], looks) {
            self.blocks[lba as usize][at].shown.get_or_insert(now);
        }
        Ok(())
    }
}

fn bytes_of(values: &[Value]) -> Vec<u8> {
    let bytes = values.iter().filter_map(|value| value.0.as_ref());
    bytes.flatten().copied().collect()
}

struct Scene {
    bench: Bench,
    steps: Arc<Steps>,
    store: SharedStore,
    notebook: Arc<Notebook>,
    model: Model,
    under_way: Vec<(usize, u64)>,
    begun: u8,
}

impl Scene {
    fn new() -> Scene {
        let store = memory(2 * BLOCKS);
        let notebook = Arc::new(Notebook::default());
        let (steps, stepped) = Steps::over(store.clone());
        let mut bench = Bench::new(2, vec![kept(&stepped, &notebook)]);
        steps.allow(1);
        let sources: Vec<Value> = (0..BLOCKS).map(|lba| Value::written(lba, 255)).collect();
        bench.write(1, BLOCKS, &bytes_of(&sources)).unwrap();
        steps.let_reads_pass();
        notebook.holds.store(true, SeqCst);
        Scene {
            bench,
            steps,
            store,
            notebook,
            model: Model::new(),
            under_way: Vec::new(),
            begun: 0,
        }
    }

    fn begin(&mut self, kind: Kind, on: usize, lba: u64, blocks: u32) {
        self.begun += 1;
        let seed = self.begun;
        let range = lba..lba + u64::from(blocks);
        let values: Vec<Value> = range
            .map(|lba| match kind {
                Kind::Write => Value::written(lba, seed),
                Kind::Zeroes => Value::zeros(),
                Kind::Copy => Value::written(lba, 255),
                Kind::Mark => Value::MARKED,
            })
            .collect();
        let io = match kind {
            Kind::Write => Io::Write {
                lba,
                data: buf(&bytes_of(&values)),
                durable: false,
            },
            Kind::Zeroes => Io::WriteZeroes {
                lba,
                blocks,
                deallocate: false,
                durable: false,
            },
            Kind::Copy => Io::Copy {
                lba,
                sources: vec![self.bench.source(1, BLOCKS + lba, blocks)],
                durable: false,
            },
            Kind::Mark => Io::WriteUncorrectable { lba, blocks },
        };
        let command = (on, self.bench.begin(on, 1, io));
        self.model.begin(command, lba, values);
        self.under_way.push(command);
    }

    /// Lets the engines come as far as they can, and hears who has ended.
    fn turn(&mut self) -> Result<(), TestCaseError> {
        (0..4).for_each(|_| self.bench.turn());
        for (on, token) in std::mem::take(&mut self.under_way) {
            if !self.bench.is_done(on, token) {
                self.under_way.push((on, token));
                continue;
            }
            let ended = self.bench.end(on, token);
            prop_assert!(ended.is_ok(), "{ended:?}");
            self.model.end((on, token));
        }
        Ok(())
    }

    fn read(&mut self, lba: u64) -> Result<(), TestCaseError> {
        let value = Value(self.bench.read(1, lba, 1).ok());
        self.model.read(lba, &value, Looks::On)
    }

    fn restart(&mut self) -> Result<(), TestCaseError> {
        let mut again = Bench::new(1, vec![kept(&self.store, &self.notebook)]);
        (0..BLOCKS).try_for_each(|lba| {
            let value = Value(again.read(1, lba, 1).ok());
            self.model.read(lba, &value, Looks::Anew)
        })
    }

    fn act(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Begin {
                kind,
                on,
                lba,
                blocks,
            } => self.begin(kind, on, lba, blocks),
            Action::Happen(which) => {
                let held = self.steps.held();
                if !held.is_empty() {
                    self.steps.choose(held[which % held.len()]);
                }
            }
            Action::Save => {
                self.notebook.let_one_go();
            }
            Action::Read(lba) => self.read(lba)?,
            Action::Restart => self.restart()?,
        }
        self.turn()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_overlaps_comes_to_what_some_order_of_it_allows(actions in actions()) {
        let mut scene = Scene::new();
        for action in actions {
            scene.act(action)?;
        }
        while !scene.under_way.is_empty() {
            scene.steps.allow(1);
            scene.notebook.let_one_go();
            scene.turn()?;
        }
        (0..BLOCKS).try_for_each(|lba| scene.read(lba))?;
        scene.restart()?;
    }
}
