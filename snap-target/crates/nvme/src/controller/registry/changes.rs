//! What is served changes while it is served; hosts are told.

use super::Registry;
use crate::controller::{
    ConfigError, Controller, ControllerId, HostPolicy, Listener, NamespaceSet, Referral, Subsystem,
    Target,
};
use crate::nqn::Nqn;
use std::sync::Arc;

impl Registry {
    /// One more subsystem, without namespaces.
    ///
    /// # Errors
    /// A name that is taken, or a subsystem that contradicts itself.
    pub fn add_subsystem(&mut self, subsystem: Subsystem) -> Result<(), ConfigError> {
        let target = self.target.with_subsystem(subsystem)?;
        self.namespaces.push(Arc::default());
        self.discovery_changed(target);
        Ok(())
    }

    /// One subsystem less: no host connects to it any more. Its controllers, which the caller has to end; none where no subsystem has that
    /// name.
    pub fn remove_subsystem(&mut self, nqn: &Nqn) -> Option<Vec<ControllerId>> {
        let place = self.place(nqn)?;
        self.namespaces.remove(place);
        self.health.remove(nqn);
        self.discovery_changed(self.target.without_subsystem(nqn));
        Some(self.ids_of(nqn, |_| true))
    }

    /// Which hosts may connect to a subsystem. The controllers of hosts that no longer may, which the caller has to end; none where no subsystem
    /// has that name. Functions stay: their hosts have not connected.
    pub fn set_hosts(&mut self, nqn: &Nqn, hosts: HostPolicy) -> Option<Vec<ControllerId>> {
        self.place(nqn)?;
        let denied = self.ids_of(nqn, |it| {
            it.transport().is_fabric() && !hosts.allows(it.host())
        });
        self.discovery_changed(self.target.with_hosts(nqn, &hosts));
        Some(denied)
    }

    /// The namespaces of a subsystem are now these; its hosts are told. Ask every controller for
    /// [`Controller::next_async_event`] afterwards. False where no subsystem has that name.
    pub fn set_namespaces(&mut self, nqn: &Nqn, namespaces: &Arc<NamespaceSet>) -> bool {
        let Some(place) = self.place(nqn).and_then(|at| self.namespaces.get_mut(at)) else {
            return false;
        };
        *place = Arc::clone(namespaces);
        for id in self.ids_of(nqn, |_| true) {
            if let Some(controller) = self.controller_mut(id) {
                let seen = namespaces.seen_by(controller.host());
                controller.set_namespaces(seen);
            }
        }
        true
    }

    /// The namespaces of a subsystem, as no host is kept from seeing them; none where no subsystem has that name.
    pub fn namespaces(&self, nqn: &Nqn) -> Option<&Arc<NamespaceSet>> {
        self.namespaces.get(self.place(nqn)?)
    }

    /// Where the target listens is now this; discovery controllers tell their hosts.
    pub fn set_listeners(&mut self, listeners: impl IntoIterator<Item = Listener>) {
        self.discovery_changed(self.target.with_listeners(listeners));
    }

    /// Other discovery services that hosts are told of are now these.
    pub fn set_referrals(&mut self, referrals: impl IntoIterator<Item = Referral>) {
        self.discovery_changed(self.target.with_referrals(referrals));
    }

    fn discovery_changed(&mut self, target: Target) {
        self.target = Arc::new(target);
        self.generation += 1;
        for connected in self.associations.values_mut() {
            connected
                .controller
                .set_target(&self.target, self.generation);
        }
    }

    fn place(&self, nqn: &Nqn) -> Option<usize> {
        let mut subsystems = self.target.subsystems().iter();
        subsystems.position(|subsystem| subsystem.nqn == *nqn)
    }

    /// Such controllers of a subsystem.
    fn ids_of(&self, nqn: &Nqn, is_such: impl Fn(&Controller) -> bool) -> Vec<ControllerId> {
        let of_subsystem = self.controllers().filter(|controller| {
            controller
                .subsystem()
                .is_some_and(|subsystem| subsystem.nqn == *nqn)
        });
        of_subsystem
            .filter(|controller| is_such(controller))
            .map(Controller::id)
            .collect()
    }
}
