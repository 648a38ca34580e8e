//! The connection manager's duties.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use super::Subject;
use super::rig::{CAPABILITIES, End, HERE, Pair, THERE};
use crate::cm::{ConnectParameters, EventKind, RejectReason};
use crate::completion::QpState;
use crate::error::VerbsError;
use crate::key::Gid;
use crate::limits::{ACCEPT_DATA_BYTES_MAX, CONNECT_DATA_BYTES_MAX};

pub(super) fn private_data_and_depths_arrive(subject: &Subject<'_>) {
    let [here, there] = [subject.channel(HERE), subject.channel(THERE)];
    let (listener, to) = subject.listen(&there);
    let id = subject.routed(&here, to);
    let here = End::new(here, id, 16, None);
    let ask = ConnectParameters {
        private_data: &[7; CONNECT_DATA_BYTES_MAX],
        responder_resources: 3,
        initiator_depth: 5,
        ..ConnectParameters::default()
    };
    here.id.connect(&ask).unwrap();
    let request = subject.request(&there, &listener);
    assert_eq!(request.private_data(), [7; CONNECT_DATA_BYTES_MAX]);
    assert_eq!(
        request.responder_resources(),
        5,
        "what the peer wants in progress here"
    );
    assert_eq!(request.initiator_depth(), 3, "what the peer has room for");
    assert_eq!(request.local_address(), Some(to));
    assert_eq!(
        request.peer_address().map(|peer| peer.ip()),
        Some(subject.addresses[HERE])
    );
    let id = there.adopt(request).unwrap();
    let there = End::new(there, id, 16, None);
    let answer = ConnectParameters {
        private_data: b"welcome",
        responder_resources: 4,
        initiator_depth: 2,
        ..ConnectParameters::default()
    };
    let pair = subject.established(here, there, &answer);
    let given = pair.agreed.private_data;
    assert_eq!(given.as_bytes()[..7], *b"welcome");
    assert!(
        given.as_bytes()[7..].iter().all(|&byte| byte == 0),
        "padded with zeros"
    );
    assert_eq!(
        pair.agreed.initiator_depth, 4,
        "reads of ours that the peer has room for"
    );
    assert_eq!(
        pair.agreed.responder_resources, 2,
        "reads that the peer wants here"
    );
    assert_eq!(pair.there().id.local_address(), Some(to));
    for end in &pair.ends {
        assert_eq!(end.qp.state().unwrap(), QpState::ReadyToSend);
    }
}

pub(super) fn a_reject_tells_its_reason_and_data(subject: &Subject<'_>) {
    let [here, there] = [subject.channel(HERE), subject.channel(THERE)];
    let (listener, to) = subject.listen(&there);
    let id = subject.routed(&here, to);
    let end = End::new(here, id, 16, None);
    end.id.connect(&ConnectParameters::default()).unwrap();
    subject
        .request(&there, &listener)
        .reject(b"not today")
        .unwrap();
    let event = subject.event(&end.channel);
    let EventKind::Rejected(reason, data) = event.kind else {
        panic!("a reject must come, but {:?}", event.kind);
    };
    assert_eq!(reason, RejectReason::Consumer);
    assert_eq!(data.as_bytes()[..9], *b"not today");
}

pub(super) fn a_dropped_request_is_rejected(subject: &Subject<'_>) {
    let [here, there] = [subject.channel(HERE), subject.channel(THERE)];
    let (listener, to) = subject.listen(&there);
    let id = subject.routed(&here, to);
    let end = End::new(here, id, 16, None);
    end.id.connect(&ConnectParameters::default()).unwrap();
    let request = subject.request(&there, &listener);
    // It may be the last of all.
    drop((listener, there));
    assert_eq!(request.local_address(), Some(to));
    drop(request);
    let event = subject.event(&end.channel);
    assert!(
        matches!(event.kind, EventKind::Rejected(RejectReason::Consumer, _)),
        "{:?}",
        event.kind
    );
}

pub(super) fn where_nobody_listens_says_so(subject: &Subject<'_>) {
    let [here, there] = [subject.channel(HERE), subject.channel(THERE)];
    let (listener, to) = subject.listen(&there);
    drop(listener);
    let id = subject.routed(&here, to);
    let end = End::new(here, id, 16, None);
    end.id.connect(&ConnectParameters::default()).unwrap();
    let event = subject.event(&end.channel);
    assert!(
        matches!(event.kind, EventKind::Rejected(RejectReason::NoListener, _)),
        "{:?}",
        event.kind
    );
}

pub(super) fn a_request_can_be_taken_by_another_channel(subject: &Subject<'_>) {
    let [here, front] = [subject.channel(HERE), subject.channel(THERE)];
    let (listener, to) = subject.listen(&front);
    let id = subject.routed(&here, to);
    let here = End::new(here, id, 16, None);
    here.id.connect(&ConnectParameters::default()).unwrap();
    let request = subject.request(&front, &listener);
    let verbs = subject.verbs[THERE].clone();
    let taken = thread::spawn(move || {
        let channel = verbs.event_channel().unwrap();
        let id = channel.adopt(request).unwrap();
        End::new(channel, id, 16, None)
    });
    let there = taken.join().unwrap();
    let mut pair = subject.established(here, there, &ConnectParameters::default());
    assert!(
        front.next_event().unwrap().is_none(),
        "its events come to the other channel alone"
    );
    drop((listener, front));
    pair.round_trip();
}

