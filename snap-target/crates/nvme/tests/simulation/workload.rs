//! The I/O commands of the simulation's hosts: which come next, and what the oracle must know of each.

use nvme::initiator::{Blocks, Command, command, nvm};
use nvme::tcp::host::Transfer;
use nvme_spec::nvm::CopyRange;
use nvme_spec::{IoOpcode, Lba, Nsid, Sqe, Status, U32};

use crate::oracle::{Io, Kind, Oracle, Pair, Who};
use crate::reservations;
use nvme::simulation::model::{Span, Use, Value};
use nvme::simulation::random::Random;

const NSID: Nsid = Nsid(1);
/// Blocks that fused operations alone write, the first of the disk.
pub const COUNTED_BLOCKS: u64 = 4;
/// ACWU + 1.
const FUSED_BLOCKS_MAX: u64 = 8;

/// What random I/O commands are made of.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub blocks_max: u32,
    pub lba_bytes: u32,
    /// One command in so many is given blocks that others work on.
    pub overlaps_once_in: u64,
    pub reserves: bool,
}

/// What a host sends next.
pub enum Next {
    One(Command, Vec<u8>, Io),
    /// Two entries one behind the other, each with its data; what is known of each, and of both.
    Two(Box<[(Command, Vec<u8>, Io); 2]>, Option<Pair>),
}

/// Chooses one.
struct Chooser<'a> {
    oracle: &'a mut Oracle,
    random: &'a mut Random,
    workload: Workload,
    who: Who,
}

impl Workload {
    /// A random command, where its blocks are free. `pair` is the number that a fused operation gets.
    pub fn next(
        self,
        oracle: &mut Oracle,
        random: &mut Random,
        who: Who,
        room: usize,
        pair: usize,
    ) -> Option<Next> {
        let mut chooser = Chooser {
            oracle,
            random,
            workload: self,
            who,
        };
        if self.reserves && chooser.random.once_in(8) {
            return chooser.reserve();
        }
        match chooser.random.within(0..100) {
            0..4 => chooser.flush(),
            4..31 => chooser.write(),
            31..58 => chooser.read(),
            58..63 => chooser.write_zeroes(),
            63..67 => chooser.deallocate(),
            67..73 => chooser.compare(),
            73..76 => chooser.verify(),
            76..82 => chooser.copy(),
            82..84 => chooser.write_uncorrectable(),
            84..86 => chooser.refused(),
            86..94 if room >= 2 => chooser.fused(pair),
            94..97 if room >= 2 => chooser.misfused(),
            _ => chooser.read(),
        }
    }
}

