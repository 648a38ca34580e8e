//! Where hosts connect, and where else they are sent.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use admin_proto::v1::{self, HealthCode, ListenerChange, ObjectKind, Reason, event::Kind};

use super::steps::Step;
use super::{FunctionLive, ManageError, Manager, News};
use crate::config::{ListenerConfig, Place, ReferralConfig};
use crate::desired::PortId;
use crate::limits::{LISTENERS_MAX, REFERRALS_MAX};

/// What health calls that there is none.
const NO_LISTENER_SUBJECT: &str = "listeners";

impl Manager {
    /// Listens at an address. Returns the port id: the lowest free one where none is given.
    ///
    /// # Errors
    /// It is there already, there are as many as may be, or the system refuses the address, with its words.
    pub fn add_listener(
        &mut self,
        place: Place,
        port_id: Option<PortId>,
    ) -> Result<PortId, ManageError> {
        self.may_change()?;
        let all = &self.desired.listeners;
        if all.len() >= LISTENERS_MAX {
            return Err(ManageError::new(
                Reason::Limit,
                format!(
                    "there are {LISTENERS_MAX} listeners, and no more are possible; remove one first"
                ),
            ));
        }
        let free = (1..=PortId::MAX).find(|id| !all.contains_key(id));
        let port_id = port_id.or(free).unwrap_or(PortId::MAX);
        if all.contains_key(&port_id) {
            return Err(ManageError::new(
                Reason::PortIdTaken,
                format!("there is a listener with port id {port_id} already; take another one"),
            )
            .about(ObjectKind::Listener, port_id));
        }
        if let Some((name, _)) = (self.live.functions.iter())
            .find(|(_, live)| matches!(live, FunctionLive::Open(number) if *number == port_id))
        {
            return Err(ManageError::new(
                Reason::PortIdTaken,
                format!("port id {port_id} stands for function {name}; take another one"),
            )
            .about(ObjectKind::Function, name));
        }
        let taken = all.keys().any(|id| self.live_listener(*id) == Some(place));
        if taken {
            return Err(ManageError::new(
                Reason::AddressTaken,
                format!("there is a listener at {place} already"),
            )
            .about(ObjectKind::Listener, place));
        }
        // With the port in force, so that it is the same one after a restart.
        let (place, listener) = self.ports.open(place)?;
        let mut next = self.desired.clone();
        let config = ListenerConfig { place, port_id };
        next.listeners.insert(port_id, config);
        let step = Step::AddListener(port_id, place, listener);
        let news = news(ListenerChange::Added, port_id, place);
        let _nothing_closes = self.commit(next, step, vec![news])?;
        self.check_reachable();
        Ok(port_id)
    }

    /// Tells health whether there is a listener at all. Those that cannot be opened it knows one by one.
    pub(super) fn check_reachable(&self) {
        if !self.desired.listeners.is_empty() {
            self.health.well(NO_LISTENER_SUBJECT);
            return;
        }
        let text = "there is no listener: no host can connect".to_owned();
        self.health
            .problem(NO_LISTENER_SUBJECT, HealthCode::NoListener, text);
    }

    /// Tells of the listeners that were opened and take no connections at present, and that those which do again are well.
    pub(super) fn look_at_listeners(&mut self) {
        let mut deaf = BTreeSet::new();
        for (port_id, trouble) in &self.live.troubles {
            if let Some(why) = trouble.now() {
                let id = subject(*port_id);
                self.health.problem(&id, HealthCode::Listener, why);
                deaf.insert(*port_id);
            }
        }
        for well in self.deaf.difference(&deaf) {
            self.health.well(&subject(*well));
        }
        self.deaf = deaf;
    }

    /// Stops listening; connections that are made stay.
    ///
    /// # Errors
    /// What is named is not there, or is the only one and that is not forced.
    pub fn remove_listener(&mut self, port_id: PortId, force: bool) -> Result<(), ManageError> {
        self.may_change()?;
        let mut next = self.desired.clone();
        let config = next.listeners.remove(&port_id).ok_or_else(|| {
            ManageError::new(Reason::NoListener, format!(
                "there is no listener with port id {port_id}; `snapctl listener list` shows those that are there"
            ))
            .about(ObjectKind::Listener, port_id)
        })?;
        if next.listeners.is_empty() && !force {
            return Err(ManageError::new(
                Reason::LastListener,
                format!("listener {port_id} is the only one: without it no host can connect; add another one first, or force it if that is meant"),
            )
            .about(ObjectKind::Listener, port_id));
        }
        let place = self.live_listener(port_id).unwrap_or(config.place);
        let news = news(ListenerChange::Removed, port_id, place);
        let _nothing_closes = self.commit(next, Step::RemoveListener(port_id), vec![news])?;
        self.health.well(&subject(port_id));
        self.check_reachable();
        Ok(())
    }

    /// Names another discovery service.
    ///
    /// # Errors
    /// It is there already, or there are as many as may be.
    pub fn add_referral(&mut self, address: SocketAddr, port_id: u16) -> Result<(), ManageError> {
        self.may_change()?;
        let mut next = self.desired.clone();
        if next.referrals.len() >= REFERRALS_MAX {
            return Err(ManageError::new(
                Reason::Limit,
                format!(
                    "there are {REFERRALS_MAX} referrals, and no more are possible; remove one first"
                ),
            ));
        }
        let config = ReferralConfig { address, port_id };
        if next.referrals.insert(address, config).is_some() {
            return Err(ManageError::new(
                Reason::ReferralExists,
                format!("there is a referral to {address} already"),
            )
            .about(ObjectKind::Referral, address));
        }
        let step = Step::SetReferrals(next.referrals.values().cloned().collect());
        let news = news(ListenerChange::ReferralAdded, port_id, address.into());
        self.commit(next, step, vec![news])
            .map(|_nothing_closes| ())
    }

    /// Takes it out of the discovery log.
    ///
    /// # Errors
    /// What is named is not there.
    pub fn remove_referral(&mut self, address: SocketAddr) -> Result<(), ManageError> {
        self.may_change()?;
        let mut next = self.desired.clone();
        let config = next.referrals.remove(&address).ok_or_else(|| {
            ManageError::new(
                Reason::NoReferral,
                format!("there is no referral to {address}"),
            )
            .about(ObjectKind::Referral, address)
        })?;
        let step = Step::SetReferrals(next.referrals.values().cloned().collect());
        let news = news(
            ListenerChange::ReferralRemoved,
            config.port_id,
            address.into(),
        );
        self.commit(next, step, vec![news])
            .map(|_nothing_closes| ())
    }
}

/// What health calls a listener.
pub fn subject(port_id: PortId) -> String {
    format!("listener {port_id}")
}

pub(super) fn news(change: ListenerChange, port_id: PortId, place: Place) -> News {
    let event = v1::ListenerEvent {
        change: change.into(),
        port_id: port_id.into(),
        address: place.address.to_string(),
        transport: v1::Transport::from(place.fabric).into(),
    };
    let text = match change {
        ListenerChange::Added => format!("listening at {place}, port id {port_id}"),
        ListenerChange::Removed => format!("no longer listening at {place}"),
        ListenerChange::ReferralAdded => format!("hosts are referred to {place}"),
        _ => format!("hosts are no longer referred to {place}"),
    };
    (Kind::Listener(event), text)
}
