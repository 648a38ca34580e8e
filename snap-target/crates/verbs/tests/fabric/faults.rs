//! Links and nodes that fail, queues that overflow, memory that goes too early.

use std::sync::Arc;
use std::time::Duration;

use reactor::buf::Mapping;
use verbs::memory::Link;
use verbs::{
    Access, AsyncEvent, ConnectParameters, EventKind, Gather, HostMemory, Operation, QpState,
    Remote, SendRequest, Status, WrId,
};

use crate::ends::{End, Net};

#[test]
fn a_cut_link_uses_up_the_tries() {
    let net = Net::new(1);
    let parameters = ConnectParameters {
        retry_count: 3,
        ..ConnectParameters::default()
    };
    let [here, there] = net.pair_with(&parameters, 64);
    there.receive(9, &[]);
    let before = net.fabric.counts().resent;
    net.cut();
    here.receive(8, &[]);
    here.send(1);
    here.send(2);
    // Four waits of 16 ms.
    net.fabric
        .advance(Duration::from_millis(64) - Duration::from_nanos(1));
    assert_eq!(here.outcomes(), []);
    net.fabric.advance(Duration::from_nanos(1));
    assert_eq!(
        here.outcomes(),
        [
            (1, Some(Status::RetryExceeded)),
            (2, Some(Status::Flushed)),
            (8, Some(Status::Flushed))
        ]
    );
    assert_eq!(
        net.fabric.counts().resent - before,
        3 * 2,
        "both, three times"
    );
    assert_eq!(there.outcomes(), [], "the other end has heard nothing");
    assert_eq!(there.qp.state().unwrap(), QpState::ReadyToSend);
}

#[test]
fn a_peer_that_is_gone_without_a_word_shows_only_to_who_sends() {
    let net = Net::new(2);
    let [here, there] = net.pair();
    here.receive(8, &[]);
    net.nodes[1].kill();
    net.fabric.advance(Duration::from_secs(3600));
    assert_eq!(here.outcomes(), [], "half open, for as long as nobody asks");
    assert!(here.channel.next_event().unwrap().is_none());
    let into = [here.entry(0, 8)];
    here.post(
        1,
        Operation::Read {
            entries: &into,
            remote: there.remote(0),
        },
    );
    net.settle();
    assert_eq!(
        here.outcomes(),
        [(1, Some(Status::RetryExceeded)), (8, Some(Status::Flushed))]
    );
}

#[test]
fn a_short_cut_costs_time_only() {
    let net = Net::new(3);
    let [here, there] = net.pair();
    let into = [there.entry(0, 8)];
    there.receive(9, &into);
    there.receive(10, &[]);
    net.cut();
    here.memory.copy_in(0, b"survives").unwrap();
    let from = [here.entry(0, 8)];
    here.post(
        1,
        Operation::Send {
            gather: Gather::Entries(&from),
            invalidate: None,
            solicited: false,
        },
    );
    here.send(2);
    net.fabric.advance(Duration::from_millis(40));
    assert_eq!(here.outcomes(), []);
    net.fabric.set_links(Link::default());
    net.settle();
    assert_eq!(here.outcomes(), [(1, None), (2, None)]);
    assert_eq!(there.outcomes(), [(9, None), (10, None)]);
    assert_eq!(there.bytes(0, 8), b"survives");
}

/// What the device would go on with stays where it is.
#[test]
fn memory_of_a_queue_pair_that_is_not_destroyed_stays_registered() {
    let net = Net::new(4);
    let [here, _there] = net.pair();
    net.nodes[0].keep_queue_pairs();
    drop(here);
    let calls = net.nodes[0].control_calls();
    let is_there = |call| calls.iter().any(|(known, _)| *known == call);
    assert!(is_there("ibv_destroy_qp"), "it was asked for");
    for call in ["ibv_dereg_mr", "ibv_destroy_cq"] {
        assert!(!is_there(call), "{call}");
    }
}

#[test]
fn a_device_that_goes_tells_its_identifiers_and_flushes() {
    let net = Net::new(4);
    let [here, there] = net.pair();
    let device = here.id.device().unwrap().unwrap();
    here.receive(8, &[]);
    net.nodes[0].remove_device();
    assert!(matches!(
        net.event(&here.channel),
        Some(EventKind::DeviceRemoval)
    ));
    assert_eq!(
        device.next_async_event().unwrap(),
        Some(AsyncEvent::DeviceFatal)
    );
    assert_eq!(here.outcomes(), [(8, Some(Status::Flushed))]);
    assert_eq!(here.qp.state().unwrap(), QpState::Error);
    let error = device.create_completion_queue(1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_create_cq failed on memory0: ENODEV: No such device"
    );
    assert!(net.nodes[0].verbs().devices().unwrap().is_empty());
    there.send(1);
    net.settle();
    assert_eq!(there.outcomes(), [(1, Some(Status::RetryExceeded))]);
}

