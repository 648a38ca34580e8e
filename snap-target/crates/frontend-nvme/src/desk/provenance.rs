//! What a host is given, in the log: which view of which volume, and what is known of where its bytes come from.

use namespace::Namespace;
use nvme::controller::ControllerId;
use nvme::nqn::Nqn;

use super::Desk;

impl Desk {
    /// The host of a new controller is given all that it sees.
    pub(super) fn log_given(&mut self, id: ControllerId) {
        let Some(controller) = self.registry.controller(id) else {
            return;
        };
        let Some(subsystem) = controller.subsystem() else {
            return;
        };
        let (nqn, host) = (subsystem.nqn.clone(), controller.host().clone());
        for namespace in self.disks.seen_by(&nqn, &host) {
            log(&host, namespace);
        }
    }

    /// A namespace has come: the hosts that are connected and see it are given it.
    pub(super) fn log_given_to_connected(&mut self, nqn: &Nqn, namespace: &Namespace) {
        let connected = self.registry.controllers();
        let mut hosts: Vec<Nqn> = connected
            .filter(|controller| controller.subsystem().is_some_and(|it| it.nqn == *nqn))
            .map(|controller| controller.host().clone())
            .collect();
        hosts.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        hosts.dedup();
        for host in hosts {
            let seen = self.disks.seen_by(nqn, &host);
            if { seen }.any(|it| it.key == namespace.key) {
                log(&host, namespace);
            }
        }
    }
}

/// One line for each view; nothing is known of a raw store.
fn log(host: &Nqn, namespace: &Namespace) {
    for from in namespace.provenance() {
        tracing::info!(
            host = host.as_str(),
            nsid = namespace.nsid,
            first_lba = from.first_lba,
            view = from.view,
            volume = from.volume_uuid,
            lossy = from.lossy,
            manifest_sha256 = from.manifest_sha256,
            "a host is given a view"
        );
    }
}
