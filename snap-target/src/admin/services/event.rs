//! EventService.

use std::time::{Duration, Instant};

use admin_proto::limits::{
    ANNOUNCEMENTS_PER_SECOND_MAX, CHECKPOINT_SECONDS, PAYLOAD_BYTES_MAX, READER_BYTES_MAX,
};
use admin_proto::v1::event_service_server::EventService;
use admin_proto::v1::subscribe_response::Message;
use admin_proto::v1::{self, Reason};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::super::caller::{Caller, Role};
use super::super::paging::Page;
use super::super::{Context, convert};
use super::{Answer, caller, of};
use crate::events::{Entry, Hub, Range};
use crate::limits::{ADMIN_STREAM_MESSAGES, EVENTS_PER_READ};
use crate::manage::ManageError;

/// After so much silence a stream has a checkpoint.
const CHECKPOINT: Duration = Duration::from_secs(CHECKPOINT_SECONDS);

type Told = Result<v1::SubscribeResponse, Status>;

/// The client is gone.
struct ClientGone;

/// One subscriber's way through the events and the announcements.
struct Subscriber {
    events: Hub,
    /// All where it is empty.
    topics: Vec<i32>,
    /// The next number to read.
    next: u64,
    /// What no longer is there now was not kept, what goes from now on was lost by being slow.
    reason: v1::GapReason,
    /// The same of announcements.
    next_announcement: u64,
    announcement_reason: v1::GapReason,
    /// When something was told last.
    told: tokio::time::Instant,
    out: mpsc::Sender<Told>,
}

impl Subscriber {
    /// Tells what comes until the client is gone.
    async fn run(mut self) -> Result<(), ClientGone> {
        let mut more = self.events.watch();
        loop {
            more.mark_unchanged();
            let is_behind = self.tell_events().await? | self.tell_announcements().await?;
            if self.told.elapsed() >= CHECKPOINT {
                self.tell(Message::Checkpoint(v1::Checkpoint {
                    next_sequence: self.next,
                    next_announcement: self.next_announcement,
                }))
                .await?;
            }
            if !is_behind {
                tokio::select! {
                    changed = more.changed() => changed.map_err(|_| ClientGone)?,
                    () = tokio::time::sleep_until(self.told + CHECKPOINT) => {}
                    () = self.out.closed() => return Err(ClientGone),
                }
            }
        }
    }

    /// Tells some events. Whether there may be more.
    async fn tell_events(&mut self) -> Result<bool, ClientGone> {
        let batch = self.events.read(self.next, EVENTS_PER_READ);
        if let Some((first, last)) = batch.gap {
            self.tell_gap(first, last, self.reason, false).await?;
        }
        self.reason = v1::GapReason::TooSlow;
        for (sequence, entry) in (batch.first..).zip(&batch.items) {
            match &**entry {
                Entry::NotNoted => {
                    let reason = v1::GapReason::NotNoted;
                    self.tell_gap(sequence, sequence, reason, false).await?;
                }
                Entry::Event(event) if self.wants(event.topic) => {
                    self.tell(Message::Event(event.clone())).await?;
                }
                Entry::Event(_) => {}
            }
            self.next = sequence + 1;
        }
        self.next = batch.next;
        Ok(!batch.items.is_empty())
    }

    /// The same of announcements.
    async fn tell_announcements(&mut self) -> Result<bool, ClientGone> {
        let batch = self
            .events
            .read_announcements(self.next_announcement, EVENTS_PER_READ);
        if self.wants(v1::Topic::Announcement.into()) {
            if let Some((first, last)) = batch.gap {
                let reason = self.announcement_reason;
                self.tell_gap(first, last, reason, true).await?;
            }
            for announcement in &batch.items {
                let announcement = v1::Announcement::clone(announcement);
                self.next_announcement = announcement.sequence;
                self.tell(Message::Announcement(announcement)).await?;
            }
        }
        self.announcement_reason = v1::GapReason::TooSlow;
        self.next_announcement = batch.next;
        Ok(!batch.items.is_empty())
    }

    fn wants(&self, topic: i32) -> bool {
        self.topics.is_empty() || self.topics.contains(&topic)
    }

    async fn tell_gap(
        &mut self,
        first_sequence: u64,
        last_sequence: u64,
        reason: v1::GapReason,
        announcements: bool,
    ) -> Result<(), ClientGone> {
        self.tell(Message::Gap(v1::Gap {
            first_sequence,
            last_sequence,
            reason: reason.into(),
            announcements,
        }))
        .await
    }

    /// Waits for a client that does not take what it gets: the events go on without it.
    async fn tell(&mut self, message: Message) -> Result<(), ClientGone> {
        let message = v1::SubscribeResponse {
            message: Some(message),
        };
        self.told = tokio::time::Instant::now();
        self.out.send(Ok(message)).await.map_err(|_| ClientGone)
    }
}

/// Where a subscriber begins among numbers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin {
    next: u64,
    /// The number that was asked for is of another start of the daemon.
    restarted: bool,
}

