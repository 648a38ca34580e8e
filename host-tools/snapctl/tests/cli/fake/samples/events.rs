//! Events.

use admin_proto::v1::subscribe_response::Message;
use admin_proto::v1::*;

use super::objects::tokens;
use super::target::problem;
use super::{DATA, TRAINER1, at};

pub fn publish(_: PublishRequest) -> PublishResponse {
    PublishResponse { sequence: 105 }
}

fn event(sequence: u64, topic: Topic, text: &str, kind: event::Kind) -> SubscribeResponse {
    SubscribeResponse {
        message: Some(Message::Event(Event {
            sequence,
            time: at(i64::try_from(sequence).unwrap()),
            topic: topic.into(),
            text: text.to_owned(),
            kind: Some(kind),
        })),
    }
}

/// Events 101 to 104 are kept; topics are left to who asks.
pub fn subscribe(request: SubscribeRequest) -> Vec<SubscribeResponse> {
    let started = SubscribeResponse {
        message: Some(Message::Started(Started {
            instance: "6f9619ff8b86d011b42d00cf4fc964ff".to_owned(),
            oldest_sequence: 101,
            next_sequence: 105,
        })),
    };
    let gap = SubscribeResponse {
        message: Some(Message::Gap(Gap {
            first_sequence: request.from_sequence,
            last_sequence: 100,
            reason: GapReason::NotKept.into(),
        })),
    };
    let attached = NamespaceEvent {
        change: NamespaceChange::Attached.into(),
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        uuid: tokens().uuid,
        bytes: 1 << 30,
    };
    let connected = HostEvent {
        change: HostChange::Connected.into(),
        subsystem_nqn: DATA.to_owned(),
        host_nqn: TRAINER1.to_owned(),
    };
    let announcement = Announcement {
        host_nqn: TRAINER1.to_owned(),
        epoch: 2,
        position: 81_920,
        payload: b"ready".to_vec(),
    };
    let health = HealthEvent {
        state: HealthState::Degraded.into(),
        problem: Some(problem()),
        ended: false,
    };
    let kept = [
        event(
            101,
            Topic::Namespace,
            &format!("attached /srv/tokens.xio as nsid 1 of {DATA}"),
            event::Kind::Namespace(attached),
        ),
        event(
            102,
            Topic::Host,
            &format!("{TRAINER1} connected to {DATA}"),
            event::Kind::Host(connected),
        ),
        event(
            103,
            Topic::Health,
            &format!("degraded: {}: {}", problem().subject, problem().what),
            event::Kind::Health(health),
        ),
        event(
            104,
            Topic::Announcement,
            &format!("{TRAINER1} is at epoch 2 position 81920"),
            event::Kind::Announcement(announcement),
        ),
    ];
    let mut messages = vec![started];
    if request.from_sequence == 0 {
        return messages;
    }
    if request.from_sequence < 101 {
        messages.push(gap);
    }
    let told = |message: &SubscribeResponse| match &message.message {
        Some(Message::Event(event)) => event.sequence >= request.from_sequence,
        _ => true,
    };
    messages.extend(kept.into_iter().filter(told));
    messages
}
