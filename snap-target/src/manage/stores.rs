//! What is wrong with stores that work, or may again, as health tells it: paths to remote ones, members of arrays. It is looked at with every request, and
//! every quarter of a second.

use std::collections::BTreeSet;

use admin_proto::v1::HealthCode;

use super::{Manager, namespaces};

impl Manager {
    /// Whether anything is served that may come to have problems.
    pub(super) fn has_stores(&self) -> bool {
        self.live.all_served().next().is_some()
    }

    /// Tells of the namespaces whose stores have problems, and that those which have none any more are well.
    pub(super) fn look_at_stores(&mut self) {
        let mut ailing = BTreeSet::new();
        for (nqn, namespace) in self.live.all_served() {
            let problems = namespace.store_problems();
            if problems.is_empty() {
                continue;
            }
            let id = format!("{} store", namespaces::subject(nqn, namespace.nsid));
            let texts: Vec<_> = problems.iter().map(|it| it.text.as_str()).collect();
            let mut mends: Vec<_> = problems.iter().map(|it| it.mend).collect();
            let mut seen = BTreeSet::new();
            mends.retain(|mend| seen.insert(*mend));
            let (text, mend) = (texts.join("; "), mends.join("; "));
            let code = HealthCode::StorePath;
            self.health.problem_with(&id, code, text, &mend);
            ailing.insert(id);
        }
        for well in self.ailing.difference(&ailing) {
            self.health.well(well);
        }
        self.ailing = ailing;
    }
}