impl Chooser<'_> {
    fn span(&mut self, first: u64, most: u64) -> Span {
        let blocks = self.oracle.disk.blocks() as u64;
        // Small ones meet more often.
        let most = match self.random.once_in(2) {
            true => most,
            false => most.min(4),
        };
        let lba = self.random.within(first..blocks);
        let most = most
            .min(blocks - lba)
            .min(u64::from(self.workload.blocks_max));
        let count = u32::try_from(self.random.within(1..most + 1)).unwrap();
        Span { lba, count }
    }

    fn anywhere(&mut self) -> Span {
        self.span(0, u64::MAX)
    }

    fn writable(&mut self) -> Span {
        self.span(COUNTED_BLOCKS, u64::MAX)
    }

    fn claim(&mut self, uses: &[(Span, Use)]) -> Option<()> {
        let overlaps = self.random.once_in(self.workload.overlaps_once_in);
        self.oracle.disk.claim(uses, overlaps).then_some(())
    }

    fn blocks(&self, span: Span) -> Blocks {
        Blocks {
            lba: Lba(span.lba),
            count: span.count,
            lba_bytes: self.workload.lba_bytes,
        }
    }

    fn one(
        &mut self,
        (command, data): (Command, Vec<u8>),
        kind: Kind,
        uses: &[(Span, Use)],
    ) -> Option<Next> {
        Some(Next::One(command, data, self.io(kind, uses)))
    }

    fn io(&mut self, kind: Kind, uses: &[(Span, Use)]) -> Io {
        Io {
            kind,
            began: self.oracle.disk.tick(),
            uses: uses.to_vec(),
            abort_sent: false,
        }
    }

    fn flush(&mut self) -> Option<Next> {
        let nsid = self.random.of(&[NSID, Nsid::BROADCAST]);
        self.one(plain(command::flush(nsid)), Kind::Flush, &[])
    }

    fn read(&mut self) -> Option<Next> {
        let span = self.anywhere();
        let uses = [(span, Use::Read)];
        self.claim(&uses)?;
        let command = command::read(NSID, self.blocks(span));
        self.one(plain(command), Kind::Read(span), &uses)
    }

    fn verify(&mut self) -> Option<Next> {
        let span = self.anywhere();
        let uses = [(span, Use::Read)];
        self.claim(&uses)?;
        let command = nvm::verify(NSID, Lba(span.lba), span.count);
        self.one(plain(command), Kind::Verify(span), &uses)
    }

    fn write(&mut self) -> Option<Next> {
        let span = self.writable();
        let uses = [(span, Use::Write)];
        self.claim(&uses)?;
        let (write, data) = self.oracle.disk.write(self.who.client, span);
        let command = command::write(NSID, self.blocks(span));
        let spans = vec![span];
        self.one((command, data), Kind::Change { write, spans }, &uses)
    }

    /// A command that gives all its blocks one value.
    fn change(&mut self, spans: &[Span], value: Value) -> Option<Kind> {
        let uses: Vec<_> = spans.iter().map(|span| (*span, Use::Write)).collect();
        self.claim(&uses)?;
        let client = self.who.client;
        let write = self.oracle.disk.begin(client);
        for span in spans {
            self.oracle.disk.put(write, client, *span, |_| vec![value]);
        }
        let spans = spans.to_vec();
        Some(Kind::Change { write, spans })
    }

    fn write_zeroes(&mut self) -> Option<Next> {
        let span = self.writable();
        let kind = self.change(&[span], Value::Zeros)?;
        let deallocate = self.random.once_in(2);
        let command = nvm::write_zeroes(NSID, Lba(span.lba), span.count, deallocate);
        self.one(plain(command), kind, &[(span, Use::Write)])
    }

    fn write_uncorrectable(&mut self) -> Option<Next> {
        let span = self.span(COUNTED_BLOCKS, 2);
        let kind = self.change(&[span], Value::Unreadable)?;
        let command = nvm::write_uncorrectable(NSID, Lba(span.lba), span.count);
        self.one(plain(command), kind, &[(span, Use::Write)])
    }

    fn deallocate(&mut self) -> Option<Next> {
        let mut spans = vec![self.writable()];
        let second = self.writable();
        if second
            .blocks()
            .all(|lba| !spans[0].blocks().any(|it| it == lba))
        {
            spans.push(second);
        }
        let kind = self.change(&spans, Value::Zeros)?;
        let ranges: Vec<(Lba, u32)> = spans.iter().map(|span| (*span).into()).collect();
        let uses: Vec<_> = spans.iter().map(|span| (*span, Use::Write)).collect();
        self.one(nvm::deallocate(NSID, &ranges), kind, &uses)
    }

    /// What may be there, or, now and then, is not.
    fn expected(&mut self, span: Span) -> Vec<Value> {
        let guess = |lba| {
            let values = self.oracle.disk.values(lba);
            match self.random.of(&values) {
                Value::Unreadable => Value::Zeros,
                value => value,
            }
        };
        span.blocks().map(guess).collect()
    }

    fn compare(&mut self) -> Option<Next> {
        let span = self.anywhere();
        let uses = [(span, Use::Read)];
        self.claim(&uses)?;
        let mut expected = self.expected(span);
        if self.random.once_in(8) {
            expected[0] = Value::Data {
                version: u64::MAX,
                lba: 0,
            };
        }
        let data = self.oracle.disk.data(&expected);
        let command = nvm::compare(NSID, self.blocks(span));
        self.one((command, data), Kind::Compare { span, expected }, &uses)
    }

    fn copy(&mut self) -> Option<Next> {
        let mut sources = vec![self.span(0, 8)];
        if self.random.once_in(2) {
            sources.push(self.span(0, 8));
        }
        let count = sources.iter().map(|span| span.count).sum();
        let last = self.oracle.disk.blocks() as u64 - u64::from(count);
        let to = Span {
            lba: self.random.within(COUNTED_BLOCKS..last + 1),
            count,
        };
        let meets = |span: &Span| span.blocks().any(|lba| to.blocks().any(|it| it == lba));
        if sources.iter().any(meets) {
            return self.overlapping_copy(to, &sources);
        }
        let mut uses: Vec<_> = sources.iter().map(|span| (*span, Use::Source)).collect();
        uses.push((to, Use::Write));
        self.claim(&uses)?;
        let client = self.who.client;
        let write = self.oracle.disk.begin(client);
        let from: Vec<u64> = sources.iter().flat_map(|span| span.blocks()).collect();
        let values: Vec<Vec<Value>> = (from.iter())
            .map(|&lba| {
                let mut values = self.oracle.disk.values(lba);
                values.retain(|it| *it != Value::Unreadable);
                values
            })
            .collect();
        let place = |lba: u64| usize::try_from(lba - to.lba).unwrap();
        self.oracle
            .disk
            .put(write, client, to, |lba| values[place(lba)].clone());
        let sent = copy(to, &sources, self.random.of(&[0, 2]));
        self.one(sent, Kind::Copy { write, to, sources }, &uses)
    }

    fn overlapping_copy(&mut self, to: Span, sources: &[Span]) -> Option<Next> {
        let status = Status::OVERLAPPING_IO_RANGE.dnr();
        self.one(copy(to, sources, 0), Kind::Refused(status), &[])
    }

    /// What is refused whatever the disk and its reservations are.
    fn refused(&mut self) -> Option<Next> {
        let beyond = Span {
            lba: self.oracle.disk.blocks() as u64,
            count: 1,
        };
        let (command, status) = match self.random.within(0..4) {
            0 => (
                command::read(NSID, self.blocks(beyond)),
                Status::LBA_OUT_OF_RANGE,
            ),
            1 => (
                nvm::write_zeroes(NSID, Lba(beyond.lba), 1, false),
                Status::LBA_OUT_OF_RANGE,
            ),
            2 => (command::flush(Nsid(0)), Status::INVALID_NAMESPACE),
            _ => (unknown(), Status::INVALID_OPCODE),
        };
        self.one(plain(command), Kind::Refused(status.dnr()), &[])
    }

    /// Compare and Write: of one block that nothing else writes, as a counter; or of any.
    fn fused(&mut self, number: usize) -> Option<Next> {
        let is_counted = !self.random.once_in(3);
        let span = match is_counted {
            true => Span {
                lba: self.random.within(0..COUNTED_BLOCKS),
                count: 1,
            },
            false => self.span(COUNTED_BLOCKS, FUSED_BLOCKS_MAX),
        };
        let uses = vec![(span, Use::Write)];
        // Counters are there to be fought for.
        if !self.oracle.disk.claim(&uses, is_counted) {
            return None;
        }
        let mut expected = self.expected(span);
        if self.random.once_in(8) {
            expected[0] = Value::Data {
                version: u64::MAX,
                lba: 0,
            };
        }
        let (write, data) = self.oracle.disk.write(self.who.client, span);
        let mut first = nvm::compare(NSID, self.blocks(span));
        let mut second = command::write(NSID, self.blocks(span));
        nvm::fuse(&mut first, &mut second);
        let compared = self.oracle.disk.data(&expected);
        let halves = [(first, compared), (second, data)].map(|(command, data)| {
            let io = self.io(Kind::Half(number), &[]);
            (command, data, io)
        });
        let pair = Pair {
            began: halves[0].2.began,
            write,
            span,
            expected,
            uses,
            is_counted,
            answers: [None; 2],
        };
        Some(Next::Two(Box::new(halves), Some(pair)))
    }

    /// Two entries that say they are halves of one operation, and are not. Nothing of them is done.
    fn misfused(&mut self) -> Option<Next> {
        let span = self.span(COUNTED_BLOCKS, FUSED_BLOCKS_MAX);
        let block = self.oracle.disk.data(&[Value::Data {
            version: u64::MAX,
            lba: 0,
        }]);
        let data = block.repeat(span.count as usize);
        let blocks = self.blocks(span);
        let mut first = nvm::compare(NSID, blocks);
        let mut second = command::write(NSID, blocks);
        nvm::fuse(&mut first, &mut second);
        let missing = Status::FUSED_MISSING;
        let field = Status::INVALID_FIELD.dnr();
        let beyond = Lba(self.oracle.disk.blocks() as u64);
        let range = Status::LBA_OUT_OF_RANGE.dnr();
        let other = (unknown(), Vec::new());
        let opcode = Status::INVALID_OPCODE.dnr();
        let (statuses, [first, second]) = match self.random.within(0..5) {
            // One half alone.
            0 => ([missing, opcode], [(first, data), other]),
            1 => ([missing, opcode], [(second, data), other]),
            // Another place.
            2 => {
                second.sqe.set_slba(Lba(span.lba - 1));
                ([field, field], [(first, data.clone()), (second, data)])
            }
            // A first half that fails at once takes the second with it.
            3 => {
                first.sqe.set_slba(beyond);
                let statuses = [range, Status::FUSED_FAILED];
                (statuses, [(first, data.clone()), (second, data)])
            }
            // A second half that cannot be one.
            _ => {
                second.sqe.set_slba(beyond);
                let statuses = [Status::FUSED_FAILED, range];
                (statuses, [(first, data.clone()), (second, data)])
            }
        };
        let commands = [first, second];
        let mut statuses = statuses.into_iter();
        let halves = commands.map(|(command, data)| {
            let status = statuses.next().unwrap();
            (command, data, self.io(Kind::Refused(status), &[]))
        });
        Some(Next::Two(Box::new(halves), None))
    }

    fn reserve(&mut self) -> Option<Next> {
        let reservations = &mut self.oracle.reservations;
        if reservations.is_busy() || self.random.once_in(4) {
            return self.one(plain(reservations::report(NSID)), Kind::Report, &[]);
        }
        let host = self.who.host;
        let request = reservations.pick(host, self.random);
        let sent = reservations::command(NSID, &request);
        let began = self.oracle.disk.tick();
        self.oracle.reservations.begin(host, &request, began);
        let io = Io {
            kind: Kind::Reserve(request),
            began,
            uses: Vec::new(),
            abort_sent: false,
        };
        Some(Next::One(sent.0, sent.1, io))
    }
}

fn plain(command: Command) -> (Command, Vec<u8>) {
    (command, Vec::new())
}

/// An opcode that no command set has.
fn unknown() -> Command {
    Command {
        sqe: Sqe {
            opcode: 0x7C,
            nsid: U32::new(NSID.0),
            ..Sqe::ZERO
        },
        transfer: Transfer::None,
    }
}

/// Copy with descriptors of format 0h or 2h.
fn copy(to: Span, sources: &[Span], format: u32) -> (Command, Vec<u8>) {
    let named: Vec<_> = sources
        .iter()
        .map(|it| (NSID, Lba(it.lba), it.count))
        .collect();
    let (mut command, data) = nvm::copy(NSID, Lba(to.lba), &named);
    debug_assert_eq!(command.sqe.opcode, IoOpcode::COPY.0);
    debug_assert_eq!(data.len(), sources.len() * size_of::<CopyRange>());
    let cdw12 = command.sqe.cdw12.get() & !(0xF << 8) | format << 8;
    command.sqe.cdw12 = U32::new(cdw12);
    (command, data)
}
