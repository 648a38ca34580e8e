//! EventService.

use std::time::Instant;

use admin_proto::limits::{ANNOUNCEMENTS_PER_SECOND_MAX, PAYLOAD_BYTES_MAX};
use admin_proto::v1;
use admin_proto::v1::event_service_server::EventService;
use admin_proto::v1::subscribe_response::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::super::{Context, convert};
use super::{Answer, of};
use crate::events::Hub;
use crate::limits::{ADMIN_STREAM_MESSAGES, EVENTS_PER_READ};

type Told = Result<v1::SubscribeResponse, Status>;

/// One subscriber's way through the events.
struct Subscriber {
    events: Hub,
    /// All where it is empty.
    topics: Vec<i32>,
    /// The next number to read.
    next: u64,
    /// What no longer is there now was not kept, what goes from now on was lost by being slow.
    reason: v1::GapReason,
    out: mpsc::Sender<Told>,
}

impl Subscriber {
    /// Tells what comes until the client is gone.
    async fn run(mut self) {
        let mut more = self.events.watch();
        loop {
            more.mark_unchanged();
            let batch = self.events.read(self.next, EVENTS_PER_READ);
            if let Some((first_sequence, last_sequence)) = batch.gap
                && !self
                    .tell_gap(first_sequence, last_sequence, self.reason)
                    .await
            {
                return;
            }
            self.reason = v1::GapReason::TooSlow;
            for event in &batch.events {
                let wanted = self.topics.is_empty() || self.topics.contains(&event.topic);
                if wanted && !self.tell(Message::Event(v1::Event::clone(event))).await {
                    return;
                }
            }
            let is_behind = !batch.events.is_empty();
            self.next = batch.next;
            if !is_behind {
                tokio::select! {
                    changed = more.changed() => if changed.is_err() { return },
                    () = self.out.closed() => return,
                }
            }
        }
    }

    async fn tell_gap(
        &self,
        first_sequence: u64,
        last_sequence: u64,
        reason: v1::GapReason,
    ) -> bool {
        self.tell(Message::Gap(v1::Gap {
            first_sequence,
            last_sequence,
            reason: reason.into(),
        }))
        .await
    }

    /// False where the client is gone. Waits for a client that does not take what it gets: the events go on without it.
    async fn tell(&self, message: Message) -> bool {
        let message = v1::SubscribeResponse {
            message: Some(message),
        };
        self.out.send(Ok(message)).await.is_ok()
    }
}

#[tonic::async_trait]
impl EventService for Context {
    type SubscribeStream = ReceiverStream<Told>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Answer<Self::SubscribeStream> {
        let asked = of(request);
        for topic in &asked.topics {
            if !v1::Topic::try_from(*topic).is_ok_and(|topic| topic != v1::Topic::Unspecified) {
                return Err(convert::invalid("topics", format!("{topic} is no topic")).into());
            }
        }
        let place = self.stream_place()?;
        let (out, stream) = mpsc::channel(ADMIN_STREAM_MESSAGES);
        let (oldest_sequence, next_sequence) = self.events.range();
        let restarted = !asked.instance.is_empty() && asked.instance != self.info.instance;
        let subscriber = Subscriber {
            events: self.events.clone(),
            topics: asked.topics,
            next: match (restarted, asked.from_sequence) {
                (true, from) if from > 0 => oldest_sequence.max(1),
                (_, 0) => next_sequence,
                (_, from) => from.min(next_sequence),
            },
            reason: v1::GapReason::NotKept,
            out,
        };
        let started = v1::Started {
            instance: self.info.instance.clone(),
            oldest_sequence,
            next_sequence,
        };
        tokio::spawn(async move {
            let _place = place;
            if !subscriber.tell(Message::Started(started)).await {
                return;
            }
            if restarted && !subscriber.tell_gap(0, 0, v1::GapReason::Restarted).await {
                return;
            }
            subscriber.run().await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn publish(&self, request: Request<v1::PublishRequest>) -> Answer<v1::PublishResponse> {
        let asked = of(request);
        let host = convert::nqn("host_nqn", &asked.host_nqn)?;
        if asked.payload.len() > PAYLOAD_BYTES_MAX {
            let why = format!(
                "{} bytes; it has at most {PAYLOAD_BYTES_MAX}",
                asked.payload.len()
            );
            return Err(convert::invalid("payload", why).into());
        }
        let announcement = v1::Announcement {
            host_nqn: host.to_string(),
            epoch: asked.epoch,
            position: asked.position,
            payload: asked.payload,
        };
        match self.events.announce(announcement, Instant::now()) {
            Some(sequence) => Ok(Response::new(v1::PublishResponse { sequence })),
            None => Err(Status::resource_exhausted(format!(
                "more than {ANNOUNCEMENTS_PER_SECOND_MAX} announcements a second, all hosts together; announce less often"
            ))),
        }
    }
}
