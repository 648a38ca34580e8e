//! Streams among reads.

use std::ops::Range;

use super::ReaderId;

/// Places that are remembered: streams, and reads that may be the first of one.
const STREAMS_MAX: usize = 32;
/// A stream that nobody went on with for so many reads is given up.
const READS_IDLE_MAX: u64 = 4096;
/// Reads of a stream may come so many of their lengths early or late, or be left out: other queues have them.
const READS_ASKEW: u64 = 8;
/// A sequential stream whose reads leave out more than one of their lengths, as many times in a row and always as much, is a strided one.
const HOPS: u32 = 6;
/// So often it is looked at how much of what a sequential stream has passed was read: less than the share, and it is none.
const RUN_READS: u32 = 16;
const RUN_SHARE: u64 = 4;
/// Strides beyond this are chance.
const STRIDE_MAX: u64 = 64 << 20;

/// How far ahead of a stream to be.
pub(super) struct Window {
    /// Bytes ahead of the reader.
    pub(super) bytes: u64,
    /// Bytes to be named at a time at least.
    pub(super) least: u64,
    /// Where the namespace ends.
    pub(super) end: u64,
}

#[derive(Debug)]
struct Stream {
    reader: ReaderId,
    /// First byte of its last read.
    start: u64,
    /// Bytes of a read.
    len: u64,
    /// Bytes of all its reads.
    bytes: u64,
    /// From the first byte of one read to that of the next; none of a first read.
    stride: Option<u64>,
    /// Whether it is one: its second read followed at once, or its third at the distance of the second.
    is_sure: bool,
    /// Bytes before this one have been named; in a strided one, reads that begin before it.
    named: u64,
    /// When it was read last, in reads.
    used: u64,
    hops: Hops,
    run: Run,
}

/// Reads of a sequential stream that left others out.
#[derive(Debug, Default)]
struct Hops {
    stride: u64,
    in_a_row: u32,
}

/// The last reads of a sequential stream.
#[derive(Debug, Default)]
struct Run {
    start: u64,
    reads: u32,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct Streams {
    all: Vec<Stream>,
    reads: u64,
    /// The stream of the last read.
    last: usize,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams {
            all: Vec::with_capacity(STREAMS_MAX),
            reads: 0,
            last: 0,
        }
    }

    /// Streams that are read ahead for.
    pub(super) fn active(&self) -> u64 {
        let active = self.all.iter().filter(|stream| self.is_active(stream));
        active.count() as u64
    }

    fn is_active(&self, stream: &Stream) -> bool {
        stream.is_sure && self.reads - stream.used < READS_IDLE_MAX
    }

    pub(super) fn read(&mut self, reader: ReaderId, range: Range<u64>) {
        self.reads += 1;
        let found = self
            .all
            .iter()
            .position(|stream| stream.reader == reader && stream.goes_on(&range));
        if let Some(at) = found {
            self.all[at].go_on(&range, self.reads);
            self.last = at;
            return;
        }
        let of_reader = self.all.iter().filter(|stream| stream.reader == reader);
        let before = of_reader.max_by_key(|stream| stream.used);
        let stride = before.and_then(|before| range.start.checked_sub(before.start));
        let first = Stream {
            reader,
            start: range.start,
            len: range.end - range.start,
            bytes: range.end - range.start,
            stride: stride.filter(|stride| (1..=STRIDE_MAX).contains(stride)),
            is_sure: false,
            named: range.end,
            used: self.reads,
            hops: Hops::default(),
            run: Run::default(),
        };
        self.last = self.place();
        match self.all.get_mut(self.last) {
            Some(place) => *place = first,
            None => self.all.push(first),
        }
    }

    /// A free place, or that of the oldest among those that are least worth.
    fn place(&self) -> usize {
        if self.all.len() < STREAMS_MAX {
            return self.all.len();
        }
        let worth = |at: &usize| (self.is_active(&self.all[*at]), self.all[*at].used);
        (0..self.all.len()).min_by_key(worth).unwrap_or(0)
    }

    /// What to name next, for the stream that was read last; `window` by the bytes of a read of it, and of all of them.
    pub(super) fn next_piece(&mut self, window: impl Fn(u64, u64) -> Window) -> Option<Range<u64>> {
        let stream = self
            .all
            .get_mut(self.last)
            .filter(|stream| stream.is_sure)?;
        stream.next_piece(&window(stream.len, stream.bytes))
    }
}

