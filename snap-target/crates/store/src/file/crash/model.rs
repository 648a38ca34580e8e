//! The other way to say what a crash may leave: a disk with a cache, step by step. [`History::contents`] says it by orders; both must say the same.

use std::collections::HashSet;

use super::history::{Crash, Effect, End, History, Moment, SECTOR_BYTES, Sector, Step};

/// One sector of a disk and of the cache before it, at a time. What changes the cache does so at some time while it runs, and the cache is written back
/// at any time.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    time: Moment,
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// By step: has changed the cache; the cache was written back since (of a sync: since it began).
    applied: Vec<bool>,
    written_back: Vec<bool>,
}

struct Machine<'a> {
    steps: &'a [Step],
    sector: &'a Sector,
    end: Moment,
    seen: HashSet<State>,
}

impl Machine<'_> {
    fn runs(&self, step: &Step, time: Moment) -> bool {
        let ended = matches!(step.end, End::Done(at) if at < time);
        step.begun < time && !ended
    }

    /// All that can come next.
    fn explore(&mut self, state: State) {
        if !self.seen.insert(state.clone()) {
            return;
        }
        for (index, step) in self.steps.iter().enumerate() {
            if !self.runs(step, state.time) || state.applied[index] {
                continue;
            }
            let mut next = state.clone();
            next.applied[index] = true;
            match &step.effect {
                Effect::Bytes { offset, bytes, .. } => {
                    for (at, to) in self.sector.at.iter().zip(&mut next.cache) {
                        if let Some(byte) = at.checked_sub(*offset).and_then(|at| bytes.get(at)) {
                            *to = *byte;
                        }
                    }
                }
                Effect::Forget(range) => {
                    // Or nothing of it.
                    self.explore(next.clone());
                    for (at, to) in self.sector.at.iter().zip(&mut next.cache) {
                        *to = if range.contains(at) { 0 } else { *to };
                    }
                }
                Effect::Sync => {}
            }
            self.explore(next);
        }
        let mut written = state.clone();
        written.disk.clone_from(&written.cache);
        written.written_back.clone_from(&written.applied);
        self.explore(written);
        self.pass_time(state);
    }

    /// The next beginning or end, where it may come.
    fn pass_time(&mut self, state: State) {
        if state.time == self.end {
            return;
        }
        let may_end = self.steps.iter().enumerate().all(|(index, step)| {
            let durable = match step.effect {
                Effect::Bytes { durable, .. } => durable,
                Effect::Forget(_) => false,
                Effect::Sync => true,
            };
            step.end != End::Done(state.time)
                || state.applied[index] && (!durable || state.written_back[index])
        });
        if may_end {
            self.explore(State {
                time: state.time + 1,
                ..state
            });
        }
    }
}

/// Every state that the sector may come to.
fn by_machine(history: &History, sector: &Sector, before: &[u8], end: Moment) -> HashSet<State> {
    let content = sector.of(before);
    let none = vec![false; history.0.len()];
    let mut machine = Machine {
        steps: &history.0,
        sector,
        end,
        seen: HashSet::new(),
    };
    machine.explore(State {
        time: 0,
        cache: content.clone(),
        disk: content,
        applied: none.clone(),
        written_back: none,
    });
    machine.seen
}

/// Every history of three steps: seven kinds, each beside those before it or behind them, crashed at each moment.
#[test]
fn orders_and_a_machine_say_the_same() {
    let effect = |kind: usize, step: usize| {
        let value = u8::try_from(step + 1).unwrap();
        let bytes = |offset, len: usize, durable| Effect::Bytes {
            offset,
            bytes: vec![value; len],
            durable,
        };
        match kind {
            0 => bytes(0, SECTOR_BYTES, false),
            1 => bytes(0, 300, false),
            2 => bytes(200, 312, false),
            3 => bytes(0, 300, true),
            4 => bytes(200, 312, true),
            5 => Effect::Forget(0..SECTOR_BYTES),
            _ => Effect::Sync,
        }
    };
    let before = [0xB0; SECTOR_BYTES];
    let mut compared = 0;
    for kinds in 0..7_usize.pow(3) {
        // Beginnings and ends of three steps, in every order in which they begin one after the other.
        for ends in orders() {
            let steps: Vec<Step> = (0..3)
                .map(|step| Step {
                    effect: effect(kinds / 7_usize.pow(step) % 7, step as usize),
                    begun: ends.iter().position(|it| *it == (step, true)).unwrap(),
                    end: End::Done(ends.iter().position(|it| *it == (step, false)).unwrap()),
                })
                .collect();
            let history = History(steps);
            let sector = Sector::new(0, [&history, &history]);
            let states = by_machine(&history, &sector, &before, ends.len());
            for crash_at in 0..=ends.len() {
                for crash in [Crash::Power, Crash::Process] {
                    let found = history.contents(&sector, &before, crash_at, crash);
                    let then = states.iter().filter(|state| state.time == crash_at);
                    let machine: HashSet<Vec<u8>> = then
                        .map(|state| match crash {
                            Crash::Process => state.cache.clone(),
                            Crash::Power => state.disk.clone(),
                        })
                        .collect();
                    assert_eq!(found, machine, "{crash:?} at {crash_at}: {history:?}");
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} crashes");
    assert_eq!(compared, 343 * 15 * 7 * 2);
}

/// Each way in which three steps that begin in their order may begin (true) and end.
fn orders() -> Vec<Vec<(u32, bool)>> {
    let mut all = vec![Vec::new()];
    for _ in 0..6 {
        let longer = |order: &Vec<(u32, bool)>| {
            let begun = order.iter().filter(|(_, begins)| *begins).count();
            let begun = u32::try_from(begun).unwrap();
            let begins = (begun < 3).then_some((begun, true));
            let ends = (0..begun).map(|step| (step, false));
            let next = begins.into_iter().chain(ends);
            let fresh = next.filter(|it| !order.contains(it));
            fresh
                .map(|it| [&order[..], &[it]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}