#[test]
fn addresses_that_move_are_told() {
    let net = Net::new(5);
    let [here, there] = net.pair();
    net.nodes[0].move_addresses();
    assert!(matches!(
        net.event(&here.channel),
        Some(EventKind::AddressChange)
    ));
    assert!(there.channel.next_event().unwrap().is_none());
}

#[test]
fn a_queue_that_overflows_breaks_its_queue_pairs() {
    let net = Net::new(6);
    let [here, there] = net.pair_with(&ConnectParameters::default(), 4);
    let device = there.id.device().unwrap().unwrap();
    for id in 0..6 {
        there.receive(id, &[]);
    }
    for id in 0..5 {
        here.send(id);
        net.fabric.advance(Duration::from_millis(1));
        here.polled();
    }
    let told: Vec<AsyncEvent> = std::iter::from_fn(|| device.next_async_event().unwrap()).collect();
    assert_eq!(
        told,
        [
            AsyncEvent::CompletionQueueError,
            AsyncEvent::QueuePairFatal(there.qp.number())
        ]
    );
    assert_eq!(there.qp.state().unwrap(), QpState::Error);
    assert_eq!(
        there.outcomes(),
        [(0, None), (1, None), (2, None), (3, None)],
        "what was there before is there"
    );
}

#[test]
fn late_writes_do_not_reach_memory_that_was_taken_back() {
    let net = Net::new(7);
    let [here, there] = net.pair();
    let mapping = Arc::new(Mapping::new(4096).unwrap());
    let memory = HostMemory::of_mapping(&mapping);
    let lent = there
        .domain
        .register(&memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
        .unwrap();
    let remote = Remote {
        address: lent.remote_address(0).unwrap(),
        rkey: lent.rkey(),
    };
    net.fabric.set_links(Link {
        delay: Duration::from_millis(1),
        ..Link::default()
    });
    here.memory.copy_in(0, b"late").unwrap();
    here.write(1, &[here.entry(0, 4)], remote);
    // On its way, and taken back before it arrives.
    net.fabric.advance(Duration::from_micros(500));
    lent.deregister().map_err(|(_, error)| error).unwrap();
    net.settle();
    assert_eq!(here.outcomes(), [(1, Some(Status::RemoteAccess))]);
    let again = there.domain.register(&memory, Access::LOCAL_READ).unwrap();
    let mut bytes = [1; 4];
    again.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4]);
}

#[test]
fn memory_that_is_changed_too_early_shows_in_what_arrives() {
    let net = Net::new(8);
    let [here, there] = net.pair();
    let from = [here.entry(0, 4)];
    here.memory.copy_in(0, b"good").unwrap();
    // There is no receive: the message goes again, and takes its bytes again.
    here.post(
        1,
        Operation::Send {
            gather: Gather::Entries(&from),
            invalidate: None,
            solicited: false,
        },
    );
    net.fabric.advance(Duration::from_micros(100));
    here.memory.copy_in(0, b"evil").unwrap();
    there.receive(2, &[there.entry(0, 4)]);
    net.settle();
    assert_eq!(there.outcomes(), [(2, None)]);
    assert_eq!(there.bytes(0, 4), b"evil");
}

#[test]
fn completions_of_queue_pairs_come_in_any_order() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let net = Net::new(seed);
        let [here, there] = net.pair();
        let (listener, to) = (
            there
                .channel
                .listen("10.0.0.2:4421".parse().unwrap(), 1)
                .unwrap(),
            "10.0.0.2:4421".parse().unwrap(),
        );
        let id = net.routed(&here.channel, to);
        let qp = id
            .create_queue_pair(&here.domain, &here.cq, &here.cq, here.qp.capabilities())
            .unwrap();
        id.connect(&ConnectParameters::default()).unwrap();
        let Some(EventKind::ConnectRequest(request)) = net.event(&there.channel) else {
            panic!("no request");
        };
        let other = End::new(
            net.nodes[1].verbs().event_channel().unwrap(),
            there.channel.adopt(request).unwrap(),
            64,
        );
        other.id.accept(&ConnectParameters::default()).unwrap();
        assert!(matches!(
            net.event(&here.channel),
            Some(EventKind::Established(_))
        ));
        net.fabric.set_links(Link {
            jitter: Duration::from_micros(100),
            ..Link::default()
        });
        for id in 0..3 {
            here.write(id, &[here.entry(0, 1)], there.remote(0));
            let from = [here.entry(0, 1)];
            let operation = Operation::Write {
                gather: Gather::Entries(&from),
                remote: other.remote(0),
            };
            let request = SendRequest {
                id: WrId(10 + id),
                operation,
                signaled: true,
                fence: false,
            };
            qp.post_send(&[request]).unwrap();
        }
        net.fabric.advance(Duration::from_millis(100));
        let order: Vec<u64> = here.outcomes().iter().map(|(id, _)| *id).collect();
        let of = |low: bool| {
            order
                .iter()
                .copied()
                .filter(move |id| (*id < 10) == low)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (of(true), of(false)),
            (vec![0, 1, 2], vec![10, 11, 12]),
            "each in order"
        );
        orders.insert(order);
        drop(listener);
    }
    assert!(orders.len() > 3, "across them in any: {orders:?}");
}

