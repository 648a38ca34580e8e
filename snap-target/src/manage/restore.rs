//! The start: what the configuration says, with what was made since.

use std::collections::BTreeSet;

use admin_proto::v1::HealthCode;
use anyhow::{Context, Result, anyhow};
use nvme::nqn::Nqn;

use super::opening::Openings;
use super::steps::{Step, take};
use super::{Foundation, Live, ManageError, Manager, STATE_SUBJECT};
use crate::config::{NamespaceConfig, Place, StartPolicy};
use crate::desired::Desired;
use crate::lives::Lives;
use crate::state::{Keepers, StateFolder};

impl Manager {
    /// Opens and serves everything, what the configuration names first. What cannot be had is a problem that health tells, and is tried again; what was made
    /// while serving and is now a second way to what the configuration serves is forgotten, and a line of the log says so.
    ///
    /// # Errors
    /// A subsystem or referral that cannot be made; with [`StartPolicy::All`] whatever the configuration names and cannot be had.
    pub fn restore(foundation: Foundation) -> Result<Self> {
        let Foundation {
            frontend,
            ports,
            policy,
            base,
            start,
            mut state,
            events,
            health,
            open_time_max,
            catalogue,
        } = foundation;
        let (mut desired, keepers, lives) = match &mut state {
            None => (base.clone(), None, None),
            Some(state) => {
                let (desired, overruled) = state.load()?.onto(&base);
                for what in overruled {
                    tracing::warn!("{what}");
                }
                let of_folder = || format!("the state folder {}", state.path().display());
                let keepers = Keepers::start(state.path()).with_context(of_folder)?;
                let lives = Lives::start(state.path(), health.clone()).with_context(of_folder)?;
                (desired, Some(keepers), Some(lives))
            }
        };
        let mut manager = Self {
            frontend,
            ports,
            policy,
            base,
            desired: desired.clone(),
            live: Live::default(),
            state,
            keepers,
            lives,
            events,
            health,
            actor: String::new(),
            as_of: 0,
            openings: Openings::new(open_time_max),
            catalogue,
            retrying: BTreeSet::new(),
            closing: Vec::new(),
            hidden: Vec::new(),
            damaged: BTreeSet::new(),
            ailing: BTreeSet::new(),
            deaf: BTreeSet::new(),
            resizing: Vec::new(),
            cuts: Vec::new(),
            set_size: store::set_file_size,
        };
        manager.serve_all(&mut desired, start)?;
        manager.save_at_start(&desired);
        manager.desired = desired;
        manager.check_reachable();
        manager.list_attached();
        Ok(manager)
    }

    fn serve_all(&mut self, desired: &mut Desired, start: StartPolicy) -> Result<()> {
        let referrals = desired.referrals.values().cloned().collect();
        self.serve_one(Step::SetReferrals(referrals))?;
        for (nqn, subsystem) in &desired.subsystems {
            let life = self.life(nqn, false);
            let made = Box::new((subsystem.body.clone(), life));
            self.serve_one(Step::CreateSubsystem(nqn.clone(), made))?;
        }
        let (said, made) = self.namespaces_by_origin(desired);
        for (nqn, config) in said {
            let served = self.serve_namespace(&nqn, &config);
            required(served, start)?;
        }
        for (nqn, config) in made {
            if let Some(why) = self.conflict(&nqn, &config) {
                tracing::warn!(%nqn, nsid = config.nsid, why, "a namespace that was made while serving is forgotten");
                if let Some(subsystem) = desired.subsystems.get_mut(&nqn) {
                    subsystem.namespaces.remove(&config.nsid);
                }
                continue;
            }
            let served = self.serve_namespace(&nqn, &config);
            let place = desired.subsystems.get_mut(&nqn);
            if let Some(config) = place.and_then(|it| it.namespaces.get_mut(&config.nsid))
                && served.is_ok()
            {
                config.cut = None;
            }
            required(served, StartPolicy::Available)?;
        }
        // Last: a host that connects finds everything.
        let (said, made): (Vec<_>, Vec<_>) = desired
            .listeners
            .values()
            .cloned()
            .partition(|it| self.base.listeners.get(&it.port_id) == Some(it));
        let places: Vec<Place> = said.iter().map(|it| it.place).collect();
        for config in said {
            let listening = self.serve_listener(&config);
            required(listening, start)?;
        }
        for config in made {
            if places.contains(&config.place) {
                tracing::warn!(address = %config.place, port_id = config.port_id, "a listener that was made while serving is forgotten: the configuration has its address");
                desired.listeners.remove(&config.port_id);
                continue;
            }
            let listening = self.serve_listener(&config);
            required(listening, StartPolicy::Available)?;
        }
        self.serve_functions(desired, start)
    }

