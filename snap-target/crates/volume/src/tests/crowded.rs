//! Volumes that ask a reader for more work than a block of presented bytes is worth.

use transforms::{Chain, ElementType, ViewChain};

use super::driver::Driver;
use super::sample::{builder, store};
use crate::ErrorKind;
use crate::assemble::{Run, StreamSpec, ViewSpec};
use crate::blocking::open;
use crate::verify::verify;

/// A volume of a few bytes must not cost a reader hours: what crowds into one block is refused by the read that meets it, and by `verify`.
#[test]
fn what_crowds_into_one_block_is_refused() {
    let many = (0..1025u32).map(|n| Run::Inline(n.to_le_bytes()[..3].to_vec()));
    let mut data = Vec::new();
    let mut inline = builder(512);
    inline.add_view(named("inline"), many).unwrap();
    let mut frames = builder(512);
    let chain = Chain::parse("u16+lz4", ElementType::U32).unwrap();
    for n in 0..65 * 8u32 {
        data.extend_from_slice(&n.to_le_bytes());
    }
    let stream = store(&mut frames, StreamSpec::own(chain, 8), 8, &data);
    let run = Run::Linear {
        stream,
        first_element: 0,
        elements: 65 * 8,
        view: ViewChain::identity(),
    };
    frames.add_view(named("frames"), [run]).unwrap();
    for (builder, field) in [
        (inline, "extents that touch a 4 KiB block"),
        (frames, "frames that touch a 4 KiB block"),
    ] {
        let store = builder.finish().unwrap().into_bytes();
        let volume = open(&store, store.len() as u64).unwrap();
        let end = volume.block_count() * 512;
        for cache_bytes in [0, 1 << 20] {
            let mut driver = Driver::new(cache_bytes);
            let error = driver.read(&volume, &store, 0..end).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(field), "{error}");
            // A part that is not crowded can be read.
            assert!(driver.read(&volume, &store, 0..512).is_ok());
        }
        let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
        assert!(report.damage[0].to_string().contains(field));
    }
}

fn named(name: &str) -> ViewSpec {
    ViewSpec {
        name: name.into(),
        ..ViewSpec::default()
    }
}
