//! What a store declares is what it does.

use std::time::{Duration, Instant};

use reactor::Wait;
use reactor::buf::IoBuf;

use super::Subject;
use super::rig::{Random, Rig, guest_pages, pattern};
use crate::contract::{Durability, Op, Terms, Token};
use crate::error::ErrorKind;
use crate::limits::{SEGMENTS_MIN, TRANSFER_BYTES_MIN};

/// What a busy machine may add to a cancel bound.
const CANCEL_SLACK: Duration = Duration::from_secs(5);
/// How long an idle store is watched.
const IDLE_WATCH: Duration = Duration::from_millis(30);

/// Guest memory is taken, in as many pages as are guaranteed, or refused as a misuse: as declared.
pub(super) fn guest_memory_is_taken_as_declared(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let len = TRANSFER_BYTES_MIN as usize;
    if !rig.limits().guest_memory {
        let rejected = rig
            .store
            .submit(
                Op::Read { offset: 0 },
                Some(guest_pages(4096)),
                Token(1),
                Terms::default(),
            )
            .expect_err("guest memory that is not declared: this must be rejected");
        assert_eq!(rejected.why.kind(), ErrorKind::Misuse, "{}", rejected.why);
        return;
    }
    assert_eq!(guest_pages(len).segments().len(), SEGMENTS_MIN as usize);
    for (round, offset) in [0, 513].into_iter().enumerate() {
        let data = pattern(len, 40 + round as u64);
        let mut buf = guest_pages(len);
        buf.copy_from(0, &data);
        let write = Op::Write {
            offset,
            durable: false,
        };
        let buf = rig.run(write, Some(buf)).unwrap();
        assert!(buf.is_guest(), "the very buffer comes back");
        let back = rig.run(Op::Read { offset }, Some(guest_pages(len)));
        let expected = if subject.remembers {
            data
        } else {
            vec![0; len]
        };
        assert!(back.unwrap().to_vec() == expected, "1 MiB of guest pages");
    }
}

/// A store that carries an operation out on the spot has done what submit would have, and no completion comes; one that does not end in submit never does. An expectation
/// changes nothing, wherever it points.
pub(super) fn what_is_carried_out_on_the_spot_has_happened(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let limits = rig.limits();
    let len = usize::try_from(limits.bytes.min(4096)).unwrap();
    let data = pattern(len, 50);
    rig.write(0, &pattern(len, 51));
    for is_change in [false, true] {
        for offset in [0, 1, limits.bytes - 1, limits.bytes, u64::MAX] {
            rig.store.expect(offset, u32::MAX, is_change);
        }
    }
    let write = |offset| Op::Write {
        offset,
        durable: false,
    };
    let buf = IoBuf::from_bytes(&data).unwrap();
    let Some(written) = rig.store.carry_out(write(0), &buf) else {
        return rig.expect_quiet();
    };
    assert!(limits.ends_in_submit);
    assert_eq!(written.unwrap() as usize, len);
    rig.expect_quiet();
    let expected = match subject.remembers {
        true => data,
        false => vec![0; len],
    };
    assert!(rig.read(0, len) == expected, "what was written is there");
    let back = IoBuf::heap(len).unwrap();
    if let Some(got) = rig.store.carry_out(Op::Read { offset: 0 }, &back) {
        assert_eq!(got.unwrap() as usize, len);
        assert!(back.to_vec() == expected, "and was read on the spot");
    }
    let beyond = rig.store.carry_out(write(limits.bytes), &buf);
    let error = beyond.expect("as it carried out the first").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
    assert!(rig.store.carry_out(Op::Flush, &buf).is_none());
    rig.store.close();
    assert!(rig.store.carry_out(write(0), &buf).is_none(), "closed");
}

/// A ring that sleeps is woken for a completion, by an event or from another thread; nobody looks by the clock.
pub(super) fn a_completion_wakes_a_ring_that_sleeps(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    for round in 0..16 {
        let offset = round * 4096;
        let op = match round % 4 {
            0 => Op::Flush,
            1 => Op::Zero {
                offset,
                len: 4096,
                durable: true,
            },
            2 => Op::Write {
                offset,
                durable: true,
            },
            _ => Op::Read { offset },
        };
        let buf = op.takes_buffer().then(|| IoBuf::heap(4096).unwrap());
        // Waits in turns that block: it ends in time only if each completion wakes the ring.
        rig.run(op, buf);
    }
}

