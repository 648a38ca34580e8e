//! Turns what happens at the target into events.

use std::collections::HashMap;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use admin_proto::v1::{
    self, ControllerChange, GoneReason, HostChange, NamespaceChange, RefusedReason, event::Kind,
};
use frontend_nvme::{ConnectRefused, Gone, Losses, TargetEvent};
use nvme::controller::ControllerId;
use nvme::nqn::Nqn;
use nvme::queue::QueueId;
use nvme_spec::Status;

use crate::events::Hub;
use crate::refusals::{Refusals, ToldRefusals};

/// Watches on a thread of its own until the target has ended.
///
/// # Errors
/// No thread can be had.
pub fn start(
    happened: Receiver<TargetEvent>,
    losses: Losses,
    refusals: Refusals,
    events: Hub,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("events".to_owned());
    thread.spawn(move || {
        let mut watch = Watch {
            events,
            losses,
            refusals,
            told: ToldRefusals::default(),
            lost: 0,
            controllers: HashMap::new(),
            of_host: HashMap::new(),
        };
        while let Ok(event) = happened.recv() {
            watch.note_losses();
            watch.tell(event);
        }
    })?;
    Ok(())
}

struct Watch {
    events: Hub,
    losses: Losses,
    refusals: Refusals,
    told: ToldRefusals,
    /// Of which the subscribers were told.
    lost: u64,
    /// Who is connected.
    controllers: HashMap<ControllerId, Peer>,
    /// Controllers of a host in a subsystem.
    of_host: HashMap<(String, String), usize>,
}

#[derive(Clone)]
struct Peer {
    subsystem: String,
    host: String,
    address: String,
}

impl Watch {
    /// What found the channel full came after what is still in it.
    fn note_losses(&mut self) {
        let lost = self.losses.so_far();
        if lost > self.lost {
            tracing::warn!(
                lost = lost - self.lost,
                "more happened at once than is told"
            );
            self.lost = lost;
            self.events.not_noted();
        }
    }

    fn tell(&mut self, event: TargetEvent) {
        match event {
            TargetEvent::HostConnected {
                controller,
                subsystem,
                host,
                peer,
                ..
            } => {
                let peer = Peer {
                    subsystem: subsystem_name(subsystem.as_ref()),
                    host: host.to_string(),
                    address: peer.to_string(),
                };
                self.controllers.insert(controller, peer.clone());
                self.controller(ControllerChange::Connected, controller, None, STAYS);
                let key = (peer.subsystem.clone(), peer.host.clone());
                let count = self.of_host.entry(key).or_default();
                *count += 1;
                if *count == 1 {
                    self.host(HostChange::Connected, &peer);
                }
            }
            TargetEvent::HostGone {
                controller, why, ..
            } => self.gone(controller, why),
            TargetEvent::QueueConnected { controller, queue } => {
                let queue = Some(queue);
                self.controller(ControllerChange::QueueConnected, controller, queue, STAYS);
            }
            TargetEvent::QueueClosed { controller, queue } => {
                self.controller(ControllerChange::QueueGone, controller, Some(queue), STAYS);
            }
            TargetEvent::HostRefused(refused) => self.refused(&refused, Instant::now()),
            TargetEvent::ReservationChanged {
                subsystem, nsid, ..
            } => self.reservation(&subsystem, nsid),
            // A newer frontend tells more than this daemon has words for.
            _ => {}
        }
    }