impl Begin {
    /// `from` is what was asked for (0: only what comes) of this instance or of another, `kept` the oldest number and the next one.
    fn at(from: u64, is_this_instance: bool, kept: (u64, u64)) -> Self {
        let (oldest, next) = kept;
        match from {
            0 => Self {
                next,
                restarted: false,
            },
            _ if !is_this_instance => Self {
                next: oldest.max(1),
                restarted: true,
            },
            from => Self {
                next: from.min(next),
                restarted: from > next,
            },
        }
    }
}

/// A subscriber before its first message.
struct Subscription {
    subscriber: Subscriber,
    range: Range,
    events: Begin,
    announcements: Begin,
}

impl Subscription {
    /// As a request asks for it; `out` is where it tells.
    fn of(events: &Hub, asked: v1::SubscribeRequest, out: mpsc::Sender<Told>) -> Self {
        let range = events.range();
        let same = asked.instance == events.instance();
        let at_event = Begin::at(asked.from_sequence, same, range.events);
        let at_announcement = Begin::at(asked.from_announcement, same, range.announcements);
        let subscriber = Subscriber {
            events: events.clone(),
            topics: asked.topics,
            next: at_event.next,
            reason: v1::GapReason::NotKept,
            next_announcement: at_announcement.next,
            announcement_reason: v1::GapReason::NotKept,
            told: tokio::time::Instant::now(),
            out,
        };
        Self {
            subscriber,
            range,
            events: at_event,
            announcements: at_announcement,
        }
    }

    async fn run(self) -> Result<(), ClientGone> {
        let Self {
            mut subscriber,
            range,
            ..
        } = self;
        let started = v1::Started {
            instance: subscriber.events.instance().to_owned(),
            oldest_sequence: range.events.0,
            next_sequence: range.events.1,
            oldest_announcement: range.announcements.0,
            next_announcement: range.announcements.1,
        };
        subscriber.tell(Message::Started(started)).await?;
        let restarted = v1::GapReason::Restarted;
        if self.events.restarted {
            subscriber.tell_gap(0, 0, restarted, false).await?;
        }
        if self.announcements.restarted {
            subscriber.tell_gap(0, 0, restarted, true).await?;
        }
        subscriber.run().await
    }
}

