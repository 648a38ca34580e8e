//! How far somebody has heard, across commands and restarts of the daemon.

use std::fmt;
use std::str::FromStr;

use admin_proto::v1;
use admin_proto::v1::subscribe_response::Message;

/// All up to these numbers was heard, of this start of the daemon. As text `INSTANCE:SEQUENCE:ANNOUNCEMENT`; without the last, announcements are heard
/// from then on, which suits the `as_of` of an answer: `INSTANCE:SEQUENCE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    instance: String,
    sequence: u64,
    announcement: Option<u64>,
}

impl Cursor {
    /// Nothing of this start was heard yet.
    pub fn at_the_start(instance: String) -> Cursor {
        Cursor {
            instance,
            sequence: 0,
            announcement: Some(0),
        }
    }

    /// Asks for what comes behind it.
    pub fn request(&self, topics: Vec<i32>) -> v1::SubscribeRequest {
        v1::SubscribeRequest {
            topics,
            from_sequence: self.sequence.saturating_add(1),
            instance: self.instance.clone(),
            from_announcement: self
                .announcement
                .map_or(0, |number| number.saturating_add(1)),
        }
    }

    /// Whether its numbers are of this start of the daemon: not of another one, nor such as it never gave.
    pub fn is_of(&self, started: &v1::Started) -> bool {
        self.instance == started.instance
            && self.sequence < started.next_sequence
            && self.announcement.unwrap_or(0) < started.next_announcement
    }

    /// A subscription begins: numbers of another start, or that it never had, are none of this one's.
    pub fn begin(cursor: Option<Cursor>, started: &v1::Started) -> Cursor {
        let (sequence, announcement) = (
            started.next_sequence.saturating_sub(1),
            started.next_announcement.saturating_sub(1),
        );
        match cursor {
            Some(cursor) if cursor.instance == started.instance => Cursor {
                sequence: cursor.sequence.min(sequence),
                announcement: Some(
                    cursor
                        .announcement
                        .unwrap_or(announcement)
                        .min(announcement),
                ),
                ..cursor
            },
            // All that is kept is told.
            Some(cursor) => Cursor {
                instance: started.instance.clone(),
                sequence: 0,
                announcement: Some(cursor.announcement.map_or(announcement, |_| 0)),
            },
            None => Cursor {
                instance: started.instance.clone(),
                sequence,
                announcement: Some(announcement),
            },
        }
    }

    /// Notes what was heard.
    pub fn hear(&mut self, message: &Message) {
        match message {
            Message::Started(_) => {}
            Message::Event(event) => self.sequence = event.sequence,
            Message::Announcement(announcement) => self.announcement = Some(announcement.sequence),
            Message::Checkpoint(checkpoint) => {
                self.sequence = checkpoint.next_sequence.saturating_sub(1);
                self.announcement = Some(checkpoint.next_announcement.saturating_sub(1));
            }
            Message::Gap(gap) if gap.last_sequence == 0 => {}
            Message::Gap(gap) if gap.announcements => self.announcement = Some(gap.last_sequence),
            Message::Gap(gap) => self.sequence = gap.last_sequence,
        }
    }

    /// Whether all that was there when the subscription began was heard.
    pub fn has_reached(&self, started: &v1::Started) -> bool {
        let heard = |number: u64, next: u64| number.saturating_add(1) >= next;
        heard(self.sequence, started.next_sequence)
            && heard(self.announcement.unwrap_or(0), started.next_announcement)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.instance, self.sequence)?;
        match self.announcement {
            Some(announcement) => write!(f, ":{announcement}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Cursor, String> {
        let wrong = || {
            "it is INSTANCE:SEQUENCE or INSTANCE:SEQUENCE:ANNOUNCEMENT, as --show-cursor and the as_of of answers say".to_owned()
        };
        let mut parts = text.split(':');
        let instance = parts.next().unwrap_or_default().to_owned();
        let sequence = parts.next().and_then(|number| number.parse().ok());
        let announcement = match parts.next() {
            Some(number) => Some(number.parse().map_err(|_| wrong())?),
            None => None,
        };
        match (sequence, parts.next()) {
            (Some(sequence), None) if !instance.is_empty() => Ok(Cursor {
                instance,
                sequence,
                announcement,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(instance: &str, next_sequence: u64, next_announcement: u64) -> v1::Started {
        v1::Started {
            instance: instance.to_owned(),
            next_sequence,
            next_announcement,
            ..v1::Started::default()
        }
    }

    fn cursor(text: &str) -> Cursor {
        text.parse().unwrap()
    }

    #[test]
    fn a_cursor_is_read_and_printed_again() {
        for text in ["6f96:104:3", "6f96:0:0", "6f96:7"] {
            assert_eq!(cursor(text).to_string(), text);
        }
        for text in [
            "",
            "104",
            ":104",
            "6f96:",
            "6f96:x",
            "6f96:1:",
            "6f96:1:2:3",
            "6f96:-1",
        ] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_subscription_goes_on_behind_what_was_heard() {
        let request = cursor("a:104:3").request(vec![2]);
        assert_eq!(
            (
                request.from_sequence,
                request.from_announcement,
                request.instance.as_str()
            ),
            (105, 4, "a")
        );
        assert_eq!(cursor("a:104").request(Vec::new()).from_announcement, 0);
    }

    #[test]
    fn it_begins_where_this_start_of_the_daemon_can_go_on() {
        let begin =
            |text: Option<&str>| Cursor::begin(text.map(cursor), &started("a", 105, 4)).to_string();
        assert_eq!(begin(Some("a:7:1")), "a:7:1");
        assert_eq!(begin(Some("a:7")), "a:7:3");
        assert_eq!(begin(Some("a:900:9")), "a:104:3");
        assert_eq!(begin(Some("b:7:1")), "a:0:0");
        assert_eq!(begin(Some("b:7")), "a:0:3");
        assert_eq!(begin(None), "a:104:3");
    }

    #[test]
    fn numbers_of_another_start_are_known() {
        let is_of = |text: &str| cursor(text).is_of(&started("a", 105, 4));
        assert!(is_of("a:104:3") && is_of("a:0:0") && is_of("a:104"));
        assert!(!is_of("a:105:3") && !is_of("a:104:4") && !is_of("b:104:3"));
    }

    #[test]
    fn gaps_checkpoints_and_both_kinds_of_numbers_are_heard() {
        let mut heard = cursor("a:1:1");
        let gap = |first_sequence, last_sequence, announcements| {
            Message::Gap(v1::Gap {
                first_sequence,
                last_sequence,
                announcements,
                ..v1::Gap::default()
            })
        };
        heard.hear(&gap(2, 5, false));
        assert_eq!(heard.to_string(), "a:5:1");
        heard.hear(&gap(2, 9, true));
        assert_eq!(heard.to_string(), "a:5:9");
        heard.hear(&gap(0, 0, false));
        assert_eq!(heard.to_string(), "a:5:9");
        assert!(!heard.has_reached(&started("a", 7, 10)));
        heard.hear(&Message::Event(v1::Event {
            sequence: 6,
            ..v1::Event::default()
        }));
        assert!(heard.has_reached(&started("a", 7, 10)));
        assert!(!heard.has_reached(&started("a", 7, 11)));
        heard.hear(&Message::Checkpoint(v1::Checkpoint {
            next_sequence: 20,
            next_announcement: 30,
        }));
        assert_eq!(heard.to_string(), "a:19:29");
    }
}
