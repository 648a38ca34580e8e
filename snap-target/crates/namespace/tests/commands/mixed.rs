//! Mixed namespaces: what is of the whole, and what of a part.

use namespace::limits::MIXED_PARTS_MAX;
use namespace::{EngineConfig, Identity, Io, MixError, Namespace, NamespaceError};
use nvme::controller::Protection;
use nvme_spec::Status;
use reactor::Errno;
use store::SharedStore;
use store::decorate::{Fault, Faulty, On, What, When};
use telemetry::{Telemetry, TelemetryConfig};

use super::bench::{self, Bench, LBA_BYTES, buf, disk, memory, pattern};
use super::support::{Packed, source};

const LBA: u32 = LBA_BYTES as u32;

fn mix(parts: Vec<Namespace>) -> Namespace {
    Namespace::mixed(1, "mix".into(), parts).unwrap()
}

/// Memory that fails so, and counts how often.
fn failing(blocks: u64, on: On, what: What) -> Faulty {
    let fault = Fault {
        on,
        range: 0..blocks * LBA_BYTES as u64,
        when: When::Always,
        what,
    };
    Faulty::over(vec![fault], memory(blocks)).unwrap()
}

fn protected(nsid: u32, store: SharedStore) -> Namespace {
    let mut namespace = disk(nsid, store);
    namespace.write_protected = true;
    namespace
}

#[test]
fn sizes_add_up_and_the_identity_is_of_the_parts_and_their_places() {
    let of = |sizes: [(u32, u64); 3]| mix(sizes.map(|(n, blocks)| disk(n, memory(blocks))).into());
    let whole = of([(1, 8), (2, 16), (3, 24)]);
    assert_eq!((whole.blocks, whole.bytes()), (48, 48 * LBA_BYTES as u64));
    assert!(!whole.write_protected);
    let same = of([(1, 8), (2, 16), (3, 24)]);
    assert_eq!(whole.identity, same.identity);
    assert_ne!(whole.key, same.key);
    // Only the last one may grow: what lies behind the others moves with them.
    assert_eq!(whole.identity, of([(1, 8), (2, 16), (3, 32)]).identity);
    assert_ne!(whole.identity, of([(1, 8), (2, 24), (3, 24)]).identity);
    assert_ne!(whole.identity, of([(2, 16), (1, 8), (3, 24)]).identity);
    let uuid = whole.identity.uuid;
    assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 2));
    let one: Vec<Identity> = whole.parts().map(|part| part.identity).collect();
    assert!(!one.contains(&whole.identity));
}

#[test]
fn what_makes_no_mixed_namespace_is_named() {
    let refused = |parts| Namespace::mixed(1, "mix".into(), parts).unwrap_err();
    let many = |count: usize| (0..count).map(|n| disk(n as u32 + 1, memory(1))).collect();
    for parts in [0, 1, MIXED_PARTS_MAX + 1] {
        assert_eq!(refused(many(parts)), MixError::Parts { parts });
    }
    assert_eq!(mix(many(MIXED_PARTS_MAX)).blocks, MIXED_PARTS_MAX as u64);
    let nested = vec![mix(many(2)), disk(9, memory(1))];
    assert_eq!(refused(nested), MixError::Nested { part: "mix".into() });
    let identity = Identity::of_raw("test", b"other");
    let other = Namespace::of_store(1, memory(8), identity, 4096);
    let (part, lba_bytes) = (other.name.clone(), 4096);
    let wanted = LBA;
    assert_eq!(
        refused(vec![disk(1, memory(1)), other]),
        MixError::BlockSize {
            part,
            lba_bytes,
            wanted
        }
    );
}

#[test]
fn without_a_part_that_may_be_written_it_is_protected_as_a_whole() {
    let namespace = mix(vec![protected(1, memory(8)), protected(2, memory(8))]);
    assert!(namespace.write_protected);
    let mut bench = Bench::new(1, vec![namespace]);
    let error = bench.write(1, 8, &pattern(1, 1)).unwrap_err();
    assert_eq!(error.status(true), Status::NAMESPACE_WRITE_PROTECTED.dnr());
    bench.run(0, 1, Io::Flush).unwrap();
}

