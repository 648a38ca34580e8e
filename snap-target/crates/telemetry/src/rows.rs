//! The rows of one kind: found by what they count, each reactor with its own.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a table keeps.
pub(crate) trait Row {
    /// What the row counts.
    type Key: Clone + Debug;

    /// A row that begins so many nanoseconds after the target's start.
    fn new(key: &Self::Key, since_ns: u64) -> Self;

    /// When it counted last, on the same clock; 0 where it does not know.
    fn last_ns(&self) -> u64;
}

/// How many places a table has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// At most so many.
    pub(crate) max: usize,
    /// From so many on, those that nobody holds are given away.
    pub(crate) kept: usize,
}

/// A look for places that nobody holds goes through all of them. It is made again after as many new keys as this part of the table: each costs a look at a
/// few, however many there are.
const LOOK_SHARE: usize = 16;

/// The places of the rows of one kind. Whether there is a place for what is counted is decided once, for all reactors: counts are never split between a row
/// and the one of all others.
#[derive(Debug)]
pub(crate) struct Table<R: Row> {
    room: Room,
    /// Names are the hosts' choice: their hashes are nobody's.
    hasher: RandomState,
    places: Mutex<Places<R>>,
}

#[derive(Debug)]
struct Places<R: Row> {
    taken: Vec<Arc<Place<R>>>,
    /// Places by the hash of their key.
    by_hash: HashMap<u64, Vec<usize>>,
    /// Those that nobody held at the last look, with their time; the one that nobody had held for longest last.
    idle: Vec<(u64, usize)>,
    /// New keys since the last look.
    since_look: usize,
    /// Counts what found no place.
    others: Arc<Place<R>>,
    /// What is counted there, until nobody writes there any more: at most as many as there are places.
    turned_away: HashMap<u64, Vec<R::Key>>,
    turned_away_count: usize,
}

/// The place of one thing that is counted.
#[derive(Debug)]
pub(crate) struct Place<R: Row> {
    /// What is counted.
    pub(crate) key: R::Key,
    hash: u64,
    of_reactors: Mutex<OfReactors<R>>,
}

#[derive(Debug)]
struct OfReactors<R> {
    rows: Vec<(u16, Arc<R>)>,
    /// When one of them was handed out last, in nanoseconds after the target's start.
    lent_ns: u64,
}

/// Everything that is done under these locks is done or not done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Row> Place<R> {
    fn new(key: R::Key, hash: u64) -> Arc<Self> {
        Arc::new(Self {
            key,
            hash,
            of_reactors: Mutex::new(OfReactors {
                rows: Vec::new(),
                lent_ns: 0,
            }),
        })
    }

    /// The row of a reactor; made where there is none.
    fn lend(&self, reactor: u16, now_ns: u64) -> Arc<R> {
        let mut of_reactors = lock(&self.of_reactors);
        of_reactors.lent_ns = now_ns;
        let rows = &mut of_reactors.rows;
        if let Some((_, row)) = rows.iter().find(|(number, _)| *number == reactor) {
            return row.clone();
        }
        let row = Arc::new(R::new(&self.key, now_ns));
        rows.push((reactor, row.clone()));
        row
    }

    /// Shows the rows with their reactors, and how many hold one of them to write.
    pub(crate) fn look(&self, mut at: impl FnMut(u16, &R)) -> usize {
        let of_reactors = lock(&self.of_reactors);
        let mut holders = 0;
        for (reactor, row) in &of_reactors.rows {
            at(*reactor, row);
            holders += Arc::strong_count(row) - 1;
        }
        holders
    }

    /// Since when nobody writes there, as far as is known; none where somebody does.
    fn idle_since_ns(&self) -> Option<u64> {
        let mut last_ns = 0;
        let holders = self.look(|_, row| last_ns = last_ns.max(row.last_ns()));
        (holders == 0).then(|| lock(&self.of_reactors).lent_ns.max(last_ns))
    }
}

