//! Identify, by the byte offsets of the specification.

use super::*;

fn identify(host: &mut Host, cns: u32, nsid: u32, cdw11: u32) -> Result<Vec<u8>, Status> {
    host.fetch(&command(0x06, nsid, cns, cdw11), 4096)
}

#[test]
fn an_io_controller_describes_itself() {
    let mut host = Host::io();
    let id = identify(&mut host, 0x01, 0, 0).unwrap();
    assert_eq!(id.len(), 4096);
    assert_eq!(&id[4..24], b"SN0001              ");
    assert_eq!(&id[24..64], b"snap-target                             ");
    assert_eq!(&id[64..72], b"1.2.3   ");
    assert_eq!(id[76], 0b11, "CMIC");
    assert_eq!(id[77], 8, "MDTS: 1 MiB");
    assert_eq!(u16_at(&id, 78), 1, "CNTLID");
    assert_eq!(u32_at(&id, 80), 0x0002_0000, "VER");
    assert_eq!(u32_at(&id, 92), 1 << 8, "OAES");
    assert_eq!(
        u32_at(&id, 96),
        1 | 1 << 18,
        "CTRATT: 128-bit host identifier, and reservations need one"
    );
    assert_eq!(id[111], 1, "CNTRLTYPE");
    assert_eq!(
        [u16_at(&id, 128), u16_at(&id, 130), u16_at(&id, 132)],
        [1, 10, 50],
        "CRDT1 to 3"
    );
    assert_eq!(u16_at(&id, 256), 0, "OACS");
    assert_eq!((id[258], id[259]), (3, 3), "ACL, AERL");
    assert_eq!(
        (id[260], id[261], id[262]),
        (3, 0b10_0110, 63),
        "FRMW, LPA, ELPE"
    );
    assert_eq!(u16_at(&id, 320), 10, "KAS");
    assert_eq!(
        (u16_at(&id, 266), u16_at(&id, 268), u16_at(&id, 386)),
        (343, 353, 1000),
        "WCTEMP, CCTEMP, CQT"
    );
    assert_eq!(
        (id[512], id[513], u16_at(&id, 514)),
        (0x66, 0x44, 64),
        "SQES, CQES, MAXCMD"
    );
    assert_eq!(u32_at(&id, 516), 1024, "NN");
    assert_eq!(
        u16_at(&id, 520),
        0b1_1111_1111,
        "ONCS: Compare, Write Uncorrectable, DSM, Write Zeroes, Save and Select, Reservations, Timestamp, Verify, Copy"
    );
    assert_eq!(u16_at(&id, 522), 1, "FUSES: Compare and Write");
    assert_eq!(
        (u16_at(&id, 526), u16_at(&id, 528), u16_at(&id, 532)),
        (0, 0, 7),
        "AWUN, AWUPF, ACWU"
    );
    assert_eq!(u16_at(&id, 534), 0b101, "OCFS: formats 0h and 2h");
    assert_eq!(
        id[525], 0b111,
        "VWC: present, Flush of all namespaces works"
    );
    assert_eq!(id[531], 0b111, "NWPC");
    assert_eq!(u32_at(&id, 536), 1 | 1 << 20 | 1 << 21, "SGLS");
    assert_eq!(&id[768..768 + SUBSYSTEM.len()], SUBSYSTEM.as_bytes());
    assert_eq!(id[768 + SUBSYSTEM.len()], 0);
    assert_eq!(
        (u32_at(&id, 1792), u32_at(&id, 1796), u16_at(&id, 1800)),
        ((64 + 8192) / 16, 1, 0),
        "IOCCSZ, IORCSZ, ICDOFF"
    );
    assert_eq!((id[1802], id[1803]), (0, 1), "FCATT, MSDBD");
}

#[test]
fn a_discovery_controller_describes_itself_and_nothing_else() {
    let mut host = Host::enabled(DISCOVERY);
    let id = identify(&mut host, 0x01, 0, 0).unwrap();
    assert_eq!(
        (id[111], u32_at(&id, 516), u32_at(&id, 92)),
        (2, 0, 1 << 31)
    );
    assert_eq!(id[1806], 1, "DCTYPE: a direct discovery controller");
    assert_eq!(&id[768..768 + DISCOVERY.len()], DISCOVERY.as_bytes());
    for cns in [0x00, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x1C] {
        assert_eq!(identify(&mut host, cns, 1, 0), Err(INVALID_FIELD));
    }
}