/// A fault of one part at a time: a flush that left it out would succeed.
#[test]
fn a_flush_reaches_every_part_that_may_be_written() {
    for faulty_part in [0, 2, 3] {
        for io in 0..4 {
            let faulty = failing(8, On::Flush, What::Error(Errno::EIO));
            let part = |n: u32| match n {
                n if n == faulty_part => disk(n + 1, faulty.store()),
                1 => protected(2, memory(8)),
                n => disk(n + 1, memory(8)),
            };
            let mut bench = Bench::new(1, vec![mix((0..4).map(part).collect())]);
            let others = vec![bench.key(1)];
            let io = match io {
                0 => Io::Flush,
                1 => Io::FlushAll { others },
                2 => Io::ReadDurable { lba: 1, blocks: 1 },
                _ => Io::WriteZeroes {
                    lba: 0,
                    blocks: 1,
                    deallocate: false,
                    durable: true,
                },
            };
            let error = bench.run(0, 1, io).unwrap_err();
            let NamespaceError::AtBlock { lba, cause } = error else {
                panic!("{error}");
            };
            assert_eq!(lba, u64::from(faulty_part) * 8);
            assert!(matches!(*cause, NamespaceError::Store { nsid: 1, .. }));
            assert_eq!(faulty.strikes(0), 1, "part {faulty_part}");
        }
    }
}

#[test]
fn a_part_that_nobody_may_write_is_not_flushed() {
    let faulty = failing(8, On::Flush, What::Error(Errno::EIO));
    let parts = vec![protected(1, faulty.store()), disk(2, memory(8))];
    let mut bench = Bench::new(1, vec![mix(parts)]);
    bench.run(0, 1, Io::Flush).unwrap();
    assert_eq!(faulty.strikes(0), 0);
}

/// The part whose read fails begins at block 40; alone, and as a piece of a longer read.
#[test]
fn an_error_of_a_part_is_at_the_block_of_the_whole() {
    let packed = Packed::with_blocks("mixed-errors", "none", LBA);
    // The payload of the volume begins here.
    let corrupt = What::Corrupt {
        offset: 33_000,
        bits: 4,
    };
    let fault = Fault {
        on: On::Read,
        range: 32_768..40_960,
        when: When::Always,
        what: corrupt,
    };
    let faulty = Faulty::over(vec![fault], packed.store()).unwrap();
    let view = || Namespace::of_view(2, packed.volume(), vec![faulty.store()]);
    let mut alone = Bench::new(1, vec![view().numbered(1)]);
    let error = alone.read(1, 0, 40).unwrap_err();
    let in_view = error.first_lba(LBA).unwrap();
    let mixed = mix(vec![disk(1, memory(40)), view()]);
    let damage = mixed.damage.clone();
    let mut bench = Bench::new(1, vec![mixed]);
    for (lba, blocks) in [(40, 20), (30, 30)] {
        let error = bench.read(1, lba, blocks).unwrap_err();
        assert_eq!(error.first_lba(LBA), Some(40 + in_view), "{error}");
        assert_eq!(error.status(false), Status::UNRECOVERED_READ_ERROR.dnr());
        assert!(error.is_media());
        assert!(error.to_string().contains("namespace 1: "), "{error}");
    }
    // It is told of the namespace that hosts know.
    assert_eq!(damage.reads(), 2);
    assert_eq!(damage.first().unwrap().lba, Some(40 + in_view));
    // A store knows of no blocks: what was asked of it begins there.
    let faulty = failing(8, On::Read, What::Error(Errno::EIO));
    let parts = vec![disk(1, memory(40)), disk(2, faulty.store())];
    let mut bench = Bench::new(1, vec![mix(parts)]);
    let error = bench.read(1, 38, 5).unwrap_err();
    assert_eq!(error.first_lba(LBA), Some(40), "{error}");
    assert!(error.is_media());
    let verified = bench.run(0, 1, Io::Verify { lba: 0, blocks: 48 });
    assert_eq!(verified.unwrap_err().first_lba(LBA), Some(40));
}

