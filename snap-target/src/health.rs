//! How the daemon does: its state, and what is wrong now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use admin_proto::v1;

use crate::events::Hub;

/// Shared by all who find something wrong. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Health {
    events: Hub,
    now: Arc<Mutex<Now>>,
}

#[derive(Debug)]
struct Now {
    phase: Phase,
    problems: BTreeMap<String, v1::HealthProblem>,
}

/// Where the daemon is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before it is ready.
    Starting,
    /// It serves.
    Serving,
    /// On its way out.
    Draining,
}

impl Health {
    /// Of a daemon that starts.
    pub fn new(events: Hub) -> Self {
        let now = Now {
            phase: Phase::Starting,
            problems: BTreeMap::new(),
        };
        Self {
            events,
            now: Arc::new(Mutex::new(now)),
        }
    }

    /// The daemon is in another phase of its life.
    pub fn enter(&self, phase: Phase) {
        let mut now = self.now();
        if now.phase != phase {
            now.phase = phase;
            self.tell(&now, None, false);
        }
    }

    /// Something is wrong with what is called `id`. What is known already is not told again, and a problem that changes is as old as it was.
    pub fn problem(&self, id: &str, code: v1::HealthCode, text: String) {
        self.problem_with(id, code, text, mend(code));
    }

    /// The same where whoever found it knows what to do about it.
    pub fn problem_with(&self, id: &str, code: v1::HealthCode, text: String, mend: &str) {
        let mut now = self.now();
        let known = now.problems.get(id).filter(|it| it.code() == code);
        if known.is_some_and(|it| it.text == text) {
            return;
        }
        let since = known.and_then(|it| it.since);
        let problem = v1::HealthProblem {
            id: id.to_owned(),
            code: code.into(),
            since: since.or_else(|| Some(SystemTime::now().into())),
            text,
            mend: mend.to_owned(),
            count: 0,
        };
        now.problems.insert(id.to_owned(), problem.clone());
        self.tell(&now, Some(problem), false);
    }

    /// Something that is counted is wrong, since `since`. It is told when it is first seen, and when its count is seen to have a digit more; other text is another
    /// problem.
    pub fn counted(
        &self,
        id: &str,
        code: v1::HealthCode,
        text: &str,
        since: SystemTime,
        count: u64,
    ) {
        let mut now = self.now();
        let known = now.problems.get(id);
        let known = known.filter(|it| it.code() == code && it.text == text);
        let is_told = known.is_some_and(|it| digits(it.count) == digits(count));
        let problem = v1::HealthProblem {
            id: id.to_owned(),
            code: code.into(),
            since: Some(since.into()),
            text: text.to_owned(),
            mend: mend(code).to_owned(),
            count,
        };
        now.problems.insert(id.to_owned(), problem.clone());
        if !is_told {
            self.tell(&now, Some(problem), false);
        }
    }

    /// What is called `id` is well, or gone.
    pub fn well(&self, id: &str) {
        let mut now = self.now();
        if let Some(problem) = now.problems.remove(id) {
            self.tell(&now, Some(problem), true);
        }
    }

    /// Whether something is wrong with what is called `id`.
    pub fn has(&self, id: &str) -> bool {
        self.now().problems.contains_key(id)
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.now().phase
    }

    /// State and open problems, by their ids.
    pub fn report(&self) -> v1::GetHealthResponse {
        let now = self.now();
        v1::GetHealthResponse {
            state: now.state().into(),
            problems: now.problems.values().cloned().collect(),
            // What changes is told before the lock is let go.
            as_of: Some(self.events.as_of()),
        }
    }

    /// Each kind of problem by its name in the metric, and whether there is one of it.
    pub fn by_code(&self) -> Vec<(String, bool)> {
        let now = self.now();
        let is_there = |code| now.problems.values().any(|it| it.code() == code);
        let kinds = [
            v1::HealthCode::SourceUnusable,
            v1::HealthCode::SourceSilent,
            v1::HealthCode::Closing,
            v1::HealthCode::Listener,
            v1::HealthCode::StateFolder,
            v1::HealthCode::Damaged,
            v1::HealthCode::Certificate,
            v1::HealthCode::NoListener,
            v1::HealthCode::StorePath,
            v1::HealthCode::Function,
        ];
        let name = |code: v1::HealthCode| {
            let name = code.as_str_name().trim_start_matches("HEALTH_CODE_");
            name.to_lowercase()
        };
        kinds.map(|code| (name(code), is_there(code))).to_vec()
    }

