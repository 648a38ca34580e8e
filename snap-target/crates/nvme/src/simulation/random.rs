//! Random numbers that a seed repeats on any machine.

use std::ops::Range;
use std::time::Duration;

/// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number of a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// A time below `most`.
    pub fn below(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap().max(1);
        Duration::from_nanos(self.within(0..most))
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }

    /// One of the values.
    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        let index = usize::try_from(self.within(0..values.len() as u64)).unwrap();
        values[index]
    }
}
