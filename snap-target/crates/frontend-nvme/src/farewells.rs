//! Connections that this end has ended, until their hosts know: those of one reactor. Nobody waits for them.

use std::collections::HashMap;

use reactor::{OwnerId, ReactorError, Ring, Wait};

use crate::link::Farewell;

/// See the module.
pub struct Farewells {
    ring: Ring,
    /// By its owner's name.
    under_way: HashMap<OwnerId, Box<dyn Farewell>>,
    limit: usize,
}

impl Farewells {
    /// None yet; so many at a time.
    #[must_use]
    pub fn new(ring: &Ring, limit: usize) -> Self {
        Self {
            ring: ring.clone(),
            under_way: HashMap::new(),
            limit,
        }
    }

    /// Takes what is left of a connection. Where there is no room for one more, it is cut off at once.
    pub fn begin(&mut self, mut farewell: Box<dyn Farewell>) {
        if self.under_way.len() >= self.limit {
            return tracing::debug!(limit = self.limit, "a connection is closed at once");
        }
        if let Some(owner) = farewell.begin() {
            self.under_way.insert(owner, farewell);
        }
    }

    /// Takes the events of an owner; false where it is none of these.
    pub fn ready(&mut self, owner: OwnerId) -> bool {
        let Some(farewell) = self.under_way.get_mut(&owner) else {
            return false;
        };
        if !farewell.goes_on() {
            self.under_way.remove(&owner);
        }
        true
    }

    /// Waits for the last of them, where the reactor does nothing else any more: for the time that the last has at most.
    ///
    /// # Errors
    /// The ring broke.
    pub fn finish(&mut self) -> Result<(), ReactorError> {
        while !self.under_way.is_empty() {
            self.ring.turn(Wait::Block { until: None })?;
            while let Some(owner) = self.ring.next_ready() {
                self.ready(owner);
            }
        }
        Ok(())
    }

    /// How many there are.
    #[cfg(feature = "inspection")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Whether there is none.
    #[cfg(feature = "inspection")]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }
}