impl Stream {
    fn end(&self) -> u64 {
        self.start + self.len
    }

    fn is_sequential(&self) -> bool {
        self.stride == Some(self.len)
    }

    /// Whether a read is this stream's next one.
    fn goes_on(&self, range: &Range<u64>) -> bool {
        let askew = READS_ASKEW * self.len;
        match self.stride {
            Some(_) if self.is_sure && self.is_sequential() => {
                (self.end().saturating_sub(askew)..=self.end() + askew).contains(&range.start)
            }
            Some(stride) if self.is_sure => {
                let on = range.start.checked_sub(self.start);
                on.is_some_and(|on| on > 0 && on % stride == 0 && on <= READS_ASKEW * stride)
            }
            stride => {
                let at = stride.map(|stride| self.start + stride);
                range.start == self.end() || at == Some(range.start)
            }
        }
    }

    fn go_on(&mut self, range: &Range<u64>, reads: u64) {
        self.used = reads;
        if !self.is_sure {
            self.is_sure = true;
            self.named = range.end;
            if range.start == self.end() {
                self.len = range.end - range.start;
                self.stride = Some(self.len);
                self.run = Run {
                    start: range.start,
                    ..Run::default()
                };
            }
        }
        let len = range.end - range.start;
        let is_sequential = self.is_sequential();
        self.bytes = self.bytes.saturating_add(len);
        self.run.bytes += len;
        if range.start >= self.start {
            let hop = range.start - self.start;
            let leaves_out = hop > 2 * self.len;
            self.start = range.start;
            self.len = len;
            if is_sequential {
                self.stride = Some(len);
                self.hopped(hop, leaves_out);
            }
        }
        if self.is_sequential() != is_sequential {
            self.hops = Hops::default();
            self.run = Run {
                start: self.end(),
                ..Run::default()
            };
        } else if is_sequential {
            self.look_at_run();
        }
    }

    /// A read of a sequential stream began so much behind the one before.
    fn hopped(&mut self, hop: u64, leaves_out: bool) {
        let hops = &mut self.hops;
        if !leaves_out {
            hops.in_a_row = 0;
            return;
        }
        let is_same = std::mem::replace(&mut hops.stride, hop) == hop;
        hops.in_a_row = if is_same { hops.in_a_row + 1 } else { 1 };
        if hops.in_a_row == HOPS {
            self.stride = Some(hop);
            self.named = self.end();
        }
    }

    /// Others may read what this one leaves out, but not most of it.
    fn look_at_run(&mut self) {
        self.run.reads += 1;
        if self.run.reads < RUN_READS {
            return;
        }
        let end = self.end();
        let passed = end.saturating_sub(self.run.start);
        if RUN_SHARE * self.run.bytes < passed {
            (self.is_sure, self.stride, self.bytes) = (false, None, self.len);
        }
        self.run = Run {
            start: end,
            ..Run::default()
        };
    }

    fn next_piece(&mut self, window: &Window) -> Option<Range<u64>> {
        if self.is_sequential() {
            self.next_bytes(window)
        } else {
            self.next_read(window)
        }
    }

    fn next_bytes(&mut self, window: &Window) -> Option<Range<u64>> {
        let from = self.named.max(self.end());
        let to = (self.end() + window.bytes).min(window.end);
        let is_end = to == window.end;
        if from >= to || to - from < window.least && !is_end {
            return None;
        }
        let to = to.min(from + super::PIECE_BYTES_MAX);
        self.named = to;
        Some(from..to)
    }

    /// The next of the reads that together are a window.
    fn next_read(&mut self, window: &Window) -> Option<Range<u64>> {
        let stride = self.stride?;
        let ahead = (window.bytes / self.len.max(1)).max(1);
        let last = self.start.saturating_add(ahead.saturating_mul(stride));
        // Reads that begin before `named` were named.
        let skipped = self
            .named
            .max(self.end())
            .saturating_sub(self.start)
            .div_ceil(stride);
        let from = self
            .start
            .saturating_add(skipped.max(1).saturating_mul(stride));
        let to = from.saturating_add(self.len).min(window.end);
        if from > last || from >= to {
            return None;
        }
        self.named = from + 1;
        Some(from..to)
    }
}
