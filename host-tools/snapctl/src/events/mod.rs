//! `snapctl events`.

mod cursor;
mod line;

use std::time::Duration;

use admin_proto::limits::CHECKPOINT_SECONDS;
use admin_proto::v1;
use admin_proto::v1::subscribe_response::Message;
use clap::{Args, ValueEnum};
use printout::stdout::Reader;
use tokio::signal::unix::{self, SignalKind};
use tonic::{Code, Streaming};

use crate::connection::Daemon;
use crate::context::Context;
use crate::failure::Failure;
use crate::json;
use cursor::Cursor;

/// A stream that has been silent for so long is dead: a daemon says something more often.
const SILENCE: Duration = Duration::from_secs(3 * CHECKPOINT_SECONDS);
/// Before a daemon that is gone is asked for again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

const HELP: &str = "\
The daemon keeps a bounded number of events; what is lost is told as lost. Announcements have numbers of their own. --show-cursor prints, at the end, what
--since takes to go on from there, also when the daemon was restarted meanwhile. The as_of of an answer makes such a cursor too, INSTANCE:SEQUENCE: what
happened since that answer. --follow waits for a daemon that is gone, and goes on.

Examples:
  snapctl events
  snapctl events --topic namespace --topic host --follow
  snapctl events --show-cursor
  snapctl events --since 6f9619ff8b86d011b42d00cf4fc964ff:104:3 --follow \\
      --json";

/// `snapctl events`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Events {
    /// Only about this; may be given again for more
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<Topic>,

    /// What happened behind this; otherwise all that is kept, or with --follow only what is to come
    #[arg(long, value_name = "CURSOR")]
    pub since: Option<Cursor>,

    /// Print the cursor of the last that was told, at the end
    #[arg(long)]
    pub show_cursor: bool,

    /// Go on as more happens, until it is interrupted
    #[arg(long)]
    pub follow: bool,
}

/// What events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// Subsystems come and go
    Subsystem,
    /// Namespaces come, go, change and fail
    Namespace,
    /// Hosts are allowed, denied, refused, come and go
    Host,
    /// Controllers and their queues
    Controller,
    /// Listeners and referrals
    Listener,
    /// Functions
    Function,
    /// The daemon's health
    Health,
    /// Long operations
    Progress,
    /// What hosts publish
    Announcement,
}

impl Topic {
    fn number(self) -> i32 {
        match self {
            Self::Subsystem => v1::Topic::Subsystem,
            Self::Namespace => v1::Topic::Namespace,
            Self::Host => v1::Topic::Host,
            Self::Controller => v1::Topic::Controller,
            Self::Listener => v1::Topic::Listener,
            Self::Function => v1::Topic::Function,
            Self::Health => v1::Topic::Health,
            Self::Progress => v1::Topic::Progress,
            Self::Announcement => v1::Topic::Announcement,
        }
        .into()
    }
}

/// Runs it.
pub async fn run(arguments: Events, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let cursor = match (&arguments.since, arguments.follow) {
        (Some(cursor), _) => Some(cursor.clone()),
        // Only what is to come.
        (None, true) => None,
        (None, false) => Some(Cursor::at_the_start(daemon.info().await?.instance)),
    };
    let mut teller = Teller {
        topics: arguments
            .topics
            .iter()
            .map(|topic| topic.number())
            .collect(),
        shows_gaps: context.json() || arguments.follow || arguments.since.is_some(),
        cursor,
        context,
    };
    if arguments.follow {
        let interrupted = interrupted(arguments.show_cursor);
        tokio::select! {
            ended = teller.follow(daemon) => ended?,
            _ = interrupted => {}
        }
    } else {
        teller.tell_kept(&daemon).await?;
    }
    if arguments.show_cursor {
        teller.show_cursor()?;
    }
    Ok(())
}

/// Comes back when this program is asked to end; never where nobody wants to know, and then it ends at once.
async fn interrupted(wanted: bool) {
    // A handler that is set takes the signal away from its default for good.
    if wanted
        && let Ok(mut interrupt) = unix::signal(SignalKind::interrupt())
        && let Ok(mut terminate) = unix::signal(SignalKind::terminate())
    {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    std::future::pending().await
}

/// Prints what comes, and knows how far it is.
struct Teller<'a> {
    topics: Vec<i32>,
    /// That older events are gone is no news to whoever asked for what is left.
    shows_gaps: bool,
    /// None until the first subscription of somebody who wants only what comes.
    cursor: Option<Cursor>,
    context: &'a Context,
}

