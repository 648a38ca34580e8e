//! The lives of the subsystems, which go on after the daemon where it has a state folder.

use frontend_nvme::Life;
use nvme::nqn::Nqn;

use super::Manager;
#[cfg(doc)]
use crate::limits::LIFE_INTERVAL;

impl Manager {
    /// What a subsystem brings that is about to be served.
    pub(super) fn life(&self, nqn: &Nqn, is_new: bool) -> Life {
        let lives = self.lives.as_ref();
        lives.map_or_else(Life::default, |it| it.open(nqn, is_new))
    }

    /// What was opened is served from now on: the next start finds it running, unless it was drained.
    pub fn begin_lives(&self) {
        if let Some(lives) = &self.lives {
            lives.begin();
        }
    }

    /// Has saved what was counted; every [`LIFE_INTERVAL`].
    pub fn save_lives(&self) {
        if let Some(lives) = &self.lives
            && let Ok(lifetimes) = self.frontend.lifetimes()
        {
            lives.save(lifetimes);
        }
    }

    /// The end that the next start does not count as an unsafe shutdown.
    pub(super) fn end_lives(&self) {
        let Some(lives) = &self.lives else { return };
        match self.frontend.lifetimes() {
            Ok(lifetimes) => lives.end(lifetimes),
            Err(error) => {
                tracing::warn!(%error, "what subsystems have counted last is not saved");
            }
        }
    }

    /// A subsystem is gone.
    pub(super) fn forget_life(&self, nqn: &Nqn) {
        if let Some(lives) = &self.lives {
            lives.forget(nqn);
        }
    }
}
