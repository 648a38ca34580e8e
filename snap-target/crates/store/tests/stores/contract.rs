//! What the contract refuses, and stores that break it.

use reactor::{Ring, RingConfig};
use store::{
    Backend, ErrorKind, Limits, OpenOptions, RANGE_BYTES_MIN, SEGMENTS_MIN, SharedStore, Store,
    StoreError, StoreSpec, TRANSFER_BYTES_MIN,
};

fn memory() -> SharedStore {
    SharedStore::open(
        &StoreSpec::Mem { bytes: 4 << 20 },
        OpenOptions::read_write(),
    )
    .unwrap()
}

/// A store that declares other limits than it has.
#[derive(Debug)]
struct Declares {
    inner: SharedStore,
    limits: Limits,
}

impl Backend for Declares {
    fn name(&self) -> &str {
        "declares"
    }

    fn describe(&self) -> String {
        "declares other limits than it has".to_owned()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        self.inner.open_handle(ring)
    }
}

#[test]
fn a_store_that_takes_less_than_every_store_must_is_refused_at_open() {
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let open = |change: fn(&mut Limits)| {
        let inner = memory();
        let mut limits = inner.limits();
        change(&mut limits);
        SharedStore::new(Declares { inner, limits })
            .open_handle(&ring)
            .map(drop)
    };
    for (change, part) in [
        (
            (|limits| limits.transfer_bytes_max = TRANSFER_BYTES_MIN - 1) as fn(&mut Limits),
            "less than 1 MiB: it must split",
        ),
        (
            |limits| limits.segments_max = SEGMENTS_MIN - 1,
            "less than 257 segments: it must split",
        ),
        (
            |limits| limits.range_bytes_max = RANGE_BYTES_MIN - 1,
            "zeroes less than 1 MiB",
        ),
        (|limits| limits.queue_depth_max = 0, "no operation"),
        (|limits| limits.alignment_bytes = 513, "power of two"),
        (|limits| limits.alignment_bytes = 1 << 17, "power of two"),
        (|limits| limits.bytes = 0, "no bytes"),
    ] {
        let error = open(change).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Open);
        assert!(
            error.to_string().starts_with("declares cannot be a store")
                && error.to_string().contains(part),
            "{error}"
        );
    }
    let least = |limits: &mut Limits| {
        limits.transfer_bytes_max = TRANSFER_BYTES_MIN;
        limits.segments_max = SEGMENTS_MIN;
        limits.range_bytes_max = RANGE_BYTES_MIN;
        limits.queue_depth_max = 1;
    };
    assert_eq!(open(least), Ok(()));
}
