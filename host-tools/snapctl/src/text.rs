//! Fields of messages as people read them.

use std::net::SocketAddr;

use admin_proto::Timestamp;
use admin_proto::v1::host_policy::Hosts;
use admin_proto::v1::visibility::To;
use admin_proto::v1::{FunctionProtocol, HostPolicy, Origin, Transport, Visibility};

/// Who may connect: `any`, `nobody`, or the list.
pub fn hosts(policy: Option<&HostPolicy>) -> String {
    match policy.and_then(|policy| policy.hosts.as_ref()) {
        Some(Hosts::Any(_)) => "any".to_owned(),
        Some(Hosts::Only(list)) => names(&list.nqns),
        None => names(&[]),
    }
}

/// Who may connect, short enough for a column: `any`, `nobody`, one name, or how many.
pub fn hosts_in_short(policy: Option<&HostPolicy>) -> String {
    match policy.and_then(|policy| policy.hosts.as_ref()) {
        Some(Hosts::Only(list)) => names_in_short(&list.nqns),
        _ => hosts(policy),
    }
}

/// Who sees it: `all`, `nobody`, or the list.
pub fn seen_by(visibility: Option<&Visibility>) -> String {
    match visibility.and_then(|visibility| visibility.to.as_ref()) {
        Some(To::All(_)) => "all".to_owned(),
        Some(To::Only(list)) => names(&list.nqns),
        None => names(&[]),
    }
}

/// Who sees it, short enough for a column.
pub fn seen_by_in_short(visibility: Option<&Visibility>) -> String {
    match visibility.and_then(|visibility| visibility.to.as_ref()) {
        Some(To::Only(list)) => names_in_short(&list.nqns),
        _ => seen_by(visibility),
    }
}

fn names(nqns: &[String]) -> String {
    if nqns.is_empty() {
        return "nobody".to_owned();
    }
    nqns.join(", ")
}

fn names_in_short(nqns: &[String]) -> String {
    match nqns.len() {
        0 | 1 => names(nqns),
        count => format!("{count} hosts"),
    }
}

/// What is still under way behind a change that is made, and what tells its end; nothing where nothing is.
pub fn still_closing(closing: bool, reason: &str, tell: &str) -> String {
    if !closing {
        return String::new();
    }
    format!("still closing: {}; {tell}\n", clean(reason))
}

/// Hosts that were to be taken off a list and were not on it.
pub fn not_listed(nqns: &[String]) -> String {
    if nqns.is_empty() {
        return String::new();
    }
    format!("not on the list before: {}\n", nqns.join(", "))
}

/// A word of a command line that is shown for somebody to run. A host calls itself as it likes: what a shell would obey is quoted.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-/".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", clean(word).replace('\'', "'\\''"))
}

/// A time of day, UTC, to the microsecond where it is not a whole second: lines below each other align.
pub fn when(time: Option<&Timestamp>) -> String {
    let Some(time) = time else {
        return "-".to_owned();
    };
    let whole = Timestamp { nanos: 0, ..*time }.to_string();
    match time.nanos / 1000 {
        0 => whole,
        micros => format!("{}.{micros:06}Z", whole.trim_end_matches('Z')),
    }
}

/// Who made it.
pub fn origin(number: i32) -> String {
    match Origin::try_from(number) {
        Ok(Origin::Config) => "config".to_owned(),
        Ok(Origin::Admin) => "admin".to_owned(),
        Ok(Origin::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}

/// How it is reached.
pub fn transport(number: i32) -> String {
    match Transport::try_from(number) {
        Ok(Transport::Tcp) => "tcp".to_owned(),
        Ok(Transport::Rdma) => "rdma".to_owned(),
        Ok(Transport::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}

/// How a function's client reaches it.
pub fn protocol(number: i32) -> String {
    match FunctionProtocol::try_from(number) {
        Ok(FunctionProtocol::VfioUser) => "vfio-user".to_owned(),
        Ok(FunctionProtocol::VhostUserBlk) => "vhost-user-blk".to_owned(),
        Ok(FunctionProtocol::Ublk) => "ublk".to_owned(),
        Ok(FunctionProtocol::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}

/// Whether two texts are the same address, however it is written.
pub fn same_address(one: &str, other: &str) -> bool {
    match (one.parse::<SocketAddr>(), other.parse::<SocketAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// `1 namespace`, `2 namespaces`.
pub fn count(number: u64, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

/// `yes` or `no`.
pub fn yes(it_is: bool) -> String {
    if it_is { "yes" } else { "no" }.to_owned()
}

/// A cell that may be empty.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// Lines of a description: names to the left, values aligned.
pub fn description(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {}\n", clean(value));
    lines.iter().map(line).collect()
}

/// Lines with words from elsewhere in them: no controls but the ends of the lines.
pub fn clean_lines(text: &str) -> String {
    text.split('\n').map(clean).collect::<Vec<_>>().join("\n")
}

/// One line of text from elsewhere: no controls that a terminal would obey.
pub fn clean(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_obey_is_quoted() {
        for (word, shown) in [
            (
                "nqn.2014-08.org.nvmexpress:uuid:d0e5-1",
                "nqn.2014-08.org.nvmexpress:uuid:d0e5-1",
            ),
            ("nqn.x; rm -rf ~", "'nqn.x; rm -rf ~'"),
            ("$(id)", "'$(id)'"),
            ("it's\n", r"'it'\''s '"),
            ("--any-host", "'--any-host'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), shown);
        }
    }

    #[test]
    fn times_have_all_digits_of_a_microsecond_or_none() {
        let at = |nanos| {
            when(Some(&Timestamp {
                seconds: 1_795_255_200,
                nanos,
            }))
        };
        assert_eq!(at(0), "2026-11-21T10:00:00Z");
        assert_eq!(at(520_000_541), "2026-11-21T10:00:00.520000Z");
        assert_eq!(at(1_000), "2026-11-21T10:00:00.000001Z");
        assert_eq!(when(None), "-");
    }
}
