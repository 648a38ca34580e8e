//! `snapctl events`.

use admin_proto::v1;
use admin_proto::v1::subscribe_response::Message;
use clap::{Args, ValueEnum};
use printout::stdout::Reader;

use crate::context::Context;
use crate::failure::Failure;
use crate::json;
use crate::text;

const HELP: &str = "\
The daemon keeps a bounded number of events; what is lost is told as lost. Numbers begin anew when the daemon does.

Examples:
  snapctl events
  snapctl events --topic namespace --topic host --follow
  snapctl events --from 4711 --follow --json";

/// `snapctl events`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Events {
    /// Only about this; may be given again for more
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<Topic>,

    /// From this event's number on; otherwise all that are kept, or with --follow only those to come
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,

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
    /// Hosts are allowed, denied, come and go
    Host,
    /// Controllers and their queues
    Controller,
    /// Listeners and referrals
    Listener,
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
            Self::Health => v1::Topic::Health,
            Self::Progress => v1::Topic::Progress,
            Self::Announcement => v1::Topic::Announcement,
        }
        .into()
    }
}

/// Runs it.
pub async fn run(arguments: Events, context: &Context) -> Result<(), Failure> {
    let topics: Vec<i32> = arguments
        .topics
        .iter()
        .map(|topic| topic.number())
        .collect();
    let from = match (arguments.from, arguments.follow) {
        (Some(from), _) => from,
        (None, true) => 0,
        (None, false) => 1,
    };
    let daemon = context.daemon().await?;
    let instance = match from {
        0 => String::new(),
        _ => {
            let asked = v1::GetInfoRequest {};
            let info = daemon.answer(daemon.target().get_info(asked)).await?;
            info.instance
        }
    };
    let request = v1::SubscribeRequest {
        // Without --follow, everything is asked for and chosen from here: only the number of the last event that is kept says that it was told.
        topics: if arguments.follow {
            topics.clone()
        } else {
            Vec::new()
        },
        from_sequence: from,
        instance,
        from_announcement: 0,
    };
    let mut stream = daemon.answer(daemon.event().subscribe(request)).await?;
    let mut end = None;
    loop {
        let response = stream
            .message()
            .await
            .map_err(|status| daemon.refusal(&status))?
            .ok_or_else(|| {
                Failure::unreachable("snap-target ended the stream of events: it drains; --from N goes on behind the last that was told")
            })?;
        if let Some(Message::Started(started)) = &response.message
            && !arguments.follow
        {
            end = Some(started.next_sequence);
        }
        let text = printed(&response, &topics, &arguments, context.json())?;
        if context.print(&text)? == Reader::Gone || reached(&response, from, end) {
            return Ok(());
        }
    }
}

/// Whether nothing more is kept behind this message. `from` is the number that was asked for, `end` that of the first event to come.
fn reached(response: &v1::SubscribeResponse, from: u64, end: Option<u64>) -> bool {
    let Some(end) = end else { return false };
    match &response.message {
        Some(Message::Started(started)) => {
            started.oldest_sequence == 0 || started.next_sequence <= from
        }
        Some(Message::Event(event)) => event.sequence.saturating_add(1) >= end,
        Some(Message::Gap(gap)) => gap.last_sequence.saturating_add(1) >= end,
        Some(Message::Checkpoint(checkpoint)) => checkpoint.next_sequence >= end,
        Some(Message::Announcement(_)) | None => false,
    }
}

fn printed(
    response: &v1::SubscribeResponse,
    topics: &[i32],
    arguments: &Events,
    as_json: bool,
) -> Result<String, Failure> {
    let wanted = match &response.message {
        Some(Message::Event(event)) => topics.is_empty() || topics.contains(&event.topic),
        // That older events are gone is no news to whoever asked for what is left.
        Some(Message::Gap(_)) => as_json || arguments.follow || arguments.from.is_some(),
        Some(Message::Announcement(_)) => {
            topics.is_empty() || topics.contains(&Topic::Announcement.number())
        }
        Some(Message::Started(_)) => as_json,
        Some(Message::Checkpoint(_)) | None => false,
    };
    if !wanted {
        return Ok(String::new());
    }
    if as_json {
        return Ok(format!("{}\n", json::line(response)?));
    }
    Ok(match &response.message {
        Some(Message::Event(event)) => event_line(event),
        Some(Message::Gap(gap)) => gap_line(gap),
        Some(Message::Announcement(announcement)) => announcement_line(announcement),
        Some(Message::Started(_) | Message::Checkpoint(_)) | None => String::new(),
    })
}

fn event_line(event: &v1::Event) -> String {
    let topic = match v1::Topic::try_from(event.topic) {
        // TOPIC_NAMESPACE
        Ok(topic) => topic
            .as_str_name()
            .trim_start_matches("TOPIC_")
            .to_lowercase(),
        Err(_) => event.topic.to_string(),
    };
    let time = text::when(event.at.as_ref());
    let said = text::clean(&event.text);
    format!("{time}  {:>6}  {topic:<12}  {said}\n", event.sequence)
}

fn announcement_line(said: &v1::Announcement) -> String {
    let time = text::when(said.at.as_ref());
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let (epoch, position) = (number(said.epoch), number(said.position));
    let host = text::clean(&said.host_nqn);
    let topic = "announcement";
    format!(
        "{time}  {:>6}  {topic:<12}  {host} is at epoch {epoch}, position {position}\n",
        said.sequence
    )
}

fn gap_line(gap: &v1::Gap) -> String {
    let why = match v1::GapReason::try_from(gap.reason) {
        Ok(v1::GapReason::Restarted) => {
            return "(snap-target was restarted: numbers begin anew)\n".to_owned();
        }
        Ok(v1::GapReason::NotKept) => "they are no longer kept".to_owned(),
        Ok(v1::GapReason::TooSlow) => "this command did not keep up".to_owned(),
        Ok(v1::GapReason::NotNoted) => {
            return "(more happened at once than is told)\n".to_owned();
        }
        Ok(v1::GapReason::Unspecified) => "for a reason that is not told".to_owned(),
        Err(_) => format!("reason {}", gap.reason),
    };
    let (first, last) = (gap.first_sequence, gap.last_sequence);
    format!("(events {first} to {last} are lost: {why})\n")
}