impl<R: Row> Places<R> {
    /// Where a thing is counted.
    fn of(
        &mut self,
        hash: u64,
        is: impl Fn(&R::Key) -> bool,
        key: impl FnOnce() -> R::Key,
        room: Room,
    ) -> Arc<Place<R>> {
        let known = self.by_hash.get(&hash).into_iter().flatten();
        let mut known = known.filter_map(|at| self.taken.get(*at));
        if let Some(place) = known.find(|place| is(&place.key)) {
            return place.clone();
        }
        if self.others.idle_since_ns().is_some() {
            self.turned_away.clear();
            self.turned_away_count = 0;
        } else if self.turned_away.get(&hash).into_iter().flatten().any(is) {
            return self.others.clone();
        }
        self.since_look += 1;
        let place = Place::new(key(), hash);
        if self.taken.len() >= room.kept
            && let Some(at) = self.given_away()
        {
            self.replace(at, &place);
            return place;
        }
        if self.taken.len() < room.max {
            self.by_hash.entry(hash).or_default().push(self.taken.len());
            self.taken.push(place.clone());
            return place;
        }
        if self.turned_away_count < room.max {
            let same = self.turned_away.entry(hash).or_default();
            same.push(place.key.clone());
            self.turned_away_count += 1;
        }
        self.others.clone()
    }

    /// The place that nobody has held for longest.
    fn given_away(&mut self) -> Option<usize> {
        loop {
            while let Some((since_ns, at)) = self.idle.pop() {
                let now = self.taken.get(at).and_then(|it| it.idle_since_ns());
                if now == Some(since_ns) {
                    return Some(at);
                }
            }
            if self.since_look < self.taken.len() / LOOK_SHARE {
                return None;
            }
            self.look_for_idle();
            if self.idle.is_empty() {
                return None;
            }
        }
    }

    fn look_for_idle(&mut self) {
        let all = self.taken.iter().enumerate();
        let idle = all.filter_map(|(at, place)| Some((place.idle_since_ns()?, at)));
        self.idle = idle.collect();
        self.idle.sort_unstable_by(|a, b| b.cmp(a));
        self.since_look = 0;
    }

    fn replace(&mut self, at: usize, place: &Arc<Place<R>>) {
        let Some(taken) = self.taken.get_mut(at) else {
            return;
        };
        let before = std::mem::replace(taken, place.clone());
        if let Some(same) = self.by_hash.get_mut(&before.hash) {
            same.retain(|other| *other != at);
            if same.is_empty() {
                self.by_hash.remove(&before.hash);
            }
        }
        self.by_hash.entry(place.hash).or_default().push(at);
    }
}

impl<R: Row> Table<R> {
    /// With room for so many; more are counted together under `others`.
    pub(crate) fn new(room: Room, others: R::Key) -> Self {
        let places = Places {
            taken: Vec::new(),
            by_hash: HashMap::new(),
            idle: Vec::new(),
            since_look: 0,
            others: Place::new(others, 0),
            turned_away: HashMap::new(),
            turned_away_count: 0,
        };
        Self {
            room,
            hasher: RandomState::new(),
            places: Mutex::new(places),
        }
    }

    /// A reactor's row of what has this name, and `is` knows; `key` makes its key where there is none. Whoever holds a row keeps its place; what nobody has
    /// held for longest is given away where there is no more room.
    pub(crate) fn row(
        &self,
        reactor: u16,
        name: &impl Hash,
        is: impl Fn(&R::Key) -> bool,
        key: impl FnOnce() -> R::Key,
        now_ns: u64,
    ) -> Arc<R> {
        let hash = self.hasher.hash_one(name);
        let mut places = lock(&self.places);
        // Lent under the table's lock: a place that was just found is not given away.
        places.of(hash, is, key, self.room).lend(reactor, now_ns)
    }

    /// All places, that of all others last.
    pub(crate) fn places(&self) -> Vec<Arc<Place<R>>> {
        let places = lock(&self.places);
        let all = places.taken.iter().chain([&places.others]);
        all.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Room, Row, Table};
    use crate::cell::Counter;

    const OTHERS: u32 = 0;

    struct Counted {
        key: u32,
        last_ns: Counter,
    }

    impl Row for Counted {
        type Key = u32;

        fn new(key: &u32, _: u64) -> Self {
            Self {
                key: *key,
                last_ns: Counter::default(),
            }
        }

        fn last_ns(&self) -> u64 {
            self.last_ns.get()
        }
    }

    /// Of two places.
    fn table() -> Table<Counted> {
        table_of(2, 2)
    }

