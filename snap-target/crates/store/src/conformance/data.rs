//! What was written is what is read.

use reactor::buf::IoBuf;

use super::rig::{Random, Rig, pattern, scattered_pages, segmented};
use super::{BYTES_MIN, PATIENCE, Subject};
use crate::contract::{Op, Terms, Token};
use crate::limits::{SEGMENTS_MIN, TRANSFER_BYTES_MIN};
use crate::shared::SharedStore;

/// Offsets, lengths, memory and cuts around every alignment: written, read back, and nothing beside them touched.
pub(super) fn every_alignment_and_cut_reads_back(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let align = u64::from(rig.limits().alignment_bytes).max(512);
    let edges = |at: u64| [at.saturating_sub(1), at, at + 1];
    let offsets: Vec<u64> = [0, align, 3 * align]
        .into_iter()
        .flat_map(edges)
        .chain([2 * align + 100])
        .collect();
    let lens = [1, align - 1, align, align + 1, 3 * align, 5 * align + 7]
        .map(|len| usize::try_from(len).unwrap());
    let a = usize::try_from(align).unwrap();
    let cuts: [&[usize]; 4] = [&[usize::MAX], &[a], &[7, a, 100], &[a, 1]];
    let mut model = vec![0; 16 * a];
    rig.write(0, &model);
    for (case, &offset) in (0u64..).zip(&offsets) {
        for (&len, cuts) in lens.iter().zip(cuts.iter().cycle()) {
            for skew in [0, 100] {
                let data = pattern(len, case * 1000 + len as u64 + skew as u64);
                let mut buf = segmented(len, cuts, skew);
                buf.copy_from(0, &data);
                rig.run(
                    Op::Write {
                        offset,
                        durable: false,
                    },
                    Some(buf),
                );
                let at = usize::try_from(offset).unwrap();
                model[at..at + len].copy_from_slice(&data);
                let back = rig
                    .run(Op::Read { offset }, Some(segmented(len, cuts, 100 - skew)))
                    .unwrap()
                    .to_vec();
                let expected = if subject.remembers {
                    data
                } else {
                    vec![0; len]
                };
                assert!(
                    back == expected,
                    "{len} bytes at {offset}, cut at {cuts:?}, read back"
                );
            }
        }
        if subject.remembers {
            assert!(
                rig.read(0, model.len()) == model,
                "writes at {offset} touched nothing beside them"
            );
        }
    }
}

/// What callers never split: the guaranteed transfer, in as many segments as are guaranteed, at any place.
pub(super) fn the_guaranteed_transfer_is_taken_whole(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let len = TRANSFER_BYTES_MIN as usize;
    let pages = || scattered_pages(len);
    assert_eq!(pages().segments().len(), SEGMENTS_MIN as usize);
    for (round, offset) in [0, 4096, 513].into_iter().enumerate() {
        let data = pattern(len, round as u64);
        let mut buf = pages();
        buf.copy_from(0, &data);
        let write = Op::Write {
            offset,
            durable: false,
        };
        rig.run(write, Some(buf));
        let back = rig.run(Op::Read { offset }, Some(pages())).unwrap();
        let expected = if subject.remembers {
            data
        } else {
            vec![0; len]
        };
        assert!(back.to_vec() == expected, "1 MiB in pages at {offset}");
    }
}

/// Zeroing at any alignment: zeros inside, nothing outside.
pub(super) fn zeroed_ranges_read_zeros(subject: &Subject<'_>) {
    if !subject.remembers {
        return;
    }
    let mut rig = subject.rig();
    let align = u64::from(rig.limits().alignment_bytes).max(512);
    let mut model = pattern(600 << 10, 1);
    rig.write(0, &model);
    let big = 300 << 10;
    for (offset, len) in [
        (0, align),
        (align, 2 * align),
        (5 * align + 1, 1),
        (7 * align - 1, 2),
        (9 * align + 100, big),
        (600 << 10, 1),
    ] {
        rig.run(
            Op::Zero {
                offset,
                len,
                durable: len.is_multiple_of(2),
            },
            None,
        );
        let start = usize::try_from(offset).unwrap().min(model.len());
        let end = usize::try_from(offset + len).unwrap().min(model.len());
        model[start..end].fill(0);
        assert!(
            rig.read(0, model.len()) == model,
            "zeroing {len} bytes at {offset}"
        );
    }
}

/// A discarded range reads as it was, or as zeros, block by block, or surely as zeros where that is declared; nothing beside it changes.
pub(super) fn discarded_ranges_read_old_or_zeros(subject: &Subject<'_>) {
    if !subject.remembers {
        return;
    }
    let mut rig = subject.rig();
    let model = pattern(64 << 10, 2);
    rig.write(0, &model);
    for (offset, len) in [(4096u64, 8192u64), (20_001, 9_999), (0, 1)] {
        rig.run(Op::Discard { offset, len }, None);
    }
    let discarded =
        |at: usize| (4096..12_288).contains(&at) || (20_001..30_000).contains(&at) || at == 0;
    let back = rig.read(0, model.len());
    for (at, (&now, &before)) in back.iter().zip(&model).enumerate() {
        let may_stay = !discarded(at) || !rig.limits().discard_zeroes;
        let stays = now == before && may_stay;
        assert!(stays || discarded(at) && now == 0, "byte {at}");
    }
    rig.write(4000, &model[..9000]);
    assert!(
        rig.read(4000, 9000) == model[..9000],
        "a discarded range is written again"
    );
}

