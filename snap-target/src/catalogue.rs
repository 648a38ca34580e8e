//! What is attached, for those who must not wait for the manager.

use std::sync::{Arc, Mutex, PoisonError};

use telemetry::prometheus::Attached;

/// The namespaces as they were when the manager changed something last. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Catalogue(Arc<Mutex<Vec<Attached>>>);

impl Catalogue {
    /// These are attached from now on.
    pub fn set(&self, attached: Vec<Attached>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = attached;
    }

    /// What is attached.
    pub fn attached(&self) -> Vec<Attached> {
        let attached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attached.clone()
    }
}
