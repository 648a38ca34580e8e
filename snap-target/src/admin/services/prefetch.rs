//! NamespaceService.Prefetch: an order of what will be read, and how far it came.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use admin_proto::limits::{PREFETCH_EPOCH_BYTES_MAX, PREFETCH_RANGES_MAX};
use admin_proto::v1;
use admin_proto::v1::Reason;
use admin_proto::v1::prefetch_request::What;
use namespace::{Namespace, Order, OrderEnd};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::super::{Context, convert};
use super::{Answer, changer};
use crate::limits::ADMIN_STREAM_MESSAGES;
use crate::manage::{ManageError, NamespaceLive};

/// How often whoever gave the order hears how far it came.
const TELL_INTERVAL: Duration = Duration::from_millis(250);

/// What is told.
pub type Progress = ReceiverStream<Result<v1::PrefetchResponse, Status>>;

impl Context {
    /// See the contract.
    pub(super) async fn prefetch_for(
        &self,
        request: Request<Streaming<v1::PrefetchRequest>>,
    ) -> Answer<Progress> {
        let _by = changer(&request)?;
        let place = self.stream_place(&request)?;
        let mut ranges = request.into_inner();
        let first = ranges.message().await?.and_then(|first| first.what);
        let Some(What::Begin(begin)) = first else {
            let why = "the first message begins the order: which namespace, and what may be kept";
            return Err(convert::not_set("begin", why).into());
        };
        let namespace = self.to_be_prefetched(&begin).await?;
        if begin.epoch_id.len() > PREFETCH_EPOCH_BYTES_MAX {
            let why = format!("it has more than {PREFETCH_EPOCH_BYTES_MAX} bytes");
            return Err(convert::invalid("epoch_id", why).into());
        }
        if begin.quota_bytes == 0 {
            let why = "how many bytes may be fetched that nobody has read; for example 33554432";
            return Err(convert::not_set("quota_bytes", why).into());
        }
        let (out, told) = mpsc::channel(ADMIN_STREAM_MESSAGES);
        let ordering = Ordering {
            order: namespace
                .ahead
                .begin_order(begin.quota_bytes)
                .map_err(ended)?,
            epoch_id: begin.epoch_id,
            end: namespace.bytes(),
            given: 0,
            waiting: Vec::new(),
        };
        tokio::spawn(async move {
            let _place = place;
            ordering.run(ranges, out).await;
        });
        Ok(Response::new(ReceiverStream::new(told)))
    }

    async fn to_be_prefetched(&self, begin: &v1::PrefetchBegin) -> Result<Arc<Namespace>, Status> {
        let nqn = convert::nqn("subsystem_nqn", &begin.subsystem_nqn)?;
        let nsid = convert::nsid(begin.nsid)?;
        let uuid = convert::expected_uuid(&begin.expected_uuid)?;
        let found = self.manage.call(move |manager| {
            manager.expect(&nqn, nsid, uuid)?;
            match manager.live_namespace(&nqn, nsid) {
                Some(NamespaceLive::Served(namespace)) => Ok(namespace.clone()),
                _ => Err(ManageError::new(
                    Reason::NotServed,
                    format!("namespace {nsid} of {nqn} is not served now"),
                )),
            }
        });
        let namespace = found.await?;
        if !namespace.never_changes() {
            let text = "it may change while it is served: volumes are fetched ahead, and raw stores that are read-only and immutable by the configuration".to_owned();
            return Err(ManageError::new(Reason::NotServed, text).into());
        }
        if !namespace.ahead.is_driven() {
            let text = "nothing is fetched ahead here: start snap-target with --prefetch 32MiB, or prefetch = \"32MiB\" in [target]".to_owned();
            return Err(ManageError::new(Reason::NotServed, text).into());
        }
        Ok(namespace)
    }
}

/// An order that is being given.
struct Ordering {
    order: Arc<Order>,
    epoch_id: String,
    /// Where the namespace ends.
    end: u64,
    /// Ranges that have come.
    given: u64,
    /// Those of them for which there was no room yet.
    waiting: Vec<Range<u64>>,
}

impl Ordering {
    async fn run(
        mut self,
        mut ranges: Streaming<v1::PrefetchRequest>,
        out: Sender<Result<v1::PrefetchResponse, Status>>,
    ) {
        let mut tick = tokio::time::interval(TELL_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_open = true;
        loop {
            let told = tokio::select! {
                message = ranges.message(), if is_open && self.waiting.is_empty() => match message {
                    Ok(Some(message)) => self.take(message).map(|()| None),
                    // Nothing would be through at once.
                    Ok(None) if self.given == 0 => {
                        let why = "the order has none: name what will be read";
                        Err(convert::not_set("ranges", why).into())
                    }
                    Ok(None) => {
                        is_open = false;
                        continue;
                    }
                    // Whoever gave it is gone.
                    Err(_) => break,
                },
                _ = tick.tick() => self.tell(is_open).map(Some),
                () = out.closed() => break,
            };
            let (message, is_last) = match told {
                Ok(None) => continue,
                Ok(Some(progress)) => {
                    let is_last = progress.complete;
                    (Ok(progress), is_last)
                }
                Err(status) => (Err(status), true),
            };
            if out.send(message).await.is_err() || is_last {
                break;
            }
        }
        self.order.cancel();
    }

    /// Takes ranges, each within the namespace.
    fn take(&mut self, message: v1::PrefetchRequest) -> Result<(), Status> {
        let Some(What::Ranges(v1::PrefetchRanges { ranges })) = message.what else {
            let why = "an order begins once; every later message has ranges";
            return Err(convert::invalid("begin", why.to_owned()).into());
        };
        if ranges.len() > PREFETCH_RANGES_MAX {
            let why = format!("a message has at most {PREFETCH_RANGES_MAX} of them");
            return Err(convert::invalid("ranges", why).into());
        }
        for v1::PrefetchRange { offset, bytes } in ranges {
            let end = offset.checked_add(bytes).filter(|end| *end <= self.end);
            let Some(end) = end.filter(|_| bytes > 0) else {
                let why = format!(
                    "range {} of the order, counted from 1, is {bytes} bytes at {offset}: it is empty, or does not lie within the namespace's {} bytes",
                    self.given + 1,
                    self.end
                );
                return Err(convert::invalid("ranges", why).into());
            };
            self.waiting.push(offset..end);
            self.given += 1;
        }
        self.give()
    }

    fn give(&mut self) -> Result<(), Status> {
        let given = self.order.give(&self.waiting).map_err(ended)?;
        self.waiting.drain(..given);
        Ok(())
    }

    fn tell(&mut self, is_open: bool) -> Result<v1::PrefetchResponse, Status> {
        self.give()?;
        let progress = self.order.progress().map_err(ended)?;
        let is_given = !is_open && self.waiting.is_empty();
        Ok(v1::PrefetchResponse {
            epoch_id: self.epoch_id.clone(),
            given_ranges: progress.given_ranges,
            given_bytes: progress.given_bytes,
            begun_bytes: progress.begun_bytes,
            fetched_bytes: progress.fetched_bytes,
            ahead_bytes: progress.frames.unread_bytes,
            hits: progress.frames.hits,
            late: progress.frames.late,
            wasted: progress.frames.wasted,
            complete: is_given && progress.fetched_bytes >= progress.given_bytes,
        })
    }
}

/// What whoever gave an order is told that ended.
fn ended(why: OrderEnd) -> Status {
    match why {
        OrderEnd::Replaced | OrderEnd::Cancelled => Status::aborted(why.to_string()),
        OrderEnd::Detached => ManageError::new(Reason::NotServed, why.to_string()).into(),
    }
}