    fn tell(&self, now: &Now, problem: Option<v1::HealthProblem>, ended: bool) {
        let text = match &problem {
            Some(problem) if ended => format!("{}: well again", problem.id),
            Some(problem) if problem.count > 0 => {
                format!(
                    "{}: {} ({} so far)",
                    problem.id, problem.text, problem.count
                )
            }
            Some(problem) => format!("{}: {}", problem.id, problem.text),
            None => {
                let state = now.state().as_str_name();
                state.trim_start_matches("HEALTH_STATE_").to_lowercase()
            }
        };
        let event = v1::HealthEvent {
            state: now.state().into(),
            problem,
            ended,
        };
        self.events.publish(v1::event::Kind::Health(event), text);
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an operator does about a problem of a kind; what happened says the rest.
fn mend(code: v1::HealthCode) -> &'static str {
    match code {
        v1::HealthCode::SourceUnusable => {
            "mend what the text names; it is tried again every 10 s. `snapctl namespace detach` gives the namespace up"
        }
        v1::HealthCode::SourceSilent => {
            "see to the disk, or the server of its file system; it is tried again. `snapctl namespace detach` gives the namespace up"
        }
        v1::HealthCode::Closing => {
            "see to the disk, or the server of its file system: it ends when the store answers"
        }
        v1::HealthCode::Listener => {
            "mend what the text names: the address, a port that is taken, RDMA's libraries or device (`snapctl doctor` looks at these); it is tried again at least every 30 s. `snapctl listener remove` gives it up"
        }
        v1::HealthCode::Function => {
            "mend what the text names: a path that somebody else has, a folder that is not there, a subsystem that is missing; it is tried again every 10 s. `snapctl function delete` gives it up"
        }
        v1::HealthCode::Device => {
            "mend what the text names (`modprobe ublk_drv`, root, a number that is taken), and restart the daemon, or attach the namespace anew"
        }
        v1::HealthCode::NoListener => "`snapctl listener add` makes one",
        // The store says what to do.
        v1::HealthCode::StorePath | v1::HealthCode::Unspecified => "",
        v1::HealthCode::StateFolder => {
            "make room in the state folder's file system, or let the daemon's user write it; the next change is tried anew"
        }
        v1::HealthCode::Damaged => {
            "`xio verify` says all that is damaged; bring the volume or the mapped file back from a copy, then `snapctl namespace detach` and `attach`"
        }
        v1::HealthCode::Certificate => {
            "put a certificate, its key and the authority where the configuration names them; they are looked at every 10 s, and at SIGHUP"
        }
    }
}

/// Digits of a number, none of 0.
fn digits(number: u64) -> u32 {
    number.checked_ilog10().map_or(0, |log| log + 1)
}

impl Now {
    fn state(&self) -> v1::HealthState {
        match self.phase {
            Phase::Starting => v1::HealthState::Starting,
            Phase::Draining => v1::HealthState::Draining,
            Phase::Serving if self.problems.is_empty() => v1::HealthState::Serving,
            Phase::Serving => v1::HealthState::Degraded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Entry;

    /// The text of an event is of the same state as its field.
    #[test]
    fn a_daemon_that_begins_to_serve_with_a_problem_is_told_as_degraded() {
        let events = Hub::default();
        let health = Health::new(events.clone());
        health.problem("listener 1", v1::HealthCode::Listener, "gone".to_owned());
        health.enter(Phase::Serving);
        health.well("listener 1");
        health.enter(Phase::Draining);
        health.enter(Phase::Serving);
        let told = events.read(1, 9).items;
        let text = |entry: &Arc<Entry>| match &**entry {
            Entry::Event(event) => event.text.clone(),
            Entry::NotNoted => String::new(),
        };
        let texts: Vec<String> = told.iter().map(text).collect();
        let [problem, well] = ["listener 1: gone", "listener 1: well again"];
        assert_eq!(texts, [problem, "degraded", well, "draining", "serving"]);
    }
}
