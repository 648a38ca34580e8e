//! Events.

use admin_proto::v1::subscribe_response::Message;
use admin_proto::v1::*;

use super::objects::tokens;
use super::target::problem;
use super::{DATA, Start, TRAINER1, at, page};

pub fn publish(_: &Start, _: PublishRequest) -> PublishResponse {
    PublishResponse { sequence: 4 }
}

fn announcements() -> Vec<Announcement> {
    let of = |sequence, reader: &str, position| Announcement {
        sequence,
        at: at(100 + i64::try_from(sequence).unwrap()),
        host_nqn: TRAINER1.to_owned(),
        reader: reader.to_owned(),
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        epoch: Some(2),
        position: Some(position),
        length: Some(4096),
        payload: b"ready".to_vec(),
        verified: true,
    };
    let terse = Announcement {
        subsystem_nqn: String::new(),
        nsid: 0,
        position: None,
        length: None,
        payload: Vec::new(),
        verified: false,
        ..of(3, "", 0)
    };
    vec![of(2, "rank0", 81_920), terse]
}

pub fn list_announcements(
    start: &Start,
    request: ListAnnouncementsRequest,
) -> ListAnnouncementsResponse {
    let mut latest = announcements();
    latest.sort_by(|a, b| a.reader.cmp(&b.reader));
    let (announcements, next_page_token) = page(latest, request.page_size, &request.page_token);
    ListAnnouncementsResponse {
        announcements,
        next_announcement: 4,
        next_page_token,
        as_of: start.as_of(105),
    }
}

fn told(message: Message) -> SubscribeResponse {
    SubscribeResponse {
        message: Some(message),
    }
}

fn event(sequence: u64, topic: Topic, actor: &str, text: &str, kind: event::Kind) -> Message {
    Message::Event(Event {
        sequence,
        at: at(i64::try_from(sequence).unwrap()),
        topic: topic.into(),
        text: text.to_owned(),
        actor: actor.to_owned(),
        kind: Some(kind),
    })
}

fn events() -> Vec<Message> {
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
    let health = HealthEvent {
        state: HealthState::Degraded.into(),
        problem: Some(problem()),
        ended: false,
    };
    // A host calls itself as it likes.
    let stranger = "nqn.2026-11.org.example:it's $(me)";
    let refused = HostRefusedEvent {
        subsystem_nqn: DATA.to_owned(),
        host_nqn: stranger.to_owned(),
        peer_address: "192.0.2.23:40112".to_owned(),
        reason: RefusedReason::NotAllowed.into(),
        times: 3,
    };
    vec![
        event(
            101,
            Topic::Namespace,
            "uid 0 pid 4712",
            &format!("attached /srv/tokens.xio as nsid 1 of {DATA}"),
            event::Kind::Namespace(attached),
        ),
        event(
            102,
            Topic::Host,
            "",
            &format!("{TRAINER1} connected to {DATA}"),
            event::Kind::Host(connected),
        ),
        event(
            103,
            Topic::Health,
            "",
            &format!("degraded: {}: {}", problem().id, problem().text),
            event::Kind::Health(health),
        ),
        event(
            104,
            Topic::Host,
            "",
            &format!(
                "{stranger} at 192.0.2.23:40112 may not connect to {DATA}: it is not on the list (3 times)"
            ),
            event::Kind::HostRefused(refused),
        ),
    ]
}

/// Events 101 to 104 are kept, and announcements 2 and 3; topics are left to who asks.
pub fn subscribe(start: &Start, request: SubscribeRequest) -> Vec<SubscribeResponse> {
    let gap = |first_sequence, last_sequence, reason: GapReason, announcements| {
        Message::Gap(Gap {
            first_sequence,
            last_sequence,
            reason: reason.into(),
            announcements,
        })
    };
    let mut messages = vec![Message::Started(Started {
        instance: start.instance.to_owned(),
        oldest_sequence: 101,
        next_sequence: 105,
        oldest_announcement: 2,
        next_announcement: 4,
    })];
    let (mut from, mut from_announcement) = (request.from_sequence, request.from_announcement);
    if from > 0 && request.instance != start.instance {
        messages.push(gap(0, 0, GapReason::Restarted, false));
        (from, from_announcement) = (1, from_announcement.min(1));
    }
    // Never given by this start: only what comes.
    if from > 105 {
        messages.push(gap(0, 0, GapReason::Restarted, false));
    }
    if (1..101).contains(&from) {
        messages.push(gap(from, 100, GapReason::NotKept, false));
    }
    if (1..2).contains(&from_announcement) {
        messages.push(gap(1, 1, GapReason::NotKept, true));
    }
    messages.extend(events().into_iter().filter(
        |message| matches!(message, Message::Event(event) if from > 0 && event.sequence >= from),
    ));
    let heard = announcements().into_iter();
    messages.extend(
        heard
            .filter(|one| from_announcement > 0 && one.sequence >= from_announcement)
            .map(Message::Announcement),
    );
    messages.into_iter().map(told).collect()
}
