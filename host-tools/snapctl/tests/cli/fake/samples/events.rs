//! Events.

use admin_proto::v1::subscribe_response::Message;
use admin_proto::v1::*;

use super::objects::tokens;
use super::target::problem;
use super::{DATA, TRAINER1, as_of, at};

pub fn publish(_: PublishRequest) -> PublishResponse {
    PublishResponse { sequence: 8 }
}

fn event(sequence: u64, topic: Topic, text: &str, kind: event::Kind) -> SubscribeResponse {
    SubscribeResponse {
        message: Some(Message::Event(Event {
            sequence,
            at: at(i64::try_from(sequence).unwrap()),
            topic: topic.into(),
            text: text.to_owned(),
            kind: Some(kind),
            actor: String::new(),
        })),
    }
}

/// Events 101 to 103 and announcement 7 are kept; topics are left to who asks.
pub fn subscribe(request: SubscribeRequest) -> Vec<SubscribeResponse> {
    let started = SubscribeResponse {
        message: Some(Message::Started(Started {
            instance: "6f9619ff8b86d011b42d00cf4fc964ff".to_owned(),
            oldest_sequence: 101,
            next_sequence: 104,
            oldest_announcement: 7,
            next_announcement: 8,
        })),
    };
    let gap = SubscribeResponse {
        message: Some(Message::Gap(Gap {
            first_sequence: request.from_sequence,
            last_sequence: 100,
            reason: GapReason::NotKept.into(),
            announcements: false,
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
        sequence: 7,
        at: at(104),
        host_nqn: TRAINER1.to_owned(),
        epoch: Some(2),
        position: Some(81_920),
        payload: b"ready".to_vec(),
        ..Announcement::default()
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
            &format!("degraded: {}: {}", problem().id, problem().text),
            event::Kind::Health(health),
        ),
    ];
    let mut messages = vec![started];
    let announced = SubscribeResponse {
        message: Some(Message::Announcement(announcement)),
    };
    if request.from_announcement > 0 {
        messages.push(announced);
    }
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

pub fn list_announcements(_: ListAnnouncementsRequest) -> ListAnnouncementsResponse {
    ListAnnouncementsResponse {
        next_announcement: 8,
        as_of: as_of(100),
        ..ListAnnouncementsResponse::default()
    }
}
