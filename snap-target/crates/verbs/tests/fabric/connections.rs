//! The connection manager on links that lose its messages.

use std::time::Duration;

use reactor::Errno;
use verbs::memory::Link;
use verbs::{
    Access, ConnectParameters, EventKind, Operation, QpState, RKey, RejectReason, SendRequest,
    VerbsError, WrId,
};

use crate::ends::{End, Net};

#[test]
fn an_address_of_nobody_is_not_resolved() {
    let net = Net::new(1);
    let channel = net.nodes[0].verbs().event_channel().unwrap();
    let id = channel.create_id().unwrap();
    let nobody = "10.9.9.9:1".parse().unwrap();
    id.resolve_address(None, nobody, Duration::from_secs(2))
        .unwrap();
    assert!(matches!(
        net.event(&channel),
        Some(EventKind::AddressError(Errno::ETIMEDOUT))
    ));
    assert_eq!(net.fabric.now(), Duration::from_secs(2));
    let error = id
        .resolve_address(None, "[fd00::1]:1".parse().unwrap(), Duration::from_secs(2))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rdma_resolve_addr failed on node 0: ENODEV: No such device; no RDMA device has this address: rdma link show, ip address show"
    );
}

#[test]
fn a_peer_that_does_not_answer_is_unreachable() {
    let net = Net::new(2);
    let here = net.nodes[0].verbs().event_channel().unwrap();
    let there = net.nodes[1].verbs().event_channel().unwrap();
    let (_listener, to) = net.listen(&there);
    let id = net.routed(&here, to);
    let end = End::new(here, id, 16);
    net.cut();
    let sent = net.fabric.counts().sent;
    end.id.connect(&ConnectParameters::default()).unwrap();
    assert!(matches!(
        net.event(&end.channel),
        Some(EventKind::Unreachable(Errno::ETIMEDOUT))
    ));
    assert_eq!(
        net.fabric.counts().sent - sent,
        16,
        "asked once, and fifteen times again"
    );
    assert!(there.next_event().unwrap().is_none());
}

#[test]
fn an_accept_that_is_never_heard_fails() {
    let net = Net::new(3);
    let here = net.nodes[0].verbs().event_channel().unwrap();
    let there = net.nodes[1].verbs().event_channel().unwrap();
    let (_listener, to) = net.listen(&there);
    let id = net.routed(&here, to);
    let here = End::new(here, id, 16);
    here.id.connect(&ConnectParameters::default()).unwrap();
    let Some(EventKind::ConnectRequest(request)) = net.event(&there) else {
        panic!("no request");
    };
    let id = there.adopt(request).unwrap();
    let there = End::new(there, id, 16);
    there.receive(5, &[]);
    net.nodes[0].kill();
    there.id.accept(&ConnectParameters::default()).unwrap();
    assert!(matches!(
        net.event(&there.channel),
        Some(EventKind::Unreachable(Errno::ETIMEDOUT))
    ));
    assert_eq!(there.qp.state().unwrap(), QpState::Error);
    assert!(
        here.channel.next_event().unwrap().is_none(),
        "a node that is gone hears nothing"
    );
}

#[test]
fn a_goodbye_that_is_never_answered_ends_all_the_same() {
    let net = Net::new(4);
    let [here, there] = net.pair();
    net.nodes[1].kill();
    here.id.disconnect().unwrap();
    assert!(matches!(
        net.event(&here.channel),
        Some(EventKind::Disconnected)
    ));
    assert!(matches!(
        net.event(&here.channel),
        Some(EventKind::TimewaitExit)
    ));
    assert!(net.event(&there.channel).is_none());
}

#[test]
fn every_message_of_the_connection_manager_may_be_lost() {
    for seed in 0..200 {
        let net = Net::new(seed);
        net.fabric.set_links(Link {
            lost_ppm: 300_000,
            duplicated_ppm: 300_000,
            jitter: Duration::from_millis(1),
            ..Link::default()
        });
        let [here, there] = net.pair();
        here.id.disconnect().unwrap();
        // Both hear of it, once each; the answer goes out again as often as it is asked for.
        assert!(
            matches!(net.event(&there.channel), Some(EventKind::Disconnected)),
            "seed {seed}"
        );
        there.id.disconnect().unwrap();
        assert!(
            matches!(net.event(&here.channel), Some(EventKind::Disconnected)),
            "seed {seed}"
        );
        for end in [&here, &there] {
            let last = net.event(&end.channel);
            assert!(
                matches!(last, Some(EventKind::TimewaitExit)),
                "seed {seed}: {last:?}"
            );
            assert!(net.event(&end.channel).is_none(), "seed {seed}");
        }
    }
}