impl Teller<'_> {
    /// Tells what is kept, to the number that the next event will have.
    async fn tell_kept(&mut self, daemon: &Daemon) -> Result<(), Failure> {
        // All topics are asked for, and chosen from here: only the numbers say that all was told.
        let mut stream = self.subscribe(daemon, Vec::new()).await?;
        let (mut started, mut restarted) = (None, false);
        loop {
            let message = tokio::time::timeout(daemon.patience(), daemon.message(&mut stream));
            let message = message.await.unwrap_or_else(|_| Err(silent()))?;
            let response = message.ok_or_else(|| {
                Failure::unreachable("snap-target ended the stream of events: it drains; ask again")
            })?;
            match &response.message {
                Some(Message::Started(begun)) => {
                    restarted = self.is_of_another_start(begun);
                    started = Some(begun.clone());
                }
                // What was to be said of it is said with this message.
                Some(Message::Gap(gap)) if gap.reason() == v1::GapReason::Restarted => {
                    restarted = false;
                }
                _ => {}
            }
            let reader = self.tell(&response)?;
            let (Some(cursor), Some(started)) = (&self.cursor, &started) else {
                continue;
            };
            if reader == Reader::Gone || (cursor.has_reached(started) && !restarted) {
                return Ok(());
            }
        }
    }

    /// Whether the daemon will say that its numbers are others than ours.
    fn is_of_another_start(&self, started: &v1::Started) -> bool {
        let cursor = self.cursor.as_ref();
        cursor.is_some_and(|cursor| !cursor.is_of(started))
    }

    /// Tells what comes, until nobody reads it any more. A daemon that is gone is waited for.
    async fn follow(&mut self, daemon: Daemon) -> Result<(), Failure> {
        let mut lost = match self.hear(&daemon).await {
            Ok(()) => return Ok(()),
            // Nothing was heard yet: it is not a daemon that went.
            Err(failure) if self.cursor.is_none() || !failure.is_unreachable() => {
                return Err(failure);
            }
            Err(failure) => failure,
        };
        let mut pause = PAUSE_MIN;
        loop {
            if pause == PAUSE_MIN && !self.context.json() {
                eprintln!("(waiting for snap-target: {lost})");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            let heard = match self.context.daemon().await {
                Ok(daemon) => {
                    let before = self.cursor.clone();
                    let heard = self.hear(&daemon).await;
                    if self.cursor != before {
                        pause = PAUSE_MIN;
                    }
                    heard
                }
                Err(failure) => Err(failure),
            };
            match heard {
                Ok(()) => return Ok(()),
                Err(failure) if failure.is_unreachable() => lost = failure,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// One subscription, to its end or until nobody reads what is printed.
    async fn hear(&mut self, daemon: &Daemon) -> Result<(), Failure> {
        let mut stream = self.subscribe(daemon, self.topics.clone()).await?;
        loop {
            let message = tokio::time::timeout(SILENCE, daemon.message(&mut stream));
            let message = message.await.unwrap_or_else(|_| Err(silent()))?;
            let response = message.ok_or_else(|| {
                Failure::unreachable("it ended the stream of events, as it does when it drains")
            })?;
            if self.tell(&response)? == Reader::Gone {
                return Ok(());
            }
        }
    }

    async fn subscribe(
        &self,
        daemon: &Daemon,
        topics: Vec<i32>,
    ) -> Result<Streaming<v1::SubscribeResponse>, Failure> {
        let request = match &self.cursor {
            Some(cursor) => cursor.request(topics),
            None => v1::SubscribeRequest {
                topics,
                ..v1::SubscribeRequest::default()
            },
        };
        daemon.answer(daemon.event().subscribe(request)).await
    }

    /// Prints a message where it is wanted, and notes that it was heard.
    fn tell(&mut self, response: &v1::SubscribeResponse) -> Result<Reader, Failure> {
        let Some(message) = &response.message else {
            return Ok(Reader::There);
        };
        let of_topic = |topic: i32| self.topics.is_empty() || self.topics.contains(&topic);
        let is_wanted = match message {
            Message::Event(event) => of_topic(event.topic),
            Message::Announcement(_) => of_topic(v1::Topic::Announcement.into()),
            Message::Gap(gap) if gap.announcements => {
                self.shows_gaps && of_topic(v1::Topic::Announcement.into())
            }
            Message::Gap(_) => self.shows_gaps,
            Message::Started(_) | Message::Checkpoint(_) => self.context.json(),
        };
        let reader = match (is_wanted, self.context.json()) {
            (false, _) => Reader::There,
            (true, true) => self
                .context
                .print(&format!("{}\n", json::line(response)?))?,
            (true, false) => self.context.print(&line::of(message))?,
        };
        match (&mut self.cursor, message) {
            (cursor, Message::Started(started)) => {
                *cursor = Some(Cursor::begin(cursor.take(), started));
            }
            (Some(cursor), message) => cursor.hear(message),
            (None, _) => {}
        }
        Ok(reader)
    }

    fn show_cursor(&self) -> Result<Reader, Failure> {
        let Some(cursor) = &self.cursor else {
            return Ok(Reader::There);
        };
        self.context.print(&if self.context.json() {
            format!("{}\n", serde_json::json!({ "cursor": cursor.to_string() }))
        } else {
            format!("-- cursor: {cursor}\n")
        })
    }
}

fn silent() -> Failure {
    Failure::of(Code::DeadlineExceeded, "the stream of events is silent")
}
