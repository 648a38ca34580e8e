//! What a crash at any moment leaves of a workload: everything that was acknowledged and flushed, each sector otherwise old or new, and
//! nothing else changed (docs/writes.md).
//!
//! A [`FileStore`](super::handle::FileStore) works on a file in memory while two histories are kept on one clock: what its caller
//! submitted and was told, and what reached the medium. From the second follows what each sector may hold after a crash at each
//! moment (the order of steps inside an epoch, from one sync to the next, is free, and each step is torn at 512 bytes); the first says what is allowed.
//! Sectors are torn independently, so that the states of the whole disk are the product of those of its sectors: to look at every content of every
//! sector is to look at every state.

mod history;
mod model;
mod record;
mod workload;

use std::collections::HashSet;

use history::{Crash, Effect, End, History, Moment, SECTOR_BYTES, Sector};
use record::{Flaws, Order};
use workload::{ACTS, Act, BLOCKS, Bench, Recorded, Setting};

use crate::error::StoreError;

/// What was looked at.
#[derive(Debug, Default)]
struct Count {
    workloads: u64,
    crash_points: u64,
    /// Contents of single sectors.
    contents: u64,
    /// States of the whole disk that these make up.
    states: u128,
    /// Workloads in which a sync failed.
    failed_syncs: u64,
}

impl Count {
    fn plus(self, other: Self) -> Self {
        Self {
            workloads: self.workloads + other.workloads,
            crash_points: self.crash_points + other.crash_points,
            contents: self.contents + other.contents,
            states: self.states + other.states,
            failed_syncs: self.failed_syncs + other.failed_syncs,
        }
    }
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for (direct, no_allocate) in [
        (Some(512), false),
        (Some(512), true),
        (Some(4096), false),
        (None, false),
        (None, true),
    ] {
        for order in [Order::Kernel, Order::LastFirst] {
            let flaws = Flaws {
                no_allocate,
                sync_fails: None,
            };
            settings.push(Setting {
                direct,
                order,
                flaws,
            });
        }
    }
    settings
}

/// Looks at every state that a crash at any moment may leave.
fn check(setting: Setting, acts: &[Act], waits: u32, run: &Recorded, count: &mut Count) {
    let before = setting.before();
    count.workloads += 1;
    let complain = |what: &str, moment: Moment, crash: Crash| -> ! {
        panic!(
            "{what}: {crash:?} at {moment} of {setting:?}, {acts:?}, waits {waits:b}\ncaller: {:?}\nmedium: {:?}",
            outline(&run.caller),
            outline(&run.medium)
        );
    };
    let sectors: Vec<Sector> = (0..before.len())
        .step_by(SECTOR_BYTES)
        .map(|start| Sector::new(start, [&run.caller, &run.medium]))
        .collect();
    for moment in 0..=run.moments {
        for crash in [Crash::Power, Crash::Process] {
            count.crash_points += 1;
            let mut states = 1_u128;
            for sector in &sectors {
                let possible = run.medium.contents(sector, &before, moment, crash);
                let allowed = run.caller.contents(sector, &before, moment, crash);
                if !possible.is_subset(&allowed) {
                    complain("a sector is neither old nor new", moment, crash);
                }
                if let Some(why) = flushed_byte_lost(&run.caller, sector, &possible, moment, crash)
                {
                    complain(&why, moment, crash);
                }
                count.contents += possible.len() as u64;
                states *= possible.len() as u128;
            }
            count.states += states;
        }
    }
    // Every byte of what is there at the end, where nothing crashed.
    let end = run.moments;
    for start in (0..before.len()).step_by(SECTOR_BYTES) {
        let bytes = start..start + SECTOR_BYTES;
        let at = bytes.clone().collect();
        let sector = Sector { bytes, at };
        let allowed = run.caller.contents(&sector, &before, end, Crash::Process);
        if !allowed.contains(&sector.of(&run.after)) {
            complain("the file itself holds something else", end, Crash::Process);
        }
    }
}

/// The promise once more, without orders and sectors: a byte whose last writer is settled, with nobody else near, is that writer's.
fn flushed_byte_lost(
    caller: &History,
    sector: &Sector,
    possible: &HashSet<Vec<u8>>,
    moment: Moment,
    crash: Crash,
) -> Option<String> {
    for (index, &at) in sector.at.iter().enumerate() {
        let covers = |effect: &Effect| match effect {
            Effect::Bytes { offset, bytes, .. } => (*offset..offset + bytes.len()).contains(&at),
            Effect::Forget(range) => range.contains(&at),
            Effect::Sync => false,
        };
        let begun = caller.0.iter().filter(|step| step.begun < moment);
        let writers: Vec<_> = begun.filter(|step| covers(&step.effect)).collect();
        let Some((last, earlier)) = writers.split_last() else {
            continue;
        };
        let alone = earlier
            .iter()
            .all(|step| matches!(step.end, End::Done(end) | End::Failed(end) if end < last.begun));
        let Effect::Bytes { offset, bytes, .. } = &last.effect else {
            continue;
        };
        if !alone || !caller.is_settled(last, moment, crash) {
            continue;
        }
        let byte = bytes[at - offset];
        if possible.iter().any(|content| content[index] != byte) {
            return Some(format!("byte {at} of a flushed write is lost"));
        }
    }
    None
}