    fn table_of(max: usize, kept: usize) -> Table<Counted> {
        Table::new(Room { max, kept }, OTHERS)
    }

    fn row(table: &Table<Counted>, reactor: u16, wanted: u32, now_ns: u64) -> Arc<Counted> {
        table.row(reactor, &wanted, |key| *key == wanted, || wanted, now_ns)
    }

    /// Keys with a row, and how many hold it, by places.
    fn kept(table: &Table<Counted>) -> Vec<(u32, usize)> {
        let places = table.places().into_iter();
        let rows = places.map(|place| {
            let mut rows = 0;
            let holders = place.look(|_, _| rows += 1);
            (place.key, rows, holders)
        });
        let there = rows.filter(|(_, rows, _)| *rows > 0);
        there.map(|(key, _, holders)| (key, holders)).collect()
    }

    #[test]
    fn a_row_is_a_reactors_own_and_found_again() {
        let table = table();
        let first = row(&table, 0, 7, 1);
        assert!(Arc::ptr_eq(&first, &row(&table, 0, 7, 2)));
        let second = row(&table, 1, 7, 3);
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(kept(&table), [(7, 2)]);
        drop(second);
        assert_eq!(kept(&table), [(7, 1)]);
    }

    #[test]
    fn the_place_that_nobody_has_held_for_longest_is_given_away() {
        let table = table();
        // 7 came first, and did something last.
        row(&table, 0, 7, 1).last_ns.set(30);
        row(&table, 0, 8, 2).last_ns.set(20);
        assert_eq!(row(&table, 0, 9, 40).key, 9);
        assert_eq!(kept(&table), [(7, 0), (9, 0)]);
        // Held ones stay, however old.
        let old = row(&table, 0, 7, 41);
        assert_eq!(row(&table, 1, 8, 50).key, 8);
        assert_eq!(kept(&table), [(7, 1), (8, 0)]);
        assert_eq!(old.last_ns.get(), 30);
    }

    #[test]
    fn what_finds_no_place_is_counted_with_the_others_by_all_reactors() {
        let table = table();
        let held = [row(&table, 0, 7, 1), row(&table, 1, 8, 1)];
        let other = row(&table, 0, 9, 2);
        assert_eq!(other.key, OTHERS);
        assert!(Arc::ptr_eq(&other, &row(&table, 0, 10, 2)));
        drop(held);
        // There are places now; what 9 did is not split, and 11 is new.
        assert_eq!(row(&table, 1, 9, 3).key, OTHERS);
        assert_eq!(row(&table, 1, 11, 3).key, 11);
        drop(other);
        assert_eq!(row(&table, 1, 9, 4).key, 9);
    }
    /// Names without end of hosts that are gone take no more places than are kept; those of hosts that are there may take all.
    #[test]
    fn a_table_grows_for_those_that_are_there() {
        let table = table_of(1000, 100);
        for name in 1..=500 {
            row(&table, 0, name, u64::from(name));
        }
        let gone: Vec<_> = kept(&table).into_iter().map(|(key, _)| key).collect();
        assert_eq!(gone.len(), 100);
        assert!(gone.contains(&500), "the last ones");
        let held: Vec<_> = (1001..=2000)
            .map(|name| row(&table, 0, name, 1000 + u64::from(name)))
            .collect();
        assert!(held.iter().all(|row| row.key != OTHERS));
        assert_eq!(kept(&table).len(), 1000);
        assert!(kept(&table).iter().all(|(_, holders)| *holders == 1));
        assert_eq!(row(&table, 0, 3000, 5000).key, OTHERS);
        // Each is found by its own name.
        for held in &held {
            assert!(Arc::ptr_eq(held, &row(&table, 0, held.key, 6000)));
        }
    }

    /// However many have no place, one that is free is found again, within as many new names as the table's share.
    #[test]
    fn a_place_that_became_free_is_found() {
        let table = table_of(160, 16);
        let mut held: Vec<_> = (1..=160).map(|name| row(&table, 0, name, 1)).collect();
        let other = row(&table, 0, 999, 2);
        assert_eq!(other.key, OTHERS);
        held.pop();
        let placed = (1000..1020).find(|name| row(&table, 0, *name, 3).key != OTHERS);
        assert!(placed.is_some_and(|name| name <= 1010), "{placed:?}");
    }
}
