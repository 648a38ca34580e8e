//! What is wrong with stores that work, or may again, as health tells it: paths to remote ones. It is looked at with every request, and every 10 s.

use std::collections::BTreeSet;

use admin_proto::v1::HealthCode;

use super::{Manager, namespaces};

impl Manager {
    /// Tells of the namespaces whose stores have problems, and that those which have none any more are well.
    pub(super) fn look_at_stores(&mut self) {
        let mut ailing = BTreeSet::new();
        for (nqn, namespace) in self.live.all_served() {
            let problems = namespace.store_problems();
            if problems.is_empty() {
                continue;
            }
            let id = format!("{} store", namespaces::subject(nqn, namespace.nsid));
            let text = problems.join("; ");
            self.health.problem(&id, HealthCode::StorePath, text);
            ailing.insert(id);
        }
        for well in self.ailing.difference(&ailing) {
            self.health.well(well);
        }
        self.ailing = ailing;
    }
}
