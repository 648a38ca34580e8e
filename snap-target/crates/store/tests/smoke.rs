//! Each kind of store, opened by name and read back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use store::{BlockingStore, Op, OpenOptions, SharedStore, StoreSpec};

fn round_trip(spec: &str, options: OpenOptions) {
    let shared = SharedStore::open(&StoreSpec::parse(spec).unwrap(), options).unwrap();
    println!("{}: {}", shared.name(), shared.describe());
    let mut store = BlockingStore::new(&shared).unwrap();
    let data: Vec<u8> = (0..300_000u32)
        .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1])
        .collect();
    store.write(12_345, &data).unwrap();
    store.run(Op::Flush).unwrap();
    let mut back = vec![0; data.len() + 2];
    store.read(12_344, &mut back).unwrap();
    assert_eq!(back[0], 0);
    assert_eq!(&back[1..=data.len()], &data[..]);
    assert_eq!(back[data.len() + 1], 0);
    store
        .run(Op::Zero {
            offset: 20_000,
            len: 1000,
        })
        .unwrap();
    store.read(19_999, &mut back[..1002]).unwrap();
    assert_eq!(back[0], data[19_999 - 12_345]);
    assert_eq!(&back[1..1001], &[0; 1000]);
    assert_eq!(back[1001], data[21_000 - 12_345]);
}

#[test]
fn mem() {
    round_trip("mem:1MiB", OpenOptions::read_write());
}

#[test]
fn file() {
    let path = std::env::temp_dir().join(format!("store-smoke-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    round_trip(
        &format!("file:{}", path.display()),
        OpenOptions::read_write(),
    );
    file.set_len(0).unwrap();
    file.set_len(1 << 20).unwrap();
    round_trip(
        &format!("file:{}", path.display()),
        OpenOptions::read_write().page_cache(),
    );
    std::fs::remove_file(path).unwrap();
}
