//! Reading namespaces back: every byte compared, every read timed, the bytes on the wire counted.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use initiator::{Initiator, Options};

use super::interrupt::Interrupt;
use super::target::{NQN, Target};
use crate::failure::Failure;

/// At least so many rounds are read, and at most.
const ROUNDS_MIN: usize = 5;
const ROUNDS_MAX: usize = 101;

/// What reading one namespace gave.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Bytes presented, up to the end of the last block.
    pub delivered_bytes: u64,
    /// Bytes that came over the connection for them.
    pub wire_bytes: u64,
    /// How long each reading took.
    pub times: Vec<Duration>,
    /// Readings in which some byte was another than the source's; the first such byte of each.
    pub differing: Vec<u64>,
}

impl Measured {
    /// The median of the times.
    pub fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

/// Reads every namespace in turn, again and again: by the time one comes round, its frames have left the target's cache.
/// `sources`: what NSID 1, 2, ... must present; others may follow. Rounds are read until they have taken `measure_for`.
pub fn read_all(
    target: &Target,
    sources: &[&[u8]],
    measure_for: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<Measured>, Failure> {
    let mut initiator = Initiator::connect(&target.address, NQN, &Options::default())?;
    if initiator.namespaces().len() != target.namespaces {
        let found = initiator.namespaces().len();
        let why = anyhow!(
            "the target serves {found} namespaces, not {}",
            target.namespaces
        );
        return Err(Failure::data(why));
    }
    let mut all = vec![Measured::default(); sources.len()];
    let started = Instant::now();
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS_MIN && started.elapsed() > measure_for {
            break;
        }
        for ((nsid, source), measured) in (1..).zip(sources).zip(&mut all) {
            interrupt.check()?;
            read_one(&mut initiator, nsid, source, measured)?;
        }
    }
    initiator.shutdown()?;
    Ok(all)
}

fn read_one(
    initiator: &mut Initiator,
    nsid: u32,
    source: &[u8],
    measured: &mut Measured,
) -> Result<(), Failure> {
    let delivered_bytes = initiator.namespace(nsid)?.bytes();
    let mut bytes = vec![0xA5; usize::try_from(delivered_bytes).unwrap_or(usize::MAX)];
    let before = initiator.io_wire_bytes();
    let started = Instant::now();
    initiator.read(nsid, 0, &mut bytes)?;
    measured.times.push(started.elapsed());
    measured.wire_bytes = initiator.io_wire_bytes().received - before.received;
    measured.delivered_bytes = delivered_bytes;
    measured.differing.extend(first_difference(&bytes, source));
    Ok(())
}

/// The first byte in which `presented` is not `source` and zeros up to the end of its last block.
pub fn first_difference(presented: &[u8], source: &[u8]) -> Option<u64> {
    let expected = source.iter().chain(std::iter::repeat(&0));
    if let Some((front, back)) = presented.split_at_checked(source.len())
        && front == source
        && back.iter().all(|byte| *byte == 0)
    {
        return None;
    }
    let pairs = presented.iter().zip(expected);
    let different = (0..)
        .zip(pairs)
        .find(|(_, (presented, expected))| presented != expected);
    // Shorter than the source, and the same as far as it goes.
    Some(different.map_or(presented.len() as u64, |(at, _)| at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_difference_is_found() {
        assert_eq!(first_difference(&[1, 2, 3, 0, 0], &[1, 2, 3]), None);
        assert_eq!(first_difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(first_difference(&[1, 9, 3, 0], &[1, 2, 3]), Some(1));
        assert_eq!(first_difference(&[1, 2, 3, 0, 7], &[1, 2, 3]), Some(4));
        assert_eq!(first_difference(&[1, 2], &[1, 2, 3]), Some(2));
    }

    #[test]
    fn the_median_is_the_middle_time() {
        let times = [5, 1, 9].map(Duration::from_millis).to_vec();
        let measured = Measured {
            times,
            ..Measured::default()
        };
        assert_eq!(measured.median(), Duration::from_millis(5));
    }
}