/// A host looks once, and the next namespace may be a disk: a controller of views alone, or of nothing, has the same cache.
#[test]
fn the_volatile_cache_is_there_whatever_the_namespaces() {
    let mut host = Host::io();
    let view = namespaces().get(Nsid(1)).unwrap().clone();
    assert!(view.write_protected);
    let nqn = Nqn::parse(SUBSYSTEM).unwrap();
    for (epoch, seen) in [(8, vec![view]), (9, vec![])] {
        let seen = Arc::new(NamespaceSet::new(epoch, seen).unwrap());
        assert!(host.registry.set_namespaces(&nqn, &seen));
        assert_eq!(identify(&mut host, 0x01, 0, 0).unwrap()[525], 0b111);
        assert_eq!(host.plain(&command(0x0A, 0, 0x06, 0)), Ok(1));
    }
    assert!(
        !host
            .registry
            .set_namespaces(&Nqn::discovery(), &Arc::default())
    );
}

#[test]
fn namespaces_are_described() {
    let mut host = Host::io();
    let id = identify(&mut host, 0x00, 1, 0).unwrap();
    assert_eq!(
        [u64_at(&id, 0), u64_at(&id, 8), u64_at(&id, 16)],
        [1000; 3],
        "NSZE, NCAP, NUSE"
    );
    assert_eq!(
        (id[24], id[25], id[26]),
        (1 << 7 | 1 << 4 | 1 << 3, 0, 0),
        "NSFEAT, NLBAF, FLBAS"
    );
    assert_eq!((id[30], id[33]), (1, 0), "NMIC, DLFEAT");
    assert_eq!(
        (u16_at(&id, 74), u32_at(&id, 76), id[80]),
        (256, 256, 127),
        "MSSRL, MCL, MSRC: 1 MiB"
    );
    assert_eq!(u16_at(&id, 46), 16, "NOIOB");
    assert_eq!(u64_at(&id, 48), 4_096_000, "NVMCAP");
    assert_eq!(
        [u16_at(&id, 64), u16_at(&id, 66), u16_at(&id, 72)],
        [15; 3],
        "NPWG, NPWA, NOWS"
    );
    assert_eq!(id[99], 1, "NSATTR: write protected");
    assert_eq!(
        (&id[104..120], &id[120..128]),
        (&[0x22; 16][..], &[0; 8][..]),
        "NGUID, EUI64"
    );
    assert_eq!(u32_at(&id, 128), 12 << 16, "LBAF0: 4096 bytes, no metadata");

    let id = identify(&mut host, 0x00, 3, 0).unwrap();
    assert_eq!(
        (u64_at(&id, 0), id[24], id[99]),
        (1 << 40, 1 << 3 | 1 << 1, 0)
    );
    assert_eq!(id[33], 0b1001, "DLFEAT: zeros, DEAC");
    assert_eq!(
        [34, 36, 38, 40, 42, 44].map(|at| u16_at(&id, at)),
        [7, 7, 0, 7, 0, 7],
        "NAWUN, NAWUPF, NACWU, NABSN, NABO, NABSPF"
    );
    assert_eq!(u16_at(&id, 74), 2048, "MSSRL");
    assert_eq!((u32_at(&id, 128), &id[120..128]), (9 << 16, &[0x44; 8][..]));

    let id = identify(&mut host, 0x05, 1, 0).unwrap();
    assert_eq!(
        [u32_at(&id, 272), u32_at(&id, 276), u32_at(&id, 280)],
        [15; 3],
        "NPRG, NPRA, NORS"
    );
    let id = identify(&mut host, 0x06, 0, 0).unwrap();
    assert_eq!(id, vec![0; 4096], "VSL to DMSL: no limits");

    let id = identify(&mut host, 0x08, 1, 0).unwrap();
    assert_eq!(
        (id[0], id[1], id[8], id[14]),
        (1 << 3, 1, 1, 1),
        "NSFEAT, NMIC, NSATTR, NSTAT"
    );
}