#[tonic::async_trait]
impl EventService for Context {
    type SubscribeStream = ReceiverStream<Told>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Answer<Self::SubscribeStream> {
        let place = self.stream_place(&request)?;
        let asked = of(request);
        for topic in &asked.topics {
            if !v1::Topic::try_from(*topic).is_ok_and(|topic| topic != v1::Topic::Unspecified) {
                return Err(convert::invalid("topics", format!("{topic} is no topic")).into());
            }
        }
        if asked.instance.is_empty() && (asked.from_sequence > 0 || asked.from_announcement > 0) {
            let what_to_do = "a number is of one start of the daemon: name the instance too";
            return Err(convert::not_set("instance", what_to_do).into());
        }
        let (out, stream) = mpsc::channel(ADMIN_STREAM_MESSAGES);
        let subscription = Subscription::of(&self.events, asked, out);
        tokio::spawn(async move {
            let _place = place;
            let _gone = subscription.run().await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn publish(&self, request: Request<v1::PublishRequest>) -> Answer<v1::PublishResponse> {
        let by = caller(&request, Role::Announce)?;
        let announcement = announcement(of(request), &by)?;
        match self.events.announce(announcement, Instant::now()) {
            Some(sequence) => Ok(Response::new(v1::PublishResponse { sequence })),
            None => {
                let text = format!(
                    "more than {ANNOUNCEMENTS_PER_SECOND_MAX} announcements a second, all hosts together; announce less often"
                );
                Err(ManageError::new(Reason::Rate, text).into())
            }
        }
    }

    async fn list_announcements(
        &self,
        request: Request<v1::ListAnnouncementsRequest>,
    ) -> Answer<v1::ListAnnouncementsResponse> {
        let asked = of(request);
        let host = convert::optional_nqn("host_nqn", &asked.host_nqn)?;
        let page = Page::of("announcements", asked.page_size, &asked.page_token)?;
        let as_of = self.events.as_of();
        let (all, next_announcement) = self.events.readers();
        let asked = all.iter().filter(|it| {
            host.as_ref()
                .is_none_or(|host| host.as_str() == it.host_nqn)
        });
        let (announcements, next_page_token) = page.take(asked.map(|it| {
            let key = (it.host_nqn.clone(), it.reader.clone());
            (key, v1::Announcement::clone(it))
        }));
        Ok(Response::new(v1::ListAnnouncementsResponse {
            announcements,
            next_announcement,
            next_page_token,
            as_of: Some(as_of),
        }))
    }
}

/// What is told, without its number and time.
fn announcement(asked: v1::PublishRequest, by: &Caller) -> Result<v1::Announcement, ManageError> {
    let host = convert::nqn("host_nqn", &asked.host_nqn)?;
    convert::optional_nqn("subsystem_nqn", &asked.subsystem_nqn)?;
    let within = |field: &str, bytes: usize, max: usize| {
        if bytes <= max {
            return Ok(());
        }
        let why = format!("{bytes} bytes; it has at most {max}");
        Err(convert::invalid(field, why))
    };
    within("reader", asked.reader.len(), READER_BYTES_MAX)?;
    within("payload", asked.payload.len(), PAYLOAD_BYTES_MAX)?;
    if asked.reader.contains('\0') {
        return Err(convert::invalid("reader", "it has a zero byte"));
    }
    Ok(v1::Announcement {
        verified: by.is_proven(host.as_str()),
        host_nqn: host.to_string(),
        reader: asked.reader,
        subsystem_nqn: asked.subsystem_nqn,
        nsid: asked.nsid,
        epoch: asked.epoch,
        position: asked.position,
        length: asked.length,
        payload: asked.payload,
        ..v1::Announcement::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: &str = "this one";

    /// What a subscriber is told first, on a clock that runs as soon as nobody has anything to do.
    fn told(hub: &Hub, asked: v1::SubscribeRequest, messages: usize) -> Vec<Message> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (out, mut stream) = mpsc::channel(1);
            let subscription = Subscription::of(hub, asked, out);
            tokio::spawn(async move {
                let _gone = subscription.run().await;
            });
            let mut all = Vec::new();
            for _ in 0..messages {
                all.push(stream.recv().await.unwrap().unwrap().message.unwrap());
            }
            all
        })
    }

    fn hub() -> Hub {
        let hub = Hub::new(INSTANCE.to_owned());
        for _ in 0..3 {
            let event = v1::event::Kind::Host(v1::HostEvent::default());
            hub.publish(event, String::new());
        }
        hub
    }

    fn from(sequence: u64, instance: &str) -> v1::SubscribeRequest {
        v1::SubscribeRequest {
            from_sequence: sequence,
            instance: instance.to_owned(),
            ..v1::SubscribeRequest::default()
        }
    }

    /// In short: what is told, with its number.
    fn short(messages: &[Message]) -> Vec<(&'static str, u64)> {
        let one = |message: &Message| match message {
            Message::Started(it) => ("started", it.next_sequence),
            Message::Event(it) => ("event", it.sequence),
            Message::Gap(it) => (it.reason().as_str_name(), it.first_sequence),
            Message::Checkpoint(it) => ("checkpoint", it.next_sequence),
            Message::Announcement(it) => ("announcement", it.sequence),
        };
        messages.iter().map(one).collect()
    }

    #[test]
    fn a_silent_stream_has_checkpoints_to_come_back_to() {
        let hub = hub();
        let asked = v1::SubscribeRequest {
            topics: vec![v1::Topic::Health.into()],
            ..from(1, INSTANCE)
        };
        // Three events of another topic are behind it.
        assert_eq!(
            short(&told(&hub, asked, 3)),
            [("started", 4), ("checkpoint", 4), ("checkpoint", 4)]
        );
    }

    #[test]
    fn what_was_not_noted_is_a_gap_in_its_place() {
        let hub = hub();
        hub.not_noted();
        hub.publish(
            v1::event::Kind::Health(v1::HealthEvent::default()),
            String::new(),
        );
        assert_eq!(
            short(&told(&hub, from(3, INSTANCE), 5)),
            [
                ("started", 6),
                ("event", 3),
                ("GAP_REASON_NOT_NOTED", 4),
                ("event", 5),
                ("checkpoint", 6)
            ]
        );
    }

    #[test]
    fn numbers_of_another_start_are_a_gap() {
        let hub = hub();
        assert_eq!(
            short(&told(&hub, from(2, "another"), 5)),
            [
                ("started", 4),
                ("GAP_REASON_RESTARTED", 0),
                ("event", 1),
                ("event", 2),
                ("event", 3)
            ]
        );
        // A number that this one never had: what comes is told.
        assert_eq!(
            short(&told(&hub, from(5, INSTANCE), 3)),
            [
                ("started", 4),
                ("GAP_REASON_RESTARTED", 0),
                ("checkpoint", 4)
            ]
        );
        // The next one is no gap.
        assert_eq!(
            short(&told(&hub, from(4, INSTANCE), 2)),
            [("started", 4), ("checkpoint", 4)]
        );
    }

    #[test]
    fn announcements_go_on_by_their_own_numbers() {
        let hub = hub();
        let mut now = Instant::now();
        let kept = admin_proto::limits::ANNOUNCEMENTS_KEPT as u64;
        for _ in 0..kept + 2 {
            now += Duration::from_secs(1);
            hub.announce(v1::Announcement::default(), now).unwrap();
        }
        let asked = v1::SubscribeRequest {
            topics: vec![v1::Topic::Announcement.into()],
            instance: INSTANCE.to_owned(),
            from_announcement: 2,
            ..v1::SubscribeRequest::default()
        };
        let messages = told(&hub, asked, 3);
        let Message::Gap(gap) = &messages[1] else {
            panic!("{messages:?}")
        };
        assert_eq!((gap.first_sequence, gap.last_sequence), (2, 2));
        assert!(gap.announcements);
        assert_eq!(gap.reason(), v1::GapReason::NotKept);
        assert_eq!(short(&messages[2..]), [("announcement", 3)]);
    }
}