    /// Those of the configuration first.
    fn serve_functions(&mut self, desired: &mut Desired, start: StartPolicy) -> Result<()> {
        let (said, made): (Vec<_>, Vec<_>) = desired
            .functions
            .values()
            .cloned()
            .partition(|it| self.base.functions.get(&it.name) == Some(it));
        let sockets: Vec<_> = said.iter().map(|it| it.socket.clone()).collect();
        for config in said {
            let served = self.serve_function(&config);
            required(served, start)?;
        }
        for config in made {
            if sockets.contains(&config.socket) {
                tracing::warn!(name = %config.name, socket = %config.socket.display(), "a function that was made while serving is forgotten: the configuration has its socket");
                desired.functions.remove(&config.name);
                continue;
            }
            let served = self.serve_function(&config);
            required(served, StartPolicy::Available)?;
        }
        Ok(())
    }

    /// Those of the configuration, and those that were made or changed since.
    fn namespaces_by_origin(&self, desired: &Desired) -> (Vec<Named>, Vec<Named>) {
        let all = desired.subsystems.iter().flat_map(|(nqn, subsystem)| {
            let namespaces = subsystem.namespaces.values();
            namespaces.map(|config| (nqn.clone(), config.clone()))
        });
        all.partition(|(nqn, config)| self.base.namespace(nqn, config.nsid) == Some(config))
    }

    /// Why a namespace cannot be served besides those that are; none also where it cannot be opened.
    fn conflict(&mut self, nqn: &Nqn, config: &NamespaceConfig) -> Option<String> {
        let opened = self.open_waiting(config).ok()?;
        let twins = self.check_twins(nqn, &opened);
        twins.err().map(|error| error.to_string())
    }

    /// What the file has overtaken is forgotten now: the file may come to say the old again, and mean it. Where nothing was overtaken nothing is saved,
    /// and a folder that cannot be written is known before the first change. What was served before is served all the same.
    fn save_at_start(&mut self, desired: &Desired) {
        if let Some(Err(error)) = self.state.as_ref().map(StateFolder::check_writable) {
            tracing::error!("{error}; until then changes are refused");
            self.health
                .problem(STATE_SUBJECT, HealthCode::StateFolder, error.to_string());
        } else if let Err(error) = self.save(desired) {
            tracing::error!(%error, "what the file has overtaken is not forgotten");
        }
    }

    fn serve_one(&mut self, step: Step) -> Result<(), ManageError> {
        take(&*self.frontend, &mut self.live, step).map(|_nothing_closes| ())
    }
}

/// A namespace, with its subsystem.
type Named = (Nqn, NamespaceConfig);

/// What cannot be had ends the start, or is a line of the log; health knows of it already.
fn required(served: Result<(), ManageError>, start: StartPolicy) -> Result<()> {
    match (served, start) {
        (Ok(()), _) => Ok(()),
        (Err(error), StartPolicy::All) => Err(anyhow!(error)),
        (Err(error), StartPolicy::Available) => {
            tracing::error!("{error}; the rest is served, and this is tried again");
            Ok(())
        }
    }
}
