//! The answers.

mod counters;
mod events;
mod objects;
mod target;

pub use counters::*;
pub use events::*;
pub use objects::*;
pub use target::*;

use admin_proto::Timestamp;
use admin_proto::v1::host_policy::Hosts;
use admin_proto::v1::visibility::To;
use admin_proto::v1::*;

pub const DATA: &str = "nqn.2026-11.org.example:data";
pub const SCRATCH: &str = "nqn.2026-11.org.example:scratch";
pub const TRAINER1: &str = "nqn.2026-11.org.example:trainer1";
pub const TRAINER2: &str = "nqn.2026-11.org.example:trainer2";

/// 2026-11-21T10:00:00Z and so many seconds.
fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp {
        seconds: 1_795_255_200 + seconds,
        nanos: 0,
    })
}

pub fn any() -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Any(AnyHost {})),
    }
}

pub fn only(nqns: &[&str]) -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Only(list(nqns))),
    }
}

fn list(nqns: &[&str]) -> HostList {
    HostList {
        nqns: nqns.iter().map(|nqn| (*nqn).to_owned()).collect(),
    }
}

pub fn all() -> Visibility {
    Visibility {
        to: Some(To::All(AllHosts {})),
    }
}

pub fn seen_only_by(nqns: &[&str]) -> Visibility {
    Visibility {
        to: Some(To::Only(list(nqns))),
    }
}

/// One start of the made-up daemon.
#[derive(Clone, Debug)]
pub struct Start {
    pub instance: &'static str,
    pub revision: u32,
}

/// The first one.
pub const FIRST: Start = Start {
    instance: "6f9619ff8b86d011b42d00cf4fc964ff",
    revision: admin_proto::REVISION,
};

impl Start {
    fn as_of(&self, sequence: u64) -> Option<AsOf> {
        Some(AsOf {
            instance: self.instance.to_owned(),
            sequence,
            at: at(120),
        })
    }
}

/// Some of the rows, and the token of those that follow: the number of the first.
fn page<Row>(rows: Vec<Row>, size: u32, token: &str) -> (Vec<Row>, String) {
    let from: usize = if token.is_empty() {
        0
    } else {
        token.parse().unwrap()
    };
    let size = match size {
        0 => rows.len(),
        size => usize::try_from(size).unwrap(),
    };
    let next = match from + size {
        next if next < rows.len() => next.to_string(),
        _ => String::new(),
    };
    (rows.into_iter().skip(from).take(size).collect(), next)
}
