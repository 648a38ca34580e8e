//! The bodies of the fuzz targets for NVMe/RDMA: any bytes are a script, and whatever it says the machines stay sound. Capsules are built from the
//! specification's offsets.

mod from_hosts;
mod from_targets;

use std::time::Duration;

use nvme::queue::QueueId;
use nvme::rdma::host;
use nvme::rdma::target::{Request, TargetLimits};

pub use from_hosts::rdma_target;
pub use from_targets::rdma_host;

/// More than a connection of either end takes with all its tables.
const MEMORY_MAX: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The private data of connect requests, acceptances and refusals, of any length.
pub fn rdma_private_data(data: &[u8]) {
    let limits = TargetLimits::default();
    let parsed = Request::parse(data, 4, 2, &limits);
    let half = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
    let expected = (data.len() >= 32
        && half(0) == 0
        && half(6) > 0
        && half(6) < limits.queue_entries_max
        && half(4) > 0
        && half(2) < u16::MAX)
        .then(|| (half(2), half(6) + 1, half(4), 2));
    match parsed {
        Ok(request) => {
            let found = (
                request.queue.0,
                request.entries,
                request.host_receives,
                request.reads_max,
            );
            assert_eq!(Some(found), expected);
            assert_eq!(request.accept_data()[2..4], request.entries.to_le_bytes());
        }
        Err(refusal) => {
            assert_eq!(expected, None, "{refusal}");
            assert_ne!(refusal.reject_data()[2..4], [0, 0]);
        }
    }
    let fresh = || {
        host::Connection::new(host::HostOptions {
            qid: QueueId(0),
            cntlid: 0,
            depth: 4,
            in_capsule_bytes_max: 0,
            command_timeout: TIMEOUT,
        })
    };
    let mut accepted = fresh();
    let is_good = data.len() >= 32 && half(0) == 0 && half(2) > 0;
    assert_eq!(accepted.accepted(data).is_ok(), is_good);
    assert_eq!(accepted.room() > 0, is_good);
    let mut rejected = fresh();
    assert!(!rejected.rejected(data).to_string().is_empty());
    assert_eq!(rejected.room(), 0);
    assert!(matches!(rejected.next_event(), Some(host::Event::Fatal(_))));
}

/// The same as properties, and over fixed seeds.
#[cfg(test)]
mod properties {
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Bytes that follow from a seed: xorshift.
    fn script(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn two_thousand_seeds_leave_both_ends_sound() {
        for seed in 0..2000 {
            let script = script(seed, 50 + seed as usize % 1500);
            super::rdma_target(&script);
            super::rdma_host(&script);
        }
    }

    proptest! {
        // 256 scripts each; PROPTEST_CASES says otherwise.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_capsules_in_any_order_leave_the_target_sound(script in vec(any::<u8>(), 0..3000)) {
            super::rdma_target(&script);
        }

        #[test]
        fn any_responses_in_any_order_leave_the_host_sound(script in vec(any::<u8>(), 0..3000)) {
            super::rdma_host(&script);
        }

        #[test]
        fn any_private_data_are_taken_or_refused(format in 0..2_u16, data in vec(any::<u8>(), 0..60)) {
            super::rdma_private_data(&data);
            let mut near = format.to_le_bytes().to_vec();
            near.extend(data.iter().map(|byte| byte % 3));
            super::rdma_private_data(&near);
        }
    }
}
