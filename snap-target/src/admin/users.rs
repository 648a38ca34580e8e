//! Who uses a namespace.

use std::time::{Duration, UNIX_EPOCH};

use admin_proto::v1;
use frontend_nvme::ControllerReport;
use namespace::Namespace;
use nvme::controller::Visibility;
use nvme::controller::reservation::HostId;
use nvme::nqn::Nqn;
use telemetry::Snapshot;

use crate::text::{hex, uuid_text};

/// Hosts that have a controller that sees it, and hosts with a registration, by NQN.
pub fn of(
    nqn: &Nqn,
    namespace: &Namespace,
    visibility: &Visibility,
    controllers: &[ControllerReport],
    counted: &Snapshot,
) -> Vec<v1::NamespaceHost> {
    let reservations = namespace.access.reservations();
    let mut users: Vec<(v1::NamespaceHost, HostId)> = Vec::new();
    let sees = |it: &&ControllerReport| {
        it.subsystem.as_ref() == Some(nqn) && visibility.includes(&it.host)
    };
    for controller in controllers.iter().filter(sees) {
        let id = HostId(controller.host_id);
        let name = controller.host.as_str();
        let known = users
            .iter_mut()
            .find(|(user, of)| *of == id && user.host_nqn == name);
        if let Some((user, _)) = known {
            user.controllers += 1;
            continue;
        }
        let user = v1::NamespaceHost {
            host_nqn: name.to_owned(),
            host_id: hex(&id.0),
            controllers: 1,
            last_io_at: last_io(nqn, namespace, name, counted),
            registrant: false,
            reservation_holder: false,
        };
        users.push((user, id));
    }
    for id in reservations.hosts() {
        if users.iter().all(|(_, of)| *of != id) {
            let user = v1::NamespaceHost {
                host_id: hex(&id.0),
                ..v1::NamespaceHost::default()
            };
            users.push((user, id));
        }
    }
    for (user, id) in &mut users {
        user.registrant = reservations.key_of(*id).is_some();
        user.reservation_holder = reservations.is_holder(*id);
    }
    let mut users: Vec<_> = users.into_iter().map(|(user, _)| user).collect();
    users.sort_by(|a, b| (&a.host_nqn, &a.host_id).cmp(&(&b.host_nqn, &b.host_id)));
    users
}

/// When a command of a host ended last there.
fn last_io(
    nqn: &Nqn,
    namespace: &Namespace,
    host: &str,
    counted: &Snapshot,
) -> Option<admin_proto::Timestamp> {
    let uuid = uuid_text(&namespace.identity.uuid);
    let row = counted.hosts.iter().find(|row| {
        row.subsystem == nqn.as_str()
            && row.host == host
            && row.nsid == namespace.nsid
            && row.uuid == uuid
    });
    let last_ns = row.map(|row| row.last_ns).filter(|ns| *ns > 0)?;
    let started = UNIX_EPOCH + Duration::from_nanos(counted.started_unix_ns);
    Some((started + Duration::from_nanos(last_ns)).into())
}