#[test]
fn a_backlog_is_not_exceeded() {
    let net = Net::new(5);
    let there = net.nodes[1].verbs().event_channel().unwrap();
    let listener = there.listen("10.0.0.2:1".parse().unwrap(), 2).unwrap();
    let ends: Vec<End> = (0..5)
        .map(|_| {
            let channel = net.nodes[0].verbs().event_channel().unwrap();
            let id = net.routed(&channel, listener.local_address().unwrap());
            let end = End::new(channel, id, 4);
            end.id.connect(&ConnectParameters::default()).unwrap();
            end
        })
        .collect();
    net.fabric.advance(Duration::from_millis(50));
    let mut waiting = Vec::new();
    while let Some(event) = there.next_event().unwrap() {
        waiting.push(event);
    }
    assert_eq!(waiting.len(), 2);
    // The others ask again, and find room.
    net.fabric.advance(Duration::from_millis(100));
    while let Some(event) = there.next_event().unwrap() {
        waiting.push(event);
    }
    assert_eq!(waiting.len(), 4);
    drop(waiting);
    net.fabric.advance(Duration::from_millis(10));
    let rejected = ends.iter().filter(|end| {
        matches!(
            end.channel.next_event().unwrap().map(|event| event.kind),
            Some(EventKind::Rejected(..))
        )
    });
    assert_eq!(rejected.count(), 4);
    drop(listener);
    let mut last = ends.iter().filter_map(|end| net.event(&end.channel));
    assert!(matches!(
        last.next(),
        Some(EventKind::Rejected(verbs::RejectReason::NoListener, _))
    ));
}

#[test]
fn what_belongs_to_another_node_is_refused() {
    let net = Net::new(6);
    let [here, there] = net.pair();
    let misuse = |error: &VerbsError| matches!(error, VerbsError::Misuse { .. });
    let (listener, to) = (
        there
            .channel
            .listen("10.0.0.2:7".parse().unwrap(), 4)
            .unwrap(),
        "10.0.0.2:7".parse().unwrap(),
    );
    let id = net.routed(&here.channel, to);
    let error = id
        .create_queue_pair(&there.domain, &here.cq, &here.cq, here.qp.capabilities())
        .unwrap_err();
    assert!(misuse(&error), "{error}");
    let error = id
        .create_queue_pair(&here.domain, &here.cq, &there.cq, here.qp.capabilities())
        .unwrap_err();
    assert!(misuse(&error), "{error}");
    let _qp = id
        .create_queue_pair(&here.domain, &here.cq, &here.cq, here.qp.capabilities())
        .unwrap();
    id.connect(&ConnectParameters::default()).unwrap();
    let Some(EventKind::ConnectRequest(request)) = net.event(&there.channel) else {
        panic!("no request");
    };
    let error = here.channel.adopt(request).unwrap_err();
    assert!(misuse(&error), "{error}");
    // What could not be adopted is rejected.
    assert!(matches!(
        net.event(&here.channel),
        Some(EventKind::Rejected(RejectReason::Consumer, _))
    ));
    // A window of another domain.
    let other = here.domain.device().allocate_domain().unwrap();
    let window = other.allocate_window().unwrap();
    let operation = Operation::Bind {
        window: &window,
        registration: &here.memory,
        offset: 0,
        len: 8,
        access: Access::REMOTE_READ,
    };
    let refused = here
        .qp
        .post_send(&[SendRequest {
            id: WrId(1),
            operation,
            signaled: true,
            fence: false,
        }])
        .unwrap_err();
    assert!(misuse(&refused.error), "{refused}");
    drop(listener);
}

#[test]
fn no_request_is_posted_before_there_is_a_connection() {
    let net = Net::new(7);
    let there = net.nodes[1].verbs().event_channel().unwrap();
    let (_listener, to) = net.listen(&there);
    let here = net.nodes[0].verbs().event_channel().unwrap();
    let id = net.routed(&here, to);
    let end = End::new(here, id, 4);
    end.receive(1, &[]);
    let operation = Operation::LocalInvalidate { rkey: RKey(1) };
    let refused = end
        .qp
        .post_send(&[SendRequest {
            id: WrId(1),
            operation,
            signaled: true,
            fence: false,
        }])
        .unwrap_err();
    let number = end.qp.number().0;
    assert_eq!(
        refused.to_string(),
        format!(
            "request 0 of the list: ibv_post_send is not possible while queue pair {number} is not connected yet"
        )
    );
}
