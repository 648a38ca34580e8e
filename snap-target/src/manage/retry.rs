//! What is to be served and could not be had: told by health, and tried again.

use admin_proto::v1::{HealthCode, ListenerChange, NamespaceChange, Reason};
use nvme::nqn::Nqn;

use super::opening::Opened;
use super::steps::{Step, take};
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
        self.save_again();
        for (nqn, nsid) in self.failed_namespaces() {
            let Some(config) = self.desired.namespace(&nqn, nsid).cloned() else {
                continue;
            };
            self.try_again(nqn, config);
        }
        self.retry_functions();
        for port_id in self.failed_listeners() {
            let Some(config) = self.desired.listeners.get(&port_id).cloned() else {
                continue;
            };
            if self.serve_listener(&config).is_ok() {
                let place = self.live_listener(port_id).unwrap_or(config.place);
                let news = listeners::news(ListenerChange::Added, port_id, place);
                self.tell(vec![news]);
            }
        }
    }

    /// Opens it on a thread of its own, and serves it when it is open. One that is being opened, or that hangs, is not opened once more.
    fn try_again(&mut self, nqn: Nqn, config: NamespaceConfig) {
        let key = (nqn.clone(), config.nsid);
        if self.openings.is_silent(&config) || !self.retrying.insert(key.clone()) {
            return;
        }
        let asked = config.clone();
        let then = move |manager: &mut Self, opened: Result<Opened, ManageError>| {
            manager.retrying.remove(&key);
            // It may have been detached meanwhile, or attached as something else.
            let is_asked = manager.desired.namespace(&nqn, asked.nsid) == Some(&asked);
            if !is_asked || manager.live.served(&nqn, asked.nsid).is_some() {
                return;
            }
            if manager.serve_opened(&nqn, &asked, opened).is_err() {
                return;
            }
            manager.cut_is_made(&nqn, asked.nsid);
            if let Some(served) = manager.live.served(&nqn, asked.nsid) {
                let change = NamespaceChange::Recovered;
                let news = namespaces::news(change, &nqn, served, "can be served");
                manager.tell(vec![news]);
            }
        };
        self.open_then(&config, None, Box::new(then));
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
        let opened = self.open_waiting(config);
        self.serve_opened(nqn, config, opened)
    }

    /// The same of what was opened, or could not be.
    fn serve_opened(
        &mut self,
        nqn: &Nqn,
        config: &NamespaceConfig,
        opened: Result<Opened, ManageError>,
    ) -> Result<(), ManageError> {
        let subject = namespaces::subject(nqn, config.nsid);
        let served = opened.and_then(|opened| {
            let (namespace, nodes) = self.admit(nqn, config, opened)?;
            let step = Step::Attach(nqn.clone(), namespace, nodes, config.visibility.clone());
            take(&*self.frontend, &mut self.live, step).map(|_nothing_closes| ())
        });
        self.list_attached();
        match &served {
            Ok(()) => self.health.well(&subject),
            Err(error) => {
                let text = error.to_string();
                let failed = NamespaceLive::Failed(text.clone());
                let key = (nqn.clone(), config.nsid);
                if self.live.namespaces.insert(key, failed).is_none() {
                    // Whoever is told of the error logs it.
                    let (kind, text) = namespaces::failed_news(nqn, config, &text);
                    self.events.publish(kind, text);
                }
                let code = match error.reason {
                    Reason::SourceSilent => HealthCode::SourceSilent,
                    _ => HealthCode::SourceUnusable,
                };
                self.health.problem(&subject, code, text);
            }
        }
        served
    }

    /// The same for a listener.
    pub(super) fn serve_listener(&mut self, config: &ListenerConfig) -> Result<(), ManageError> {
        let subject = listeners::subject(config.port_id);
        let listening = self.ports.open(config.place).and_then(|(place, listener)| {
            let step = Step::AddListener(config.port_id, place, listener);
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
