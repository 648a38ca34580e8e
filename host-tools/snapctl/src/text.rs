//! Fields of messages as people read them.

use admin_proto::Timestamp;
use admin_proto::v1::host_policy::Hosts;
use admin_proto::v1::visibility::To;
use admin_proto::v1::{AnyHost, HostPolicy, Origin, Transport, Visibility};

/// Who: `any`, `nobody`, or the list.
pub fn hosts(policy: Option<&HostPolicy>) -> String {
    match policy.and_then(|policy| policy.hosts.as_ref()) {
        Some(Hosts::Any(_)) => "any".to_owned(),
        Some(Hosts::Only(list)) if !list.nqns.is_empty() => list.nqns.join(", "),
        Some(Hosts::Only(_)) | None => "nobody".to_owned(),
    }
}

/// Who, short enough for a column: `any`, `nobody`, one name, or how many.
pub fn hosts_in_short(policy: Option<&HostPolicy>) -> String {
    match policy.and_then(|policy| policy.hosts.as_ref()) {
        Some(Hosts::Only(list)) if list.nqns.len() > 1 => format!("{} hosts", list.nqns.len()),
        _ => hosts(policy),
    }
}

/// Those who see a namespace, as a policy is shown.
pub fn seen_by(visibility: Option<&Visibility>) -> HostPolicy {
    let hosts = visibility.and_then(|it| it.to.clone()).map(|to| match to {
        To::All(_) => Hosts::Any(AnyHost {}),
        To::Only(list) => Hosts::Only(list),
    });
    HostPolicy { hosts }
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

/// `1 namespace`, `2 namespaces`.
pub fn count(number: u64, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
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

/// One line of text from elsewhere: no controls that a terminal would obey.
pub fn clean(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