/// Base, "Identify Namespace": an inactive NSID reads as zeros, an invalid one fails.
#[test]
fn inactive_namespaces_read_as_zeros_and_invalid_ones_fail() {
    let mut host = Host::io();
    for cns in [0x00, 0x05, 0x08] {
        for nsid in [2, 4, 1024] {
            assert_eq!(identify(&mut host, cns, nsid, 0).unwrap(), vec![0; 4096]);
        }
        for nsid in [0, 1025, 0xFFFF_FFFE, 0xFFFF_FFFF] {
            assert_eq!(
                identify(&mut host, cns, nsid, 0),
                Err(INVALID_NAMESPACE),
                "CNS {cns:#x} of {nsid:#x}"
            );
        }
    }
    for nsid in [0, 2, 1025, 0xFFFF_FFFF] {
        assert_eq!(identify(&mut host, 0x03, nsid, 0), Err(INVALID_NAMESPACE));
    }
}

#[test]
fn namespace_lists_begin_after_the_one_named() {
    let mut host = Host::io();
    for cns in [0x02, 0x07] {
        for (after, expected) in [
            (0, [1, 3, 0]),
            (1, [3, 0, 0]),
            (2, [3, 0, 0]),
            (3, [0; 3]),
            (0xFFFF_FFFD, [0; 3]),
        ] {
            let list = identify(&mut host, cns, after, 0).unwrap();
            assert_eq!(
                [u32_at(&list, 0), u32_at(&list, 4), u32_at(&list, 8)],
                expected
            );
        }
        for after in [0xFFFF_FFFE, 0xFFFF_FFFF] {
            assert_eq!(identify(&mut host, cns, after, 0), Err(INVALID_NAMESPACE));
        }
    }
}

/// Base, "Namespace Identification Descriptor": type, length, two reserved bytes, identifier.
#[test]
fn descriptors_name_every_identifier() {
    let mut host = Host::io();
    let mut expected = vec![2, 16, 0, 0];
    expected.extend_from_slice(&[0x22; 16]);
    expected.extend_from_slice(&[3, 16, 0, 0]);
    expected.extend_from_slice(&[0x11; 16]);
    expected.extend_from_slice(&[4, 1, 0, 0, 0]);
    expected.resize(4096, 0);
    assert_eq!(identify(&mut host, 0x03, 1, 0).unwrap(), expected);
    let mut expected = vec![1, 8, 0, 0];
    expected.extend_from_slice(&[0x44; 8]);
    expected.extend_from_slice(&[3, 16, 0, 0]);
    expected.extend_from_slice(&[0x33; 16]);
    expected.extend_from_slice(&[4, 1, 0, 0, 0]);
    expected.resize(4096, 0);
    assert_eq!(identify(&mut host, 0x03, 3, 0).unwrap(), expected);
}

#[test]
fn command_sets_other_than_nvm_are_not_there() {
    let mut host = Host::io();
    assert_eq!(identify(&mut host, 0x06, 0, 0).unwrap(), vec![0; 4096]);
    assert_eq!(identify(&mut host, 0x05, 3, 0).unwrap(), vec![0; 4096]);
    for csi in [1, 2, 0xFF] {
        assert_eq!(identify(&mut host, 0x06, 0, csi << 24), Err(INVALID_FIELD));
        assert_eq!(identify(&mut host, 0x07, 0, csi << 24), Err(INVALID_FIELD));
        assert_eq!(
            identify(&mut host, 0x05, 1, csi << 24),
            Err(Status::INVALID_IO_COMMAND_SET.dnr())
        );
    }
    let sets = identify(&mut host, 0x1C | 0xFFFF_0000, 0, 0).unwrap();
    assert_eq!((u64_at(&sets, 0), u64_at(&sets, 8)), (1, 0));
    assert!(identify(&mut host, 0x1C | 1 << 16, 0, 0).is_ok());
    assert_eq!(
        identify(&mut host, 0x1C | 2 << 16, 0, 0),
        Err(INVALID_FIELD)
    );
}

#[test]
fn unknown_structures_and_short_buffers_are_refused() {
    let mut host = Host::io();
    let known = [0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x1C];
    for cns in (0..=255).filter(|cns| !known.contains(cns)) {
        assert_eq!(
            identify(&mut host, cns, 1, 0),
            Err(INVALID_FIELD),
            "CNS {cns:#x}"
        );
    }
    let short = Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    assert_eq!(host.fetch(&command(0x06, 0, 1, 0), 4092), short);
    assert_eq!(host.fetch(&command(0x06, 0, 1, 0), 0), short);
    // A longer descriptor gets the structure alone.
    assert_eq!(
        host.fetch(&command(0x06, 0, 1, 0), 8192).unwrap().len(),
        4096
    );
}