/// What is cancelled completes within the bound that is declared; 0 ms: with the next poll, without a turn.
pub(super) fn a_cancel_takes_effect_within_the_declared_bound(subject: &Subject<'_>) {
    let shared = subject
        .stalled
        .as_ref()
        .map_or_else(|| subject.open(), |open| open());
    let mut rig = subject.rig_on(&shared);
    let Some(bound) = rig.limits().cancel_bound_ms else {
        return;
    };
    let count = rig.limits().queue_depth_max.min(8);
    for turned in [false, true] {
        for at in 0..u64::from(count) {
            let offset = at * 4096;
            let op = if at % 2 == 0 {
                Op::Read { offset }
            } else {
                Op::Write {
                    offset,
                    durable: true,
                }
            };
            rig.submit(op, Some(IoBuf::heap(4096).unwrap()), at);
        }
        if turned {
            rig.ring.turn(Wait::Poll).unwrap();
        }
        (0..u64::from(count)).for_each(|at| rig.store.cancel(Token(at)));
        let done = if bound == 0 {
            rig.store.poll(&mut rig.completions);
            std::mem::take(&mut rig.completions)
        } else {
            let bound = Duration::from_millis(bound.into());
            rig.wait_for(count as usize, bound + CANCEL_SLACK)
        };
        assert_eq!(
            done.len(),
            count as usize,
            "a bound of {bound} ms: what was cancelled has ended by then"
        );
    }
    rig.expect_quiet();
}

/// A store that wakes the ring while nothing is in flight has said that it wants to be polled then; none completes what nobody submitted.
pub(super) fn an_idle_store_is_quiet_or_asks_to_be_polled(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    rig.run(Op::Flush, None);
    let asks = rig.limits().polled_when_idle;
    let until = Instant::now() + IDLE_WATCH;
    // Another thread wakes after it has handed the completion over, which may be polled before: then that is for the flush.
    let mut late_wakes = 1;
    while Instant::now() < until {
        let turn = rig.ring.turn(Wait::Block { until: Some(until) }).unwrap();
        let is_late = turn.events == 0 && turn.notified && late_wakes > 0;
        late_wakes -= u32::from(is_late);
        let woken = turn.events > 0 || turn.notified && !is_late;
        assert!(
            asks || !woken,
            "an idle store has events of its own without asking to be polled"
        );
        rig.store.poll(&mut rig.completions);
    }
    rig.expect_quiet();
}

/// Cells of the crash check, at odd places and lengths so that they share blocks.
const CELLS: usize = 64;
const CELL_BYTES: usize = 1009;

/// What a byte of a cell may be after a crash: what was made durable last, or anything that came after it.
struct Cell {
    durable: u8,
    since: Vec<u8>,
}

/// After a loss of power each byte is what was last made durable or something newer; with [`Durability::Always`], the newest.
pub(super) fn a_crash_loses_nothing_that_was_durable(subject: &Subject<'_>) {
    let Some(crash) = &subject.crash else {
        return;
    };
    for seed in 0..4 {
        let shared = subject.open();
        let mut rig = subject.rig_on(&shared);
        let always = match rig.limits().durability {
            Durability::None => return,
            Durability::AfterFlush => false,
            Durability::Always => true,
        };
        rig.write(0, &[0; CELLS * CELL_BYTES]);
        rig.run(Op::Flush, None);
        let mut cells: Vec<Cell> = (0..CELLS)
            .map(|_| Cell {
                durable: 0,
                since: Vec::new(),
            })
            .collect();
        change_at_random(&mut rig, &mut cells, always, seed);
        drop(rig);
        let mut after = subject.rig_on(&crash(shared));
        let found = after.read(0, CELLS * CELL_BYTES);
        for (index, (bytes, cell)) in found.chunks(CELL_BYTES).zip(&cells).enumerate() {
            for &byte in bytes {
                assert!(
                    byte == cell.durable || cell.since.contains(&byte),
                    "cell {index} holds {byte} after a crash, neither {}, which had been made durable, nor one of {:?}",
                    cell.durable,
                    cell.since
                );
            }
        }
    }
}

fn change_at_random(rig: &mut Rig, cells: &mut [Cell], always: bool, seed: u64) {
    let mut random = Random::new(seed);
    for step in 1..=200u64 {
        if random.below(40) == 0 {
            rig.run(Op::Flush, None);
            for cell in &mut *cells {
                cell.durable = cell.since.last().copied().unwrap_or(cell.durable);
                cell.since.clear();
            }
            continue;
        }
        let index = usize::try_from(random.below(CELLS as u64)).unwrap();
        let offset = (index * CELL_BYTES) as u64;
        let durable = random.below(4) == 0;
        let value = if random.below(5) == 0 {
            let len = CELL_BYTES as u64;
            rig.run(
                Op::Zero {
                    offset,
                    len,
                    durable,
                },
                None,
            );
            0
        } else {
            let value = step.to_le_bytes()[0];
            let buf = IoBuf::from_bytes(&[value; CELL_BYTES]).unwrap();
            rig.run(Op::Write { offset, durable }, Some(buf));
            value
        };
        let cell = &mut cells[index];
        if durable || always {
            cell.durable = value;
            cell.since.clear();
        } else {
            cell.since.push(value);
        }
    }
}