#[test]
fn as_many_reads_go_as_the_depth_says() {
    let net = Net::new(9);
    let parameters = ConnectParameters {
        responder_resources: 2,
        initiator_depth: 2,
        ..ConnectParameters::default()
    };
    let [here, there] = net.pair_with(&parameters, 64);
    there.receive(9, &[]);
    net.settle();
    let before = net.fabric.counts().sent;
    for id in 0..5 {
        here.post(
            id,
            Operation::Read {
                entries: &[here.entry(0, 8)],
                remote: there.remote(0),
            },
        );
    }
    here.send(5);
    assert_eq!(
        net.fabric.counts().sent - before,
        2,
        "the third read waits, and the message behind it"
    );
    net.settle();
    assert_eq!(
        net.fabric.counts().sent - before,
        2 * 6,
        "a request and an answer each"
    );
    assert_eq!(
        here.outcomes(),
        (0..6).map(|id| (id, None)).collect::<Vec<_>>()
    );
}

#[test]
fn a_fence_holds_back_what_follows_a_read_and_nothing_else_does() {
    for (fence, at_once) in [(false, 3), (true, 1)] {
        let net = Net::new(10);
        let [here, there] = net.pair();
        net.settle();
        let before = net.fabric.counts().sent;
        here.post(
            0,
            Operation::Read {
                entries: &[here.entry(0, 8)],
                remote: there.remote(0),
            },
        );
        let from = [here.entry(0, 8)];
        for id in [1, 2] {
            let operation = Operation::Write {
                gather: Gather::Entries(&from),
                remote: there.remote(8),
            };
            let fence = fence && id == 1;
            here.qp
                .post_send(&[SendRequest {
                    id: WrId(id),
                    operation,
                    signaled: true,
                    fence,
                }])
                .unwrap();
        }
        assert_eq!(net.fabric.counts().sent - before, at_once, "fence: {fence}");
        net.settle();
        assert_eq!(here.outcomes(), [(0, None), (1, None), (2, None)]);
    }
}

#[test]
fn a_peer_without_a_receive_is_asked_as_often_as_it_said() {
    let net = Net::new(11);
    let parameters = ConnectParameters {
        rnr_retry_count: 3,
        ..ConnectParameters::default()
    };
    let [here, there] = net.pair_with(&parameters, 64);
    net.settle();
    let before = net.fabric.counts();
    here.send(1);
    here.send(2);
    // Three waits of 0.64 ms, four ways there and back.
    let all = Duration::from_micros(3 * 640 + 4 * 2 * 5);
    net.fabric.advance(all - Duration::from_nanos(1));
    assert_eq!(here.outcomes(), []);
    net.fabric.advance(Duration::from_nanos(1));
    assert_eq!(
        here.outcomes(),
        [
            (1, Some(Status::RnrRetryExceeded)),
            (2, Some(Status::Flushed))
        ]
    );
    assert_eq!(net.fabric.counts().resent - before.resent, 3 * 2);
    assert_eq!(
        there.qp.state().unwrap(),
        QpState::ReadyToSend,
        "it refused nothing"
    );
}

#[test]
fn a_read_where_none_may_be_in_progress_fails_here() {
    let net = Net::new(12);
    let parameters = ConnectParameters {
        responder_resources: 0,
        initiator_depth: 0,
        ..ConnectParameters::default()
    };
    let [here, there] = net.pair_with(&parameters, 64);
    there.receive(9, &[]);
    here.send(1);
    here.post(
        2,
        Operation::Read {
            entries: &[here.entry(0, 8)],
            remote: there.remote(0),
        },
    );
    here.send(3);
    net.settle();
    assert_eq!(
        here.outcomes(),
        [
            (1, None),
            (2, Some(Status::LocalQpOperation)),
            (3, Some(Status::Flushed))
        ]
    );
}
