//! Whatever happens, every byte that was fetched ahead ends as exactly one of hit, late and wasted, or is kept: of the namespace, of each order, and on
//! every engine.

use std::ops::Range;

use proptest::prelude::*;
use store::decorate::{Fault, Faulty, On, What, When};

use super::*;

#[path = "../frames/crew.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod crew;
use crew::Crew;

const BLOCKS: u64 = 2048;

#[derive(Clone, Debug)]
enum Step {
    Read {
        member: usize,
        lba: u64,
        blocks: u32,
    },
    Hint {
        member: usize,
        lba: u64,
        blocks: u32,
    },
    Order {
        quota_bytes: u64,
        ranges: Vec<Range<u64>>,
    },
    Cancel,
    /// Turns without anything new.
    Turns(u32),
}

fn blocks() -> impl Strategy<Value = (u64, u32)> {
    (0..BLOCKS, 1..48_u32).prop_map(|(lba, blocks)| {
        let left = u32::try_from(BLOCKS - lba).unwrap();
        (lba, blocks.min(left))
    })
}

fn step() -> impl Strategy<Value = Step> {
    let member = 0..2_usize;
    let range = blocks().prop_map(|(lba, n)| lba * 4096..(lba + u64::from(n)) * 4096);
    prop_oneof![
        6 => (member.clone(), blocks()).prop_map(|(member, (lba, blocks))| Step::Read { member, lba, blocks }),
        2 => (member, blocks()).prop_map(|(member, (lba, blocks))| Step::Hint { member, lba, blocks }),
        2 => (1..40_u64, proptest::collection::vec(range, 1..24))
            .prop_map(|(frames, ranges)| Step::Order { quota_bytes: frames << 15, ranges }),
        1 => Just(Step::Cancel),
        4 => (1..400_u32).prop_map(Step::Turns),
    ]
}

/// Until nothing moves.
fn settle(crew: &mut Crew, key: NamespaceKey, open: &mut usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        *open -= crew.turn().len();
        let is_drained = crew
            .members
            .iter()
            .all(|member| member.engine.is_drained(key));
        if *open == 0 && is_drained && crew.is_idle() {
            return;
        }
        assert!(Instant::now() < deadline, "it does not come to rest");
    }
}

fn assert_all(crew: &Crew, orders: &[Arc<Order>]) -> Result<(), TestCaseError> {
    let mut unread = 0;
    for member in &crew.members {
        let counted = member.engine.counters();
        prop_assert_eq!(
            counted.prefetched_bytes,
            counted.prefetch_hit_bytes
                + counted.prefetch_late_bytes
                + counted.prefetch_wasted_bytes
                + counted.prefetch_kept_bytes
        );
        prop_assert_eq!(
            counted.prefetch_kept_bytes,
            member.engine.unread_bytes() as u64
        );
        unread += counted.prefetch_kept_bytes;
    }
    let mut of_orders = 0;
    for order in orders {
        let progress = order.last_progress();
        let frames = progress.frames;
        prop_assert_eq!(
            frames.came_bytes,
            frames.unread_bytes + frames.hit_bytes + frames.late_bytes + frames.wasted_bytes
        );
        prop_assert_eq!(progress.begun_bytes, progress.fetched_bytes);
        of_orders += frames.unread_bytes;
    }
    prop_assert!(of_orders <= unread, "{} of {}", of_orders, unread);
    Ok(())
}

fn run(namespace: Namespace, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (key, ahead) = (namespace.key, namespace.ahead.clone());
    // A cache for a dozen frames of each engine, so that some leave unread.
    let config = EngineConfig {
        prefetch_bytes: 2 << 20,
        cache_bytes: 1 << 20,
        ..EngineConfig::default()
    };
    let mut crew = Crew::new(2, namespace, &config);
    let (mut open, mut token) = (0, 0);
    let mut orders: Vec<Arc<Order>> = Vec::new();
    for step in steps {
        match step {
            Step::Read {
                member,
                lba,
                blocks,
            } => {
                token += 1;
                open += 1;
                crew.submit(member, lba, blocks, token);
            }
            Step::Hint {
                member,
                lba,
                blocks,
            } => {
                crew.members[member].engine.hint(key, &[(lba, blocks)]);
            }
            Step::Order {
                quota_bytes,
                ranges,
            } => {
                let order = ahead.begin_order(quota_bytes).unwrap();
                prop_assert_eq!(order.give(&ranges), Ok(ranges.len()));
                orders.push(order);
            }
            Step::Cancel => orders.iter().for_each(|order| order.cancel()),
            Step::Turns(turns) => (0..turns).for_each(|_| open -= crew.turn().len()),
        }
    }
    settle(&mut crew, key, &mut open);
    assert_all(&crew, &orders)?;
    // When it goes, nothing is kept.
    for member in &mut crew.members {
        member.engine.retire(key);
    }
    settle(&mut crew, key, &mut open);
    for member in &mut crew.members {
        member.engine.detach(key);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while crew
        .members
        .iter()
        .any(|member| member.engine.is_attached(key))
    {
        assert!(Instant::now() < deadline, "it does not go");
        crew.turn();
    }
    prop_assert_eq!(crew.sum(|counted| counted.prefetch_kept_bytes), 0);
    for order in &orders {
        prop_assert_eq!(order.last_progress().frames.unread_bytes, 0);
    }
    assert_all(&crew, &orders)
}

/// Slow, and every seventh read fails.
fn failing(store: SharedStore) -> SharedStore {
    let fault = Fault {
        on: On::Read,
        range: 0..store.bytes(),
        when: When::EveryNth(7),
        what: What::Error(reactor::Errno::EIO),
    };
    let store = Faulty::over(vec![fault], store).unwrap().store();
    limited(store, "1GB/s,latency=300us")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn of_stored_bytes(steps in proptest::collection::vec(step(), 1..60)) {
        let (namespace, _) = raw_over(|store| limited(store, "1GB/s,latency=300us"));
        run(namespace, steps)?;
    }

    #[test]
    fn of_stored_bytes_some_of_which_cannot_be_read(steps in proptest::collection::vec(step(), 1..60)) {
        let (namespace, _) = raw_over(failing);
        run(namespace, steps)?;
    }
}
