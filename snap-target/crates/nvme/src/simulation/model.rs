//! What a disk must hold, from nothing but what hosts were told, however their commands overlap.
//!
//! A block has candidates: the values that writes gave it, or may have. A write counts from its submission on; when it is acknowledged, whatever ended
//! before it began is buried. A write whose outcome is unknown stays a candidate until something buries it, and one that the target may still apply
//! cannot be buried: it ends when its association has. A read may show any candidate that was not buried when it began.

use std::collections::BTreeSet;

use nvme_spec::Lba;

/// A moment: the order in which hosts submitted and were answered.
pub type Moment = u64;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Zeros,
    /// What a write brought to this block, or to the one that it was copied from.
    Data {
        version: u64,
        lba: u64,
    },
    /// Write Uncorrectable.
    Unreadable,
}

#[derive(Clone, Debug)]
struct Candidate {
    write: WriteId,
    client: usize,
    /// One; several where it was copied from a block that may have held either.
    values: Vec<Value>,
    /// From then on it is applied no more.
    ended: Option<Moment>,
    /// It was acknowledged.
    is_acknowledged: bool,
    /// Its connection is gone: it is with the target by now, or never will be.
    is_lost: bool,
    /// From then on it was applied no more, unless its host could write again when it reached the target.
    fenced: Option<Moment>,
    /// From then on nobody sees it.
    buried: Option<Moment>,
}

impl Candidate {
    /// To a command that began then.
    fn may_show(&self, value: Value, began: Moment) -> bool {
        self.values.contains(&value) && self.buried.is_none_or(|buried| buried > began)
    }
}

#[derive(Clone, Debug)]
struct Block {
    candidates: Vec<Candidate>,
    /// Commands under way that name it; of these, those that write it, and those that copy from it.
    users: u32,
    writers: u32,
    copied: u32,
}

/// A write, or what else changes blocks: when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId(Moment);

/// Blocks one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub lba: u64,
    pub count: u32,
}

impl Span {
    pub fn blocks(self) -> impl Iterator<Item = u64> {
        self.lba..self.lba + u64::from(self.count)
    }
}

/// What a command does with blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
    /// Of a Copy. What it reads must be known when it begins, so that nobody writes there meanwhile.
    Source,
}

/// The oracle of one disk.
#[derive(Debug)]
pub struct Model {
    lba_bytes: usize,
    blocks: Vec<Block>,
    clock: Moment,
    last_version: u64,
    /// What fused operations found and replaced: nobody finds it twice, where nothing but fused operations writes.
    replaced: BTreeSet<(u64, Value)>,
}

