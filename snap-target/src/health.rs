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

    /// Something is wrong with `subject`. What is known already is not told again.
    pub fn problem(&self, subject: &str, what: String) {
        let mut now = self.now();
        if now.problems.get(subject).is_some_and(|it| it.what == what) {
            return;
        }
        let problem = v1::HealthProblem {
            subject: subject.to_owned(),
            what,
            since: Some(SystemTime::now().into()),
        };
        now.problems.insert(subject.to_owned(), problem.clone());
        self.tell(&now, Some(problem), false);
    }

    /// `subject` is well, or gone.
    pub fn well(&self, subject: &str) {
        let mut now = self.now();
        if let Some(problem) = now.problems.remove(subject) {
            self.tell(&now, Some(problem), true);
        }
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.now().phase
    }

    /// State and open problems, by subject.
    pub fn report(&self) -> v1::GetHealthResponse {
        let now = self.now();
        v1::GetHealthResponse {
            state: now.state().into(),
            problems: now.problems.values().cloned().collect(),
        }
    }

    fn tell(&self, now: &Now, problem: Option<v1::HealthProblem>, ended: bool) {
        let text = match &problem {
            Some(problem) if ended => format!("{}: well again", problem.subject),
            Some(problem) => format!("{}: {}", problem.subject, problem.what),
            None => format!("{:?}", now.phase).to_lowercase(),
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