/// Every request that would change a block which nobody may write, wherever that lies in it.
#[test]
fn what_would_change_a_protected_block_is_refused_whole() {
    let parts = vec![
        disk(1, memory(16)),
        protected(2, memory(8)),
        disk(3, memory(16)),
    ];
    let mut bench = Bench::new(1, vec![mix(parts), disk(2, memory(40))]);
    let before = pattern(16, 3);
    bench.write(1, 0, &before).unwrap();
    bench.write(1, 24, &before).unwrap();
    for (lba, blocks, first) in [
        (10, 7, 16),
        (15, 2, 16),
        (18, 2, 18),
        (23, 9, 23),
        (0, 40, 16),
    ] {
        let data = || buf(&pattern(blocks as usize, 9));
        let durable = true;
        let there = bench.read(1, lba, blocks).unwrap();
        let all = [
            Io::Write {
                lba,
                data: data(),
                durable,
            },
            Io::WriteZeroes {
                lba,
                blocks,
                deallocate: true,
                durable,
            },
            Io::WriteUncorrectable { lba, blocks },
            Io::Deallocate {
                ranges: vec![(0, 4), (lba, blocks)],
            },
            Io::Copy {
                lba,
                sources: vec![bench.source(2, 0, blocks)],
                durable,
            },
            Io::CompareAndWrite {
                lba,
                expected: Box::new(buf(&there)),
                data: data(),
                durable,
            },
        ];
        for io in all {
            let text = format!("{io:?}");
            let error = bench.run(0, 1, io).unwrap_err();
            let wanted = Status::WRITE_TO_READ_ONLY_RANGE.dnr();
            assert_eq!(error.status(true), wanted, "{text}");
            assert_eq!(error.first_lba(LBA), Some(first), "{text}");
        }
    }
    let wanted = [&before[..], &vec![0; 8 * LBA_BYTES], &before].concat();
    assert!(bench.read(1, 0, 40).unwrap() == wanted);
    // Reads, Compare and Verify are of all blocks; a copy may be from them.
    bench.run(0, 1, Io::Verify { lba: 0, blocks: 40 }).unwrap();
    let data = buf(&wanted);
    bench.run(0, 1, Io::Compare { lba: 0, data }).unwrap();
    let copy = Io::Copy {
        lba: 0,
        sources: vec![bench.source(1, 0, 40)],
        durable: false,
    };
    bench.run(0, 2, copy).unwrap();
    assert!(bench.read(2, 0, 40).unwrap() == wanted);
}

/// What is counted, is counted at the whole: a read that one part answers, and one of three.
#[test]
fn what_is_read_of_parts_is_counted_with_the_whole() {
    let packed = Packed::with_blocks("mixed-counted", "lz4", LBA);
    let parts = vec![
        disk(1, memory(8)),
        Namespace::of_view(2, packed.volume(), vec![packed.store()]),
        disk(3, memory(8)),
    ];
    let namespace = mix(parts);
    let blocks = namespace.blocks as u32;
    let (uuid, telemetry) = (
        namespace.identity.uuid,
        Telemetry::new(&TelemetryConfig::default()),
    );
    let config = EngineConfig {
        telemetry: telemetry.reactor(0),
        ..bench::config()
    };
    let mut bench = Bench::with(1, vec![namespace], config);
    let mut wanted = vec![0; 8 * LBA_BYTES];
    wanted.extend(source());
    wanted.resize(blocks as usize * LBA_BYTES, 0);
    let mut delivered = 0;
    for (lba, of) in [(10, 4), (6, 4), (blocks - 16, 16), (8, 1)] {
        let (start, len) = (lba as usize * LBA_BYTES, of as usize * LBA_BYTES);
        let read = bench.read(1, lba.into(), of).unwrap();
        assert!(read == wanted[start..start + len]);
        delivered += len as u64;
    }
    let counted = telemetry.snapshot().namespaces;
    let [row] = &counted[..] else {
        panic!("{counted:?}");
    };
    assert_eq!(row.uuid, volume::identity::uuid_text(&uuid));
    assert_eq!(row.counters.delivered_bytes, delivered);
}

/// A destination that the reader names holds the bytes, wherever they come from.
#[test]
fn a_read_across_parts_goes_where_it_is_wanted() {
    let mut bench = Bench::new(1, vec![mix(vec![disk(1, memory(8)), disk(2, memory(8))])]);
    let data = pattern(16, 5);
    bench.write(1, 0, &data).unwrap();
    let into = Some(buf(&vec![0xEE; 10 * LBA_BYTES]));
    let io = Io::Read {
        lba: 3,
        blocks: 10,
        into,
    };
    let read = bench.run(0, 1, io).unwrap().unwrap();
    assert!(read.to_vec() == data[3 * LBA_BYTES..13 * LBA_BYTES]);
}

/// What a host sets of the whole is the access gate's, which commands pass before; a part's own protection holds whatever becomes of it.
#[test]
fn lifting_a_hosts_write_protection_lifts_no_parts_own() {
    let namespace = mix(vec![protected(1, memory(8)), disk(2, memory(8))]);
    let access = namespace.access.clone();
    let mut bench = Bench::new(1, vec![namespace]);
    for protection in [Protection::WriteProtect, Protection::None] {
        access.set_protection(protection);
        let error = bench.write(1, 7, &pattern(2, 1)).unwrap_err();
        let wanted = Status::WRITE_TO_READ_ONLY_RANGE.dnr();
        assert_eq!(error.status(true), wanted, "{protection:?}");
    }
    bench.write(1, 8, &pattern(8, 1)).unwrap();
}
