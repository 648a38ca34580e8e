//! Namespaces come and go while others are served.
//!
//! A namespace leaves in two steps, because engines fetch frames for each other: every engine retires it and says when its own requests have ended;
//! when all have, every engine detaches it, which closes its handles.

use std::sync::Arc;

use super::{Engine, EngineError};
use crate::attached::Attached;
use crate::shared::Backing;
use crate::{Namespace, NamespaceKey};

impl Engine {
    /// Takes a namespace in, with its parts: opens a handle to each of their stores.
    ///
    /// # Errors
    /// A store that gives no handle; a key that is here already. The engine is as before.
    pub fn attach(&mut self, namespace: &Arc<Namespace>) -> Result<(), EngineError> {
        if self.attached.find(namespace.key).is_some() {
            return Err(EngineError::Twice { key: namespace.key });
        }
        let open = |of: &Arc<Namespace>, first_lba| {
            let telemetry = &self.parts.telemetry;
            Attached::new(
                of,
                namespace,
                first_lba,
                &self.ring,
                telemetry,
                self.ahead_bytes,
            )
        };
        let mut attached = open(namespace, 0)?;
        if let Backing::Mixed(mixed) = &namespace.backing {
            let parts = mixed.parts().iter();
            let parts: Vec<Attached> = parts
                .map(|part| open(&part.namespace, part.first_lba))
                .collect::<Result<_, _>>()?;
            attached.part_places = parts
                .into_iter()
                .map(|part| self.attached.add(part))
                .collect();
        }
        self.attached.add(attached);
        self.parts.share(self.attached.count() > 1);
        Ok(())
    }

    /// Takes no more requests for a namespace. Those that are there go on, as do frames that others ask this engine for; what nobody waits for is
    /// given up, and an order of what to fetch ends.
    pub fn retire(&mut self, key: NamespaceKey) {
        let places: Vec<usize> = self.places_of(key).collect();
        for index in places {
            let attached = &mut self.attached[index];
            attached.retired = true;
            if let Some(ahead) = &mut attached.ahead {
                ahead.retire();
                self.frames.cancel_ahead(attached);
                self.fetches.cancel(index, attached);
            }
        }
        // What was given up is told with the next poll.
        self.again = true;
    }

    /// Whether none of this engine's requests is about the namespace.
    #[must_use]
    pub fn is_drained(&self, key: NamespaceKey) -> bool {
        self.places_of(key)
            .all(|index| self.attached[index].requests == 0)
    }

    /// Asks to end the requests of a namespace early; each is answered all the same.
    pub fn cancel_all(&mut self, key: NamespaceKey) {
        let places: Vec<usize> = self.places_of(key).collect();
        for slot in 0..self.requests.len() {
            let request = &self.requests[slot];
            if places.contains(&request.attached) && request.is_taken() {
                self.cancel_slot(slot);
            }
        }
    }

    /// Closes the handles of a namespace that every engine has retired and drained. When nothing is left of it, [`Engine::poll`] lets it go, and
    /// [`Engine::is_attached`] says so.
    pub fn detach(&mut self, key: NamespaceKey) {
        let places: Vec<usize> = self.places_of(key).collect();
        for index in places {
            let attached = &mut self.attached[index];
            attached.retired = true;
            attached.closing = true;
            for store in &mut attached.stores {
                store.close();
            }
        }
    }

    /// Whether anything of a namespace is here.
    #[must_use]
    pub fn is_attached(&self, key: NamespaceKey) -> bool {
        self.attached.has_of(key)
    }

    /// Lets go of namespaces whose handles have closed.
    pub(super) fn let_closed_go(&mut self) {
        for index in 0..self.attached.places() {
            let is_over = self
                .attached
                .get_mut(index)
                .is_some_and(|attached| attached.is_closed());
            if !is_over || self.frames.uses(index) {
                continue;
            }
            let Some(attached) = self.attached.remove(index) else {
                continue;
            };
            if let Backing::View { volume, .. } = &attached.shared.backing {
                self.parts.cache.forget(volume.id());
            }
            self.parts.cache.forget(attached.shared.ahead.id());
            self.waiting.retain(|waiting| *waiting != index);
            self.parts.share(self.attached.count() > 1);
        }
    }
}
