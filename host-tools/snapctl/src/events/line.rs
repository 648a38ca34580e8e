//! A message of the stream as people read it.

use admin_proto::v1;
use admin_proto::v1::subscribe_response::Message;

use crate::{announce, text};

/// The message on a line, or several; none where it says nothing to a person.
pub fn of(message: &Message) -> String {
    match message {
        Message::Event(event) => of_event(event),
        Message::Announcement(announcement) => numbered(
            announcement.at.as_ref(),
            announcement.sequence,
            v1::Topic::Announcement.into(),
            &announce::said(announcement),
        ),
        Message::Gap(gap) => of_gap(gap),
        Message::Started(_) | Message::Checkpoint(_) => String::new(),
    }
}

fn numbered(at: Option<&admin_proto::Timestamp>, sequence: u64, topic: i32, said: &str) -> String {
    let topic = match v1::Topic::try_from(topic) {
        // TOPIC_NAMESPACE
        Ok(topic) => topic
            .as_str_name()
            .trim_start_matches("TOPIC_")
            .to_lowercase(),
        Err(_) => topic.to_string(),
    };
    let (at, said) = (text::when(at), text::clean(said));
    format!("{at}  {sequence:>6}  {topic:<12}  {said}\n")
}

fn of_event(event: &v1::Event) -> String {
    let mut said = event.text.clone();
    if !event.actor.is_empty() {
        said += &format!(" (by {})", event.actor);
    }
    let mut lines = numbered(event.at.as_ref(), event.sequence, event.topic, &said);
    if let Some(v1::event::Kind::HostRefused(refused)) = &event.kind
        && let Some(mend) = mend(refused)
    {
        lines += &format!("        mend   {mend}\n");
    }
    lines
}

/// The line that lets a host in that was refused, where there is one.
fn mend(refused: &v1::HostRefusedEvent) -> Option<String> {
    let (subsystem, host) = (
        text::shell_word(&refused.subsystem_nqn),
        text::shell_word(&refused.host_nqn),
    );
    match refused.reason() {
        v1::RefusedReason::NotAllowed => Some(format!("snapctl host allow {subsystem} {host}")),
        v1::RefusedReason::NoSubsystem => Some(format!(
            "snapctl subsystem create {subsystem} --host {host}, or let the host ask for one of snapctl subsystem list"
        )),
        v1::RefusedReason::Limit | v1::RefusedReason::Invalid | v1::RefusedReason::Unspecified => {
            None
        }
    }
}

fn of_gap(gap: &v1::Gap) -> String {
    let what = if gap.announcements {
        "announcements"
    } else {
        "events"
    };
    let why = match gap.reason() {
        v1::GapReason::Restarted => {
            return format!("(snap-target was restarted: numbers of {what} begin anew)\n");
        }
        v1::GapReason::NotNoted => {
            return format!(
                "({what} are lost: more happened at once than could be noted; ask for the lists anew)\n"
            );
        }
        v1::GapReason::NotKept => "they are no longer kept".to_owned(),
        v1::GapReason::TooSlow => "this command did not keep up".to_owned(),
        v1::GapReason::Unspecified => format!("for reason {}", gap.reason),
    };
    let (first, last) = (gap.first_sequence, gap.last_sequence);
    format!("({what} {first} to {last} are lost: {why})\n")
}
