//! A keeper whose records outlive a target, and that tells of a save when a test lets it.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use namespace::{KeepError, Keeper, RecordKind, Saved};

/// A save that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct TestKeeper(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    records: HashMap<RecordKind, Vec<u8>>,
    is_holding: bool,
    is_failing: bool,
    held: Vec<(RecordKind, Vec<u8>, Saved)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl TestKeeper {
    /// For a namespace.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Keeper> {
        Arc::new(self.clone())
    }

    /// Saves wait from now on.
    pub fn hold(&self) {
        self.0.0.lock().unwrap().is_holding = true;
    }

    /// Saves fail from now on, or no longer.
    pub fn fail(&self, is_failing: bool) {
        self.0.0.lock().unwrap().is_failing = is_failing;
    }

    /// A record as it is on stable storage.
    #[must_use]
    pub fn record(&self, kind: RecordKind) -> Option<Vec<u8>> {
        self.0.0.lock().unwrap().records.get(&kind).cloned()
    }

    /// Returns once a save waits.
    pub fn wait_held(&self) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, PATIENCE, |state| state.held.is_empty());
        assert!(!waited.unwrap().0.held.is_empty(), "no save came");
    }

    /// Lets the saves that wait go, and those to come.
    pub fn release(&self) {
        let held = {
            let mut state = self.0.0.lock().unwrap();
            state.is_holding = false;
            std::mem::take(&mut state.held)
        };
        for (kind, bytes, saved) in held {
            self.0.0.lock().unwrap().records.insert(kind, bytes);
            saved(Ok(()));
        }
    }
}

impl Keeper for TestKeeper {
    fn is_durable(&self) -> bool {
        true
    }

    fn save(&self, kind: RecordKind, bytes: Vec<u8>, saved: Saved) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        if state.is_failing {
            drop(state);
            let why = "the test says so".to_owned();
            return saved(Err(KeepError { kind, why }));
        }
        if state.is_holding {
            state.held.push((kind, bytes, saved));
            return changed.notify_all();
        }
        state.records.insert(kind, bytes);
        drop(state);
        saved(Ok(()));
    }

    fn load(&self, kind: RecordKind) -> Result<Option<Vec<u8>>, KeepError> {
        Ok(self.0.0.lock().unwrap().records.get(&kind).cloned())
    }
}
