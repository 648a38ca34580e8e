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

/// So many seconds after that, behind event 104.
fn as_of(seconds: i64) -> Option<AsOf> {
    Some(AsOf {
        instance: "6f9619ff8b86d011b42d00cf4fc964ff".to_owned(),
        sequence: 104,
        at: at(seconds),
    })
}

/// All of a subsystem's hosts see it.
pub fn seen_by_all() -> Visibility {
    Visibility {
        to: Some(To::All(AllHosts {})),
    }
}

/// These see it.
pub fn seen_by(nqns: &[&str]) -> Visibility {
    let nqns = nqns.iter().map(|nqn| (*nqn).to_owned()).collect();
    Visibility {
        to: Some(To::Only(HostList { nqns })),
    }
}

pub fn any() -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Any(AnyHost {})),
    }
}

pub fn only(nqns: &[&str]) -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Only(HostList {
            nqns: nqns.iter().map(|nqn| (*nqn).to_owned()).collect(),
        })),
    }
}
