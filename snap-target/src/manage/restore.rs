//! The start: what the configuration says, with what was made since.

use anyhow::{Context, Result, anyhow};

use super::steps::{Step, listen, take};
use super::{Foundation, ListenerLive, Live, ManageError, Manager, STATE_SUBJECT, listeners};
use crate::desired::Desired;
use crate::state::{Keepers, StateFolder};

impl Manager {
    /// Opens and serves everything. What the configuration names and cannot be had ends the start; what the admin plane made and cannot be had is a problem
    /// that health tells, and is tried again at the next start.
    ///
    /// # Errors
    /// What cannot be had, and why.
    pub fn restore(foundation: Foundation) -> Result<Self> {
        let Foundation {
            frontend,
            policy,
            base,
            mut state,
            events,
            health,
        } = foundation;
        let (desired, keepers) = match &mut state {
            None => (base.clone(), None),
            Some(state) => {
                let (desired, dropped) = state.load()?.onto(&base);
                for what in dropped {
                    tracing::warn!("a change that was made while serving no longer holds: {what}");
                }
                let keepers = Keepers::start(state.path())
                    .with_context(|| format!("the state folder {}", state.path().display()))?;
                (desired, Some(keepers))
            }
        };
        let mut manager = Self {
            frontend,
            policy,
            base,
            desired: Desired::default(),
            live: Live::default(),
            state,
            keepers,
            events,
            health,
        };
        manager.serve_all(&desired)?;
        manager.save_at_start(&desired);
        manager.desired = desired;
        Ok(manager)
    }

    fn serve_all(&mut self, desired: &Desired) -> Result<()> {
        self.serve_one(Step::SetReferrals(
            desired.referrals.values().cloned().collect(),
        ))?;
        for (nqn, subsystem) in &desired.subsystems {
            self.serve_one(Step::CreateSubsystem(nqn.clone(), subsystem.body.clone()))?;
            for (nsid, config) in &subsystem.namespaces {
                let opened = self.open(nqn, config).and_then(|namespace| {
                    let sees = config.visibility.clone();
                    self.serve_one(Step::Attach(nqn.clone(), namespace, sees))
                });
                let said = self.base.namespace(nqn, *nsid) == Some(config);
                match opened {
                    Ok(()) => {}
                    Err(error) if said => return Err(anyhow!(error)),
                    Err(error) => {
                        tracing::error!(%nqn, nsid, %error, "not served");
                        self.mark_failed(nqn, *nsid, error.to_string());
                    }
                }
            }
        }
        // Last: a host that connects finds everything.
        for (port_id, config) in &desired.listeners {
            let opened = listen(config.address)
                .and_then(|listener| self.serve_one(Step::AddListener(*port_id, listener)));
            let said = self.base.listeners.get(port_id) == Some(config);
            match opened {
                Ok(()) => {}
                Err(error) if said => return Err(anyhow!(error)),
                Err(error) => {
                    tracing::error!(port_id, %error, "not listening");
                    self.health
                        .problem(&listeners::subject(*port_id), error.to_string());
                    self.live.listeners.insert(*port_id, ListenerLive::Failed);
                }
            }
        }
        Ok(())
    }

    /// What the file has overtaken is forgotten now: the file may come to say the old again, and mean it. Where nothing was overtaken nothing is saved,
    /// and a folder that cannot be written is known before the first change. What was served before is served all the same.
    fn save_at_start(&mut self, desired: &Desired) {
        if let Some(Err(error)) = self.state.as_ref().map(StateFolder::check_writable) {
            tracing::error!(%error, "changes are refused");
            self.health.problem(STATE_SUBJECT, error.to_string());
        } else if let Err(error) = self.save(desired) {
            tracing::error!(%error, "what the file has overtaken is not forgotten");
        }
    }

    fn serve_one(&mut self, step: Step) -> Result<(), ManageError> {
        take(&*self.frontend, &mut self.live, step)
    }
}