    fn gone(&mut self, controller: ControllerId, why: Gone) {
        let reason = match why {
            Gone::HostLeft => GoneReason::HostLeft,
            Gone::ProtocolError => GoneReason::ProtocolError,
            Gone::Disconnected => GoneReason::ConnectionLost,
            Gone::KeepAliveExpired => GoneReason::KeepAliveExpired,
            Gone::Ended => GoneReason::Ended,
        };
        self.controller(ControllerChange::Gone, controller, None, reason);
        let Some(peer) = self.controllers.remove(&controller) else {
            return;
        };
        let key = (peer.subsystem.clone(), peer.host.clone());
        if let Some(count) = self.of_host.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.of_host.remove(&key);
                self.host(HostChange::Gone, &peer);
            }
        }
    }

    /// Counted each time, told once in a while for a host, a subsystem and a reason.
    fn refused(&mut self, refused: &ConnectRefused, now: Instant) {
        let reason = reason_of(refused);
        self.refusals.count(reason);
        let name = |nqn: Option<&Nqn>| nqn.map(Nqn::to_string).unwrap_or_default();
        let (subsystem_nqn, host_nqn) = (
            name(refused.subsystem.as_ref()),
            name(refused.host.as_ref()),
        );
        let key = (subsystem_nqn.clone(), host_nqn.clone(), reason as i32);
        let Some(times) = self.told.times(key, now) else {
            return;
        };
        let peer = refused.peer;
        let why = match reason {
            RefusedReason::NotAllowed => "it is not on the list of hosts",
            RefusedReason::NoSubsystem => "there is no such subsystem",
            RefusedReason::Limit => "it, or the subsystem, has as many connections as it may",
            _ => "its Connect is not one that this target takes",
        };
        let status = refused.status;
        let text = format!(
            "host {host_nqn} at {peer} may not connect to {subsystem_nqn}: {why} ({status}); tried {times} times since this was said last"
        );
        tracing::warn!("{text}");
        let event = v1::HostRefusedEvent {
            subsystem_nqn,
            host_nqn,
            peer_address: peer.to_string(),
            reason: reason.into(),
            times,
        };
        self.events.publish(Kind::HostRefused(event), text);
    }

    fn reservation(&self, subsystem: &Nqn, nsid: u32) {
        let event = v1::NamespaceEvent {
            change: NamespaceChange::Reservation.into(),
            subsystem_nqn: subsystem.to_string(),
            nsid,
            ..v1::NamespaceEvent::default()
        };
        let text = format!("reservations of namespace {nsid} of {subsystem} changed");
        self.events.publish(Kind::Namespace(event), text);
    }

    fn controller(
        &self,
        change: ControllerChange,
        id: ControllerId,
        queue: Option<QueueId>,
        reason: GoneReason,
    ) {
        let (subsystem_nqn, host_nqn, peer_address) = match self.controllers.get(&id) {
            Some(peer) => (
                peer.subsystem.clone(),
                peer.host.clone(),
                peer.address.clone(),
            ),
            None => Default::default(),
        };
        let what = match change {
            ControllerChange::Connected => "connected".to_owned(),
            ControllerChange::QueueConnected => "has another queue".to_owned(),
            ControllerChange::QueueGone => "has a queue less".to_owned(),
            _ => format!("is gone: {}", why(reason)),
        };
        let text = format!("controller {} of {host_nqn} {what}", id.0);
        let event = v1::ControllerEvent {
            change: change.into(),
            cntlid: id.0.into(),
            subsystem_nqn,
            host_nqn,
            qid: queue.map(|queue| queue.0.into()),
            peer_address,
            reason: reason.into(),
        };
        self.events.publish(Kind::Controller(event), text);
    }

    fn host(&self, change: HostChange, peer: &Peer) {
        let what = match change {
            HostChange::Connected => "connected to",
            _ => "is gone from",
        };
        let event = v1::HostEvent {
            change: change.into(),
            subsystem_nqn: peer.subsystem.clone(),
            host_nqn: peer.host.clone(),
        };
        let text = format!("{} {what} {}", peer.host, peer.subsystem);
        self.events.publish(Kind::Host(event), text);
    }
}

/// Of a controller that is not gone.
const STAYS: GoneReason = GoneReason::Unspecified;

fn reason_of(refused: &ConnectRefused) -> RefusedReason {
    // Without the bits beside the code: DNR, CRD.
    let code = |status: Status| (status.sct(), status.sc());
    let status = code(refused.status);
    if status == code(Status::CONNECT_INVALID_HOST) {
        RefusedReason::NotAllowed
    } else if status == code(Status::CONNECT_CONTROLLER_BUSY) {
        RefusedReason::Limit
    } else if !refused.is_known && refused.subsystem.is_some() {
        RefusedReason::NoSubsystem
    } else {
        RefusedReason::Invalid
    }
}

fn why(reason: GoneReason) -> &'static str {
    match reason {
        GoneReason::HostLeft => "its host shut it down",
        GoneReason::ConnectionLost => "its connection was lost",
        GoneReason::KeepAliveExpired => "it was not heard of in time",
        GoneReason::Ended => "it was ended here",
        GoneReason::ProtocolError => "it broke the protocol",
        GoneReason::Unspecified => "it is not known why",
    }
}

fn subsystem_name(subsystem: Option<&Nqn>) -> String {
    subsystem.map_or_else(|| Nqn::discovery().to_string(), Nqn::to_string)
}