/// Handles of one store on different threads see each other's completed writes.
pub(super) fn a_completed_write_is_seen_by_every_handle(subject: &Subject<'_>) {
    if !subject.remembers {
        return;
    }
    let shared = subject.open();
    let mut rig = subject.rig_on(&shared);
    let mut second = subject.rig_on(&shared);
    for round in 0..4 {
        let data = pattern(10_000, round);
        rig.write(777, &data);
        assert!(
            second.read(777, data.len()) == data,
            "another handle on this thread"
        );
        let elsewhere = |shared: &SharedStore| Rig::new(shared, PATIENCE).read(777, data.len());
        let back = std::thread::scope(|scope| scope.spawn(|| elsewhere(&shared)).join());
        assert!(
            back.is_ok_and(|back| back == data),
            "a handle on another thread"
        );
    }
}

/// A lease, where there is one, shows the same bytes as a read, and later writes.
pub(super) fn leases_show_what_reads_read(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    assert!(rig.store.lease(0, 0).is_none(), "nothing is no lease");
    rig.write(1000, &pattern(5000, 3));
    for (offset, len) in [(0, 1), (999, 5002), (1001, 100), (0, 1 << 20)] {
        let read = rig.read(offset, len);
        let Some(lease) = rig.store.lease(offset, u32::try_from(len).unwrap()) else {
            continue;
        };
        assert!(lease.is_lease());
        assert!(lease.to_vec() == read, "{len} bytes at {offset}");
    }
    if let Some(lease) = rig.store.lease(1000, 5000) {
        rig.write(1500, &pattern(100, 4));
        assert!(
            lease.to_vec() == rig.read(1000, 5000),
            "a lease shows later writes"
        );
        let rejected = rig.store.submit(
            Op::Read { offset: 0 },
            Some(lease),
            Token(1),
            Terms::default(),
        );
        assert!(rejected.is_err(), "nobody reads into a lease");
    }
}

/// Random operations, many in flight on disjoint ranges, against a plain vector.
pub(super) fn operations_in_flight_together_agree_with_a_model(subject: &Subject<'_>) {
    const LANE: u64 = 32 << 10;
    let mut rig = subject.rig();
    let lanes = (BYTES_MIN / LANE)
        .min(16)
        .min(u64::from(rig.limits().queue_depth_max));
    let mut model = vec![0u8; usize::try_from(lanes * LANE).unwrap()];
    let mut random = Random::new(11);
    for round in 0..40u64 {
        // One operation a lane, all in flight together. Lanes border on each other at odd bytes.
        let mut reads = Vec::new();
        for lane in 0..lanes {
            let start = (lane * LANE).saturating_sub(lane % 3);
            let room = LANE - 3;
            let offset = start + random.below(room);
            let len = usize::try_from(1 + random.below(room - (offset - start))).unwrap();
            let at = usize::try_from(offset).unwrap();
            let skew = usize::try_from(random.below(3)).unwrap() * 256;
            match random.below(5) {
                0 | 1 => {
                    let data = pattern(len, round * 100 + lane);
                    let mut buf = segmented(len, &[4096, 512, 100], skew);
                    buf.copy_from(0, &data);
                    if subject.remembers {
                        model[at..at + len].copy_from_slice(&data);
                    }
                    rig.submit(
                        Op::Write {
                            offset,
                            durable: len.is_multiple_of(7),
                        },
                        Some(buf),
                        lane,
                    );
                }
                2 => {
                    model[at..at + len].fill(0);
                    rig.submit(
                        Op::Zero {
                            offset,
                            len: len as u64,
                            durable: false,
                        },
                        None,
                        lane,
                    );
                }
                3 => rig.submit(Op::Flush, None, lane),
                _ => {
                    reads.push((lane, at, len));
                    rig.submit(
                        Op::Read { offset },
                        Some(segmented(len, &[8192, 1000], skew)),
                        lane,
                    );
                }
            }
        }
        for done in rig.wait(usize::try_from(lanes).unwrap()) {
            let lane = done.token.0;
            let bytes = done
                .result
                .unwrap_or_else(|error| panic!("round {round}, lane {lane}: {error}"));
            let length = done.buf.as_ref().map_or(0, IoBuf::len);
            assert_eq!(bytes as usize, length, "round {round}, lane {lane}");
            if let Some((_, at, len)) = reads.iter().find(|(of, ..)| *of == lane) {
                let back = done.buf.map(|buf| buf.to_vec());
                assert!(
                    back.as_deref() == Some(&model[*at..at + len]),
                    "round {round}, lane {lane}: {len} bytes at {at}"
                );
            }
        }
    }
    assert!(rig.read(0, model.len()) == model, "all of it in the end");
}