impl Model {
    pub fn new(blocks: usize, lba_bytes: usize) -> Model {
        let zeros = Candidate {
            write: WriteId(0),
            client: usize::MAX,
            values: vec![Value::Zeros],
            ended: Some(0),
            is_acknowledged: true,
            is_lost: false,
            fenced: None,
            buried: None,
        };
        let block = Block {
            candidates: vec![zeros],
            users: 0,
            writers: 0,
            copied: 0,
        };
        Model {
            lba_bytes,
            blocks: vec![block; blocks],
            clock: 0,
            last_version: 0,
            replaced: BTreeSet::new(),
        }
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The next moment.
    pub fn tick(&mut self) -> Moment {
        self.clock += 1;
        self.clock
    }

    /// Claims blocks for one command; false where that cannot be. Where `overlaps`, others may have them, too.
    pub fn claim(&mut self, spans: &[(Span, Use)], overlaps: bool) -> bool {
        let is_free = spans.iter().all(|&(span, how)| {
            self.range(span).iter().all(|block| {
                (overlaps || block.users == 0)
                    && (how != Use::Write || block.copied == 0)
                    && (how != Use::Source || block.writers == 0)
            })
        });
        if is_free {
            self.count(spans, |count| *count += 1);
        }
        is_free
    }

    pub fn release(&mut self, spans: &[(Span, Use)]) {
        self.count(spans, |count| *count -= 1);
        for &(span, _) in spans {
            for block in self.range(span) {
                if block.users == 0 {
                    block.candidates.retain(|it| it.buried.is_none());
                }
            }
        }
    }

    fn count(&mut self, spans: &[(Span, Use)], change: impl Fn(&mut u32)) {
        for &(span, how) in spans {
            for block in self.range(span) {
                change(&mut block.users);
                match how {
                    Use::Read => {}
                    Use::Write => change(&mut block.writers),
                    Use::Source => change(&mut block.copied),
                }
            }
        }
    }

    /// A write of new data begins; the data.
    pub fn write(&mut self, client: usize, span: Span) -> (WriteId, Vec<u8>) {
        self.last_version += 1;
        let version = self.last_version;
        let value = |lba| Value::Data { version, lba };
        let data = self.data(&span.blocks().map(value).collect::<Vec<_>>());
        let write = self.begin(client);
        self.put(write, client, span, |lba| vec![value(lba)]);
        (write, data)
    }

    /// A command that changes blocks begins; [`Model::put`] says how.
    pub fn begin(&mut self, client: usize) -> WriteId {
        assert_ne!(client, usize::MAX);
        WriteId(self.tick())
    }

    /// One of these values is what a write gives a block.
    pub fn put(
        &mut self,
        write: WriteId,
        client: usize,
        span: Span,
        values: impl Fn(u64) -> Vec<Value>,
    ) {
        for (lba, block) in span.blocks().zip(self.range(span)) {
            block.candidates.push(Candidate {
                write,
                client,
                values: values(lba),
                ended: None,
                is_acknowledged: false,
                is_lost: false,
                fenced: None,
                buried: None,
            });
        }
    }

    /// The write was acknowledged. `could_not_write`: since that moment its host could not.
    pub fn written(
        &mut self,
        write: WriteId,
        span: Span,
        could_not_write: impl Fn(Moment) -> bool,
    ) {
        let now = self.tick();
        for block in self.range(span) {
            let mut candidates = block.candidates.iter();
            let ours = candidates.find(|it| it.write == write);
            let fenced = ours
                .and_then(|it| it.fenced)
                .filter(|it| could_not_write(*it));
            let over = fenced.is_some_and(|fenced| {
                let mut others = block.candidates.iter();
                others.any(|it| it.is_acknowledged && it.write.0 > fenced)
            });
            for candidate in &mut block.candidates {
                if candidate.write == write {
                    candidate.is_acknowledged = true;
                    candidate.ended.get_or_insert(fenced.unwrap_or(now));
                    candidate.buried = candidate.buried.or(over.then_some(now));
                } else if candidate.ended.is_some_and(|ended| ended < write.0) {
                    candidate.buried.get_or_insert(now);
                }
            }
        }
    }

    /// The connection of the write ended before it was acknowledged.
    pub fn lost(&mut self, write: WriteId, span: Span) {
        for candidate in self
            .range(span)
            .iter_mut()
            .flat_map(|it| &mut it.candidates)
        {
            candidate.is_lost |= candidate.write == write;
        }
    }

    /// The write was refused: nothing of it is ever seen.
    pub fn refused(&mut self, write: WriteId, span: Span) {
        for block in self.range(span) {
            block.candidates.retain(|it| it.write != write);
        }
    }

    /// The write ended without an answer that tells whether it was applied.
    pub fn unknown(&mut self, write: WriteId, span: Span) {
        let now = self.tick();
        for candidate in self
            .range(span)
            .iter_mut()
            .flat_map(|it| &mut it.candidates)
        {
            if candidate.write == write {
                candidate.ended.get_or_insert(now);
            }
        }
    }

    /// The association that this client had is over: nothing of it is applied any more.
    pub fn end_writes(&mut self, client: usize) {
        let now = self.tick();
        for candidate in self.blocks.iter_mut().flat_map(|it| &mut it.candidates) {
            if candidate.client == client {
                candidate.ended.get_or_insert(now);
            }
        }
    }

    /// Preempt and Abort: what these clients have under way at the target has ended. What has not reached it is judged when it does; so what is lost has
    /// ended only where its host could not write again meanwhile.
    pub fn fence(
        &mut self,
        is_of: impl Fn(usize) -> bool,
        could_not_write: impl Fn(usize) -> bool,
    ) {
        let now = self.tick();
        let candidates = self.blocks.iter_mut().flat_map(|it| &mut it.candidates);
        for candidate in candidates.filter(|it| is_of(it.client) && it.ended.is_none()) {
            match candidate.is_lost {
                true if could_not_write(candidate.client) => candidate.ended = Some(now),
                true => {}
                false => candidate.fenced = Some(now),
            }
        }
    }

    /// What a block may hold.
    pub fn values(&self, lba: u64) -> Vec<Value> {
        let candidates = self.blocks[at(lba)].candidates.iter();
        let seen = candidates.filter(|it| it.buried.is_none());
        let mut values: Vec<Value> = seen.flat_map(|it| it.values.iter().copied()).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// What a block may have held at some time since `began`.
    fn values_since(&self, lba: u64, began: Moment) -> impl Iterator<Item = Value> {
        let candidates = self.blocks[at(lba)].candidates.iter();
        let seen = candidates.filter(move |it| it.buried.is_none_or(|buried| buried > began));
        seen.flat_map(|it| it.values.iter().copied())
    }

    pub fn may_be_unreadable(&self, span: Span, began: Moment) -> bool {
        span.blocks().any(|lba| {
            self.values_since(lba, began)
                .any(|it| it == Value::Unreadable)
        })
    }

    pub fn may_be_readable(&self, span: Span, began: Moment) -> bool {
        span.blocks().all(|lba| {
            self.values_since(lba, began)
                .any(|it| it != Value::Unreadable)
        })
    }

    /// Whether one of the blocks may have held something else.
    pub fn may_differ(&self, span: Span, expected: &[Value], began: Moment) -> bool {
        let mut blocks = span.blocks().zip(expected);
        blocks.any(|(lba, expected)| self.values_since(lba, began).any(|it| it != *expected))
    }

    /// Checks what a command that began then has read.
    pub fn check(&mut self, span: Span, data: &[u8], began: Moment) {
        let lba_bytes = self.lba_bytes;
        assert_eq!(data.len(), span.count as usize * lba_bytes);
        for (lba, found) in span.blocks().zip(data.chunks(lba_bytes)) {
            let value = named(found);
            assert!(
                fill(value, lba_bytes) == found,
                "block {lba} holds what nobody wrote: {:02x?}...",
                &found[..32]
            );
            self.saw(lba, value, began);
        }
    }

    /// A command that began then saw this value in the block. What was over by then and is another is gone.
    pub fn saw(&mut self, lba: u64, value: Value, began: Moment) {
        let now = self.tick();
        let block = &mut self.blocks[at(lba)];
        let mut matching = 0;
        for candidate in &mut block.candidates {
            if candidate.may_show(value, began) {
                matching += 1;
            } else if !candidate.values.contains(&value)
                && candidate.ended.is_some_and(|ended| ended < began)
            {
                candidate.buried.get_or_insert(now);
            }
        }
        assert!(
            matching > 0,
            "block {lba} held {value:?} for a command that began at {began}: {block:#?}"
        );
        if matching == 1 {
            let mut candidates = block.candidates.iter_mut();
            if let Some(only) = candidates.find(|it| it.may_show(value, began)) {
                only.values = vec![value];
            }
        }
    }

    /// A fused operation found this in a block that nothing but fused operations writes, and replaced it.
    pub fn replaced(&mut self, lba: u64, value: Value) {
        let is_first = self.replaced.insert((lba, value));
        assert!(
            is_first,
            "two fused operations replaced {value:?} in block {lba}"
        );
    }

    /// The bytes of blocks that hold these values.
    pub fn data(&self, values: &[Value]) -> Vec<u8> {
        let blocks = values.iter().map(|value| fill(*value, self.lba_bytes));
        blocks.collect::<Vec<_>>().concat()
    }

    fn range(&mut self, span: Span) -> &mut [Block] {
        let start = at(span.lba);
        &mut self.blocks[start..start + span.count as usize]
    }
}

impl From<Span> for (Lba, u32) {
    fn from(span: Span) -> (Lba, u32) {
        (Lba(span.lba), span.count)
    }
}

fn at(lba: u64) -> usize {
    usize::try_from(lba).unwrap()
}

/// A block's first bytes name its value.
fn named(block: &[u8]) -> Value {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    match (word(0), word(8)) {
        (0, _) => Value::Zeros,
        (version, lba) => Value::Data { version, lba },
    }
}

fn fill(value: Value, lba_bytes: usize) -> Vec<u8> {
    let Value::Data { version, lba } = value else {
        return vec![0; lba_bytes];
    };
    let mut bytes = Vec::with_capacity(lba_bytes);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&lba.to_le_bytes());
    let mut word =
        version.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ lba.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    while bytes.len() < lba_bytes {
        word = word.wrapping_mul(0xD129_0A4A_6E5C_4A35).wrapping_add(1);
        bytes.extend_from_slice(&(word >> 7).to_le_bytes());
    }
    bytes
}
