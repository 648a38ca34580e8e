//! The rows of one kind: found by what they count, each reactor with its own.

use std::fmt::Debug;
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

/// The places of the rows of one kind, at most `max` and one. Whether there is a place for what is counted is decided once, for all reactors: counts are
/// never split between a row and the one of all others.
#[derive(Debug)]
pub(crate) struct Table<R: Row> {
    max: usize,
    places: Mutex<Places<R>>,
}

#[derive(Debug)]
struct Places<R: Row> {
    taken: Vec<Arc<Place<R>>>,
    /// Counts what found no place.
    others: Arc<Place<R>>,
    /// What is counted there, until nobody writes there any more: at most as many as there are places.
    turned_away: Vec<R::Key>,
}

/// The place of one thing that is counted.
#[derive(Debug)]
pub(crate) struct Place<R: Row> {
    /// What is counted.
    pub(crate) key: R::Key,
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
    fn new(key: R::Key) -> Arc<Self> {
        Arc::new(Self {
            key,
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
        is: impl Fn(&R::Key) -> bool,
        key: impl FnOnce() -> R::Key,
        max: usize,
    ) -> Arc<Place<R>> {
        if let Some(place) = self.taken.iter().find(|place| is(&place.key)) {
            return place.clone();
        }
        if self.others.idle_since_ns().is_some() {
            self.turned_away.clear();
        } else if self.turned_away.iter().any(is) {
            return self.others.clone();
        }
        let place = Place::new(key());
        if self.taken.len() < max {
            self.taken.push(place.clone());
            return place;
        }
        let idle = self.taken.iter_mut();
        let idle = idle.filter_map(|taken| Some((taken.idle_since_ns()?, taken)));
        if let Some((_, longest)) = idle.min_by_key(|(since_ns, _)| *since_ns) {
            *longest = place.clone();
            return place;
        }
        if self.turned_away.len() < max {
            self.turned_away.push(place.key.clone());
        }
        self.others.clone()
    }
}

impl<R: Row> Table<R> {
    /// With places for so many; more are counted together under `others`.
    pub(crate) fn new(max: usize, others: R::Key) -> Self {
        let places = Places {
            taken: Vec::new(),
            others: Place::new(others),
            turned_away: Vec::new(),
        };
        Self {
            max,
            places: Mutex::new(places),
        }
    }

    /// A reactor's row of what `is` knows; `key` makes its key where there is none. Whoever holds a row keeps its place; where all are taken, the one that
    /// nobody has held for longest is given away.
    pub(crate) fn row(
        &self,
        reactor: u16,
        is: impl Fn(&R::Key) -> bool,
        key: impl FnOnce() -> R::Key,
        now_ns: u64,
    ) -> Arc<R> {
        let mut places = lock(&self.places);
        // Lent under the table's lock: a place that was just found is not given away.
        places.of(is, key, self.max).lend(reactor, now_ns)
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

    use super::{Row, Table};
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
        Table::new(2, OTHERS)
    }

    fn row(table: &Table<Counted>, reactor: u16, wanted: u32, now_ns: u64) -> Arc<Counted> {
        table.row(reactor, |key| *key == wanted, || wanted, now_ns)
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
}
