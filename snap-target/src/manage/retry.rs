//! What is to be served and could not be had: told by health, and tried again.

use admin_proto::v1::{HealthCode, ListenerChange, NamespaceChange};
use nvme::nqn::Nqn;

use super::steps::{Step, listen, take};
use super::{ListenerLive, ManageError, Manager, NamespaceLive, listeners, namespaces};
use crate::config::{ListenerConfig, NamespaceConfig};
use crate::desired::PortId;
use crate::health::Phase;

impl Manager {
    /// Tries everything again that could not be had. For every few seconds, and after a change, which may be what was missing.
    pub fn retry_failed(&mut self) {
        if self.health.phase() == Phase::Draining {
            return;
        }
        for (nqn, nsid) in self.failed_namespaces() {
            let Some(config) = self.desired.namespace(&nqn, nsid).cloned() else {
                continue;
            };
            if self.serve_namespace(&nqn, &config).is_ok()
                && let Some(served) = self.live.served(&nqn, nsid)
            {
                let news =
                    namespaces::news(NamespaceChange::Recovered, &nqn, served, "can be served");
                self.tell(vec![news]);
            }
        }
        for port_id in self.failed_listeners() {
            let Some(config) = self.desired.listeners.get(&port_id).cloned() else {
                continue;
            };
            if self.serve_listener(&config).is_ok() {
                let address = self.live_listener(port_id).unwrap_or(config.address);
                let news = listeners::news(ListenerChange::Added, port_id, address);
                self.tell(vec![news]);
            }
        }
    }

    fn failed_namespaces(&self) -> Vec<(Nqn, u32)> {
        let all = self.live.namespaces.iter();
        all.filter(|(_, it)| matches!(it, NamespaceLive::Failed(_)))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn failed_listeners(&self) -> Vec<PortId> {
        let all = self.live.listeners.iter();
        all.filter(|(_, it)| matches!(it, ListenerLive::Failed))
            .map(|(port_id, _)| *port_id)
            .collect()
    }

    /// Serves a namespace, or has it among those that failed.
    pub(super) fn serve_namespace(
        &mut self,
        nqn: &Nqn,
        config: &NamespaceConfig,
    ) -> Result<(), ManageError> {
        let subject = namespaces::subject(nqn, config.nsid);
        let served = self.open(nqn, config).and_then(|namespace| {
            let step = Step::Attach(nqn.clone(), namespace, config.visibility.clone());
            take(&*self.frontend, &mut self.live, step).map(|_nothing_closes| ())
        });
        match &served {
            Ok(()) => self.health.well(&subject),
            Err(error) => {
                let failed = NamespaceLive::Failed(error.to_string());
                self.live
                    .namespaces
                    .insert((nqn.clone(), config.nsid), failed);
                self.health
                    .problem(&subject, HealthCode::SourceUnusable, error.to_string());
            }
        }
        served
    }

    /// The same for a listener.
    pub(super) fn serve_listener(&mut self, config: &ListenerConfig) -> Result<(), ManageError> {
        let subject = listeners::subject(config.port_id);
        let listening = listen(config.address).and_then(|listener| {
            let step = Step::AddListener(config.port_id, listener);
            take(&*self.frontend, &mut self.live, step).map(|_nothing_closes| ())
        });
        match &listening {
            Ok(()) => self.health.well(&subject),
            Err(error) => {
                self.live
                    .listeners
                    .insert(config.port_id, ListenerLive::Failed);
                self.health
                    .problem(&subject, HealthCode::Listener, error.to_string());
            }
        }
        listening
    }
}
