//! Damage that reads met, as health tells it. It is looked at with every request, and every 10 s.

use std::collections::BTreeSet;

use admin_proto::v1::HealthCode;
use namespace::FirstDamage;

use super::{Manager, namespaces};

/// What is told of damage, one line. How often it was met stands beside it.
pub fn why(first: &FirstDamage) -> String {
    format!("reads met damage, first: {}", first.what)
}

impl Manager {
    /// Tells of the namespaces of which reads met damage since they were attached, and that those which are gone are.
    pub(super) fn look_at_damage(&mut self) {
        let mut damaged = BTreeSet::new();
        for (nqn, namespace) in self.live.all_served() {
            let Some(first) = namespace.damage.first() else {
                continue;
            };
            let id = format!("{} damaged", namespaces::subject(nqn, namespace.nsid));
            let reads = namespace.damage.reads();
            self.health
                .counted(&id, HealthCode::Damaged, &why(first), first.at, reads);
            damaged.insert(id);
        }
        for gone in self.damaged.difference(&damaged) {
            self.health.well(gone);
        }
        self.damaged = damaged;
    }
}