pub(super) fn a_disconnect_is_told_at_both_ends(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    for end in &pair.ends {
        end.receive(1, &[]);
        end.receive(2, &[]);
    }
    pair.here().id.disconnect().unwrap();
    pair.flushed(HERE, &[1, 2]);
    expect_disconnected(&pair, THERE);
    pair.there().id.disconnect().unwrap();
    pair.flushed(THERE, &[1, 2]);
    expect_disconnected(&pair, HERE);
    for end in [HERE, THERE] {
        pair.in_error(end);
    }
}

fn expect_disconnected(pair: &Pair<'_>, end: usize) {
    let this = &pair.ends[end];
    let event = pair.subject.event(&this.channel);
    assert_eq!(event.key, this.id.key());
    assert!(
        matches!(event.kind, EventKind::Disconnected),
        "{:?}",
        event.kind
    );
}

pub(super) fn a_dropped_end_is_told_to_the_other(subject: &Subject<'_>) {
    let Pair {
        ends: [here, there],
        ..
    } = subject.pair();
    drop(here);
    let event = subject.event(&there.channel);
    assert!(
        matches!(event.kind, EventKind::Disconnected),
        "{:?}",
        event.kind
    );
}

pub(super) fn an_address_is_taken_once(subject: &Subject<'_>) {
    let channel = subject.channel(THERE);
    let (listener, at) = subject.listen(&channel);
    let error = channel.listen(at, 8).unwrap_err();
    assert_eq!(error.errno(), Some(reactor::Errno::EADDRINUSE), "{error}");
    drop(listener);
    channel.listen(at, 8).unwrap();
}

pub(super) fn an_address_of_nobody_is_refused(subject: &Subject<'_>) {
    let channel = subject.channel(THERE);
    // Of the block for documentation: nobody's.
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 77)), 0);
    let error = channel.listen(nobody, 8).unwrap_err();
    assert!(matches!(error, VerbsError::Call { .. }), "{error}");
    assert!(
        error.to_string().contains("203.0.113.77") || error.to_string().contains("node"),
        "{error}"
    );
}

pub(super) fn limits_are_kept(subject: &Subject<'_>) {
    let channel = subject.channel(HERE);
    let there = subject.channel(THERE);
    let (_listener, to) = subject.listen(&there);
    let id = subject.routed(&channel, to);
    let device = id.device().unwrap().unwrap();
    let end = End::new(channel, id, 16, None);
    let limits = device.attributes();
    let plain = ConnectParameters::default();
    let long = [0; ACCEPT_DATA_BYTES_MAX + 1];
    let bad = [
        ConnectParameters {
            private_data: &long[..=CONNECT_DATA_BYTES_MAX],
            ..plain
        },
        ConnectParameters {
            retry_count: 8,
            ..plain
        },
        ConnectParameters {
            rnr_retry_count: 8,
            ..plain
        },
        ConnectParameters {
            initiator_depth: limits.qp_init_rd_atom_max.saturating_add(1),
            ..plain
        },
        ConnectParameters {
            responder_resources: limits.qp_rd_atom_max.saturating_add(1),
            ..plain
        },
    ];
    for parameters in bad {
        let error = end.id.connect(&parameters).unwrap_err();
        assert!(
            matches!(error, VerbsError::Limit { .. }),
            "{parameters:?}: {error}"
        );
    }
    let error = device.create_completion_queue(u32::MAX).unwrap_err();
    assert!(matches!(error, VerbsError::Limit { .. }), "{error}");
    let other = subject.routed(&end.channel, to);
    let mut asked = CAPABILITIES;
    asked.send_wr_max = u32::MAX;
    let error = other
        .create_queue_pair(&end.domain, &end.cq, &end.cq, &asked)
        .unwrap_err();
    assert!(matches!(error, VerbsError::Limit { .. }), "{error}");
    let error = end
        .id
        .create_queue_pair(&end.domain, &end.cq, &end.cq, &CAPABILITIES)
        .unwrap_err();
    assert!(
        matches!(error, VerbsError::Misuse { .. }),
        "one queue pair in a life: {error}"
    );
}

pub(super) fn gids_are_the_addresses(subject: &Subject<'_>) {
    for end in [HERE, THERE] {
        let address = subject.addresses[end];
        let devices = subject.verbs[end].devices().unwrap();
        let gids: Vec<Gid> = devices
            .iter()
            .flat_map(|device| device.gids().unwrap())
            .map(|entry| entry.gid)
            .collect();
        assert!(
            gids.contains(&Gid::from(address)),
            "{address} is not among {gids:?}"
        );
        assert_eq!(Gid::from(address).ip(), address);
    }
}