/// A history without its bytes.
fn outline(history: &History) -> Vec<String> {
    let step = |step: &history::Step| match &step.effect {
        Effect::Bytes {
            offset,
            bytes,
            durable,
        } => {
            let end = offset + bytes.len();
            let kind = if *durable { "durable " } else { "" };
            format!("{kind}{offset}..{end} from {} {:?}", step.begun, step.end)
        }
        other => format!("{other:?} from {} {:?}", step.begun, step.end),
    };
    history.0.iter().map(step).collect()
}

/// Every workload of `len` of these operations.
fn workloads(of: &[Act], len: u32) -> impl Iterator<Item = Vec<Act>> {
    let kinds = of.len();
    (0..kinds.pow(len)).map(move |mut number| {
        (0..len)
            .map(|_| {
                let act = of[number % kinds];
                number /= kinds;
                act
            })
            .collect()
    })
}

/// What is behind the end is refused, and all else done.
fn check_results(acts: &[Act], run: &Recorded) {
    let mut units = BLOCKS;
    for (act, result) in acts.iter().zip(&run.results) {
        match result {
            Ok(_) => assert!(act.is_inside(units), "{act:?} of {units}"),
            Err(StoreError::OutOfRange { .. }) => {
                assert!(!act.is_inside(units), "{act:?} of {units}");
            }
            Err(error) => panic!("{act:?}: {error}"),
        }
        units = act.size_after(units);
    }
}

/// Runs `one` over every setting, on two threads; what all of them counted.
fn over_settings(one: impl Fn(&mut Bench, Setting, &mut Count) + Sync) -> Count {
    let settings = settings();
    let counts: Vec<Count> = std::thread::scope(|scope| {
        let halves = settings.chunks(settings.len().div_ceil(2));
        let threads: Vec<_> = halves
            .map(|half| {
                scope.spawn(|| {
                    let (mut bench, mut count) = (Bench::new(), Count::default());
                    half.iter()
                        .for_each(|&setting| one(&mut bench, setting, &mut count));
                    count
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Count>| thread.join().unwrap();
        threads.into_iter().map(join).collect()
    });
    counts.into_iter().fold(Count::default(), Count::plus)
}

#[test]
fn every_crash_of_up_to_three_operations() {
    let count = over_settings(|bench, setting, count| {
        for len in 1..=3 {
            // Bit 0: the first has nothing to wait for. In another order only what is in flight together can end.
            let patterns = match setting.order {
                Order::Kernel => 1 << len,
                Order::LastFirst => 1,
            };
            for acts in workloads(&ACTS, len) {
                for waits in (0..patterns).filter(|waits| waits & 1 == 0) {
                    let run = bench.run(setting, &acts, waits);
                    check_results(&acts, &run);
                    check(setting, &acts, waits, &run, count);
                }
            }
        }
    });
    println!("{count:?}");
    let [one, two, three] = [1, 2, 3].map(|len| (ACTS.len() as u64).pow(len));
    let all_at_once = one + two + three;
    assert_eq!(
        count.workloads,
        5 * (one + 2 * two + 4 * three) + 5 * all_at_once
    );
}

/// A failed fsync is fatal for the opened file (docs/writes.md): nothing that it should have covered is ever called durable.
#[test]
fn every_crash_with_an_fsync_that_fails() {
    // Another size comes with the file opened anew, which forgets what failed.
    let acts = ACTS.iter().copied();
    let of_one_size: Vec<Act> = acts.filter(|act| !matches!(act, Act::Resize(_))).collect();
    let count = over_settings(|bench, setting, count| {
        // One after the other: what is in flight when the sync fails is not yet anybody's promise.
        let waits = 0b110;
        if setting.order == Order::LastFirst {
            return;
        }
        for (acts, nth) in
            workloads(&of_one_size, 3).flat_map(|acts| [(acts.clone(), 1), (acts, 2)])
        {
            let flaws = Flaws {
                sync_fails: Some(nth),
                ..setting.flaws
            };
            let setting = Setting { flaws, ..setting };
            let run = bench.run(setting, &acts, waits);
            check(setting, &acts, waits, &run, count);
            let Some(first) = run.results.iter().position(Result::is_err) else {
                continue;
            };
            count.failed_syncs += 1;
            for (act, result) in acts.iter().zip(&run.results).skip(first + 1) {
                let durable = matches!(
                    act,
                    Act::Flush
                        | Act::Write { durable: true, .. }
                        | Act::Zero { durable: true, .. }
                        | Act::Copy { durable: true, .. }
                );
                let refused = matches!(result, Err(StoreError::FlushFailed { .. }));
                assert_eq!(refused, durable, "{act:?} after a failed sync");
                assert_eq!(result.is_ok(), !durable, "{act:?} after a failed sync");
            }
        }
    });
    println!("{count:?}");
    assert!(count.failed_syncs > 0);
}

/// Longer workloads, by chance: the same numbers every time.
#[test]
fn sampled_crashes_of_longer_workloads() {
    let workloads = std::env::var("XIO_CRASH_WORKLOADS").map_or(1000, |text| text.parse().unwrap());
    let mut bench = Bench::new();
    let mut count = Count::default();
    let settings = settings();
    // splitmix64.
    let mut state = 0_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ mixed >> 31) % below as u64).unwrap()
    };
    for _ in 0..workloads {
        let setting = settings[random(settings.len())];
        let acts: Vec<Act> = (0..4 + random(5))
            .map(|_| ACTS[random(ACTS.len())])
            .collect();
        let waits = u32::try_from(random(1 << acts.len())).unwrap();
        let run = bench.run(setting, &acts, waits);
        check_results(&acts, &run);
        check(setting, &acts, waits, &run, &mut count);
    }
    println!("{count:?}");
}
