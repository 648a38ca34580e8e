//! Of namespaces.

use admin_proto::v1::resize_namespace_request::Size;
use admin_proto::v1::*;

use super::{Case, case};
use crate::fake::samples::{DATA, SCRATCH, TRAINER1, TRAINER2, all, seen_only_by};

const UUID: &str = "5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4";

/// An order: its beginning, and the two ranges of a file.
fn prefetch_case() -> Case {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/ranges.txt");
    const ARGUMENTS: &[&str] = &[
        DATA,
        "2",
        "--ranges",
        FILE,
        "--epoch",
        "7",
        "--quota-mib",
        "64",
    ];
    let part = |what| PrefetchRequest { what: Some(what) };
    let begin = PrefetchBegin {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        expected_uuid: String::new(),
        epoch_id: "7".to_owned(),
        quota_bytes: 64 << 20,
    };
    let range = |offset, bytes| PrefetchRange { offset, bytes };
    let ranges = PrefetchRanges {
        ranges: vec![range(65_536, 4096), range(0, 8192)],
    };
    let asked = part(prefetch_request::What::Ranges(ranges));
    let get = GetNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
    };
    case("namespace prefetch", ARGUMENTS, &asked)
        .after(&part(prefetch_request::What::Begin(begin)))
        .after(&get)
}

fn source(text: &str) -> Option<Source> {
    Some(Source {
        kind: Some(source::Kind::Text(text.to_owned())),
    })
}

pub(super) fn namespace_cases() -> Vec<Case> {
    let bare = AttachNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        source: source("/srv/tokens.xio"),
        ..AttachNamespaceRequest::default()
    };
    let full = AttachNamespaceRequest {
        source: source("file:/srv/disk.raw"),
        nsid: 7,
        lba_bytes: 512,
        read_only: true,
        visible_to: Some(seen_only_by(&[TRAINER1])),
        ..bare.clone()
    };
    let limited = AttachNamespaceRequest {
        source: source("file:/srv/disk.raw"),
        immutable: true,
        limit: "200MB/s,latency=2ms".to_owned(),
        ..bare.clone()
    };
    let open = AttachNamespaceRequest {
        source: source("mem:1MiB"),
        visible_to: Some(all()),
        ..bare.clone()
    };
    let detach = |expected_uuid: &str| DetachNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 3,
        expected_uuid: expected_uuid.to_owned(),
    };
    let resize = |size, force| ResizeNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        size: Some(size),
        force,
        expected_uuid: String::new(),
    };
    let resize_this = ResizeNamespaceRequest {
        expected_uuid: UUID.to_owned(),
        ..resize(Size::Bytes(1 << 30), true)
    };
    let visibility = |visible_to| SetVisibilityRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        visible_to: Some(visible_to),
        expected_uuid: String::new(),
    };
    let this_visibility = SetVisibilityRequest {
        expected_uuid: UUID.to_owned(),
        ..visibility(all())
    };
    let show_to = ShowToRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        host_nqns: vec![TRAINER1.to_owned(), TRAINER2.to_owned()],
        expected_uuid: String::new(),
    };
    let hide_from = HideFromRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        host_nqns: vec![TRAINER1.to_owned()],
        expected_uuid: UUID.to_owned(),
    };
    let list = |subsystem: &str| ListNamespacesRequest {
        subsystem_nqn: subsystem.to_owned(),
        ..ListNamespacesRequest::default()
    };
    let show = GetNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 4_294_967_294,
    };
    vec![
        case("namespace attach", &[DATA, "/srv/tokens.xio"], &bare),
        case(
            "namespace attach",
            &[
                DATA,
                "file:/srv/disk.raw",
                "--nsid",
                "7",
                "--lba",
                "512",
                "--read-only",
                "--host",
                TRAINER1,
            ],
            &full,
        ),
        case(
            "namespace attach",
            &[
                DATA,
                "file:/srv/disk.raw",
                "--immutable",
                "--limit",
                "200MB/s,latency=2000us",
            ],
            &limited,
        )
        .after(&GetInfoRequest {}),
        case(
            "namespace attach",
            &[DATA, "mem:1MiB", "--all-hosts"],
            &open,
        ),
        case(
            "namespace attach",
            &[SCRATCH, "mem:1MiB", "--ensure"],
            &AttachNamespaceRequest {
                subsystem_nqn: SCRATCH.to_owned(),
                source: source("mem:1MiB"),
                ..AttachNamespaceRequest::default()
            },
        )
        .after(&list(SCRATCH)),
        case("namespace detach", &[DATA, "3"], &detach("")),
        case(
            "namespace detach",
            &[DATA, "3", "--expect-uuid", UUID],
            &detach(UUID),
        )
        .after(&GetInfoRequest {}),
        case(
            "namespace resize",
            &[
                DATA,
                "2",
                "--size",
                "1GiB",
                "--force",
                "--expect-uuid",
                UUID,
            ],
            &resize_this,
        )
        .after(&GetInfoRequest {}),
        case(
            "namespace visibility",
            &[DATA, "2", "--all-hosts", "--expect-uuid", UUID],
            &this_visibility,
        )
        .after(&GetInfoRequest {}),
        prefetch_case(),
        case(
            "namespace show-to",
            &[DATA, "2", TRAINER1, TRAINER2],
            &show_to,
        ),
        case(
            "namespace hide-from",
            &[DATA, "2", TRAINER1, "--expect-uuid", UUID],
            &hide_from,
        )
        .after(&GetInfoRequest {}),
        case(
            "namespace resize",
            &[DATA, "2", "--size", "40GiB"],
            &resize(Size::Bytes(40 << 30), false),
        ),
        case(
            "namespace resize",
            &[DATA, "2", "--rescan", "--force"],
            &resize(Size::Rescan(Rescan {}), true),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--host", TRAINER2],
            &visibility(seen_only_by(&[TRAINER2])),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--all-hosts"],
            &visibility(all()),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--no-host"],
            &visibility(seen_only_by(&[])),
        ),
        case("namespace list", &[], &list("")),
        case("namespace list", &[DATA], &list(DATA)),
        case("namespace show", &[DATA, "4294967294"], &show),
    ]
}
