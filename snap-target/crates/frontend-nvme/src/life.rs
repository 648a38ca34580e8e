//! The life of a subsystem, longer than that of the target.

use std::fmt;
use std::sync::Arc;

use nvme::controller::Lifetime;

/// Told, once and on any thread, whether a life is on stable storage.
pub type LifeSaved = Box<dyn FnOnce(bool) + Send>;

/// Keeps the life of one subsystem.
///
/// Contract: [`LifeKeeper::save`] never blocks. Lives are saved in their order; after a crash at any moment the one that is found is the last whose `saved`
/// was told of success, or a later one.
pub trait LifeKeeper: Send + Sync + fmt::Debug {
    /// Saves a life as it is now, because a host is to be told of it.
    fn save(&self, lifetime: Lifetime, saved: LifeSaved);
}

/// What a subsystem that is made brings with it. By default its life begins, and ends with the target.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// Until now.
    pub lifetime: Lifetime,
    /// Who keeps it, where it is to go on after the target.
    pub keeper: Option<Arc<dyn LifeKeeper>>,
}
