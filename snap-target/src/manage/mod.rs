//! The manager: one thread that knows what is to be served, and makes it so.
//!
//! Contract: requests are carried out one at a time. Each is checked completely, then what it needs is opened, then it is saved, then put in force, then
//! answered and told as events. A request that fails leaves what was served, and what was saved, as it was: hosts see nothing of a change that cannot be
//! kept. What may block for long - opening a source, changing a file's size, flushing at the end - happens on threads of its own
//! ([`opening`], [`drain`]), and other requests are carried out meanwhile; the state folder is this thread's, on no reactor and not on the admin service's thread.

mod closing;
mod cut;
pub mod damage;
mod drain;
mod error;
mod frontend;
mod functions;
mod hosts;
mod listeners;
mod lives;
mod namespaces;
mod opening;
mod resize;
mod restore;
mod retry;
mod steps;
mod stores;
mod subsystems;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use admin_proto::v1::{self, HealthCode, Reason, event::Kind};
use frontend_nvme::link::Trouble;
use frontend_nvme::{Closed, ControllerReport};
use namespace::{Backing, Namespace};
use nvme::controller::ControllerId;
use nvme::nqn::Nqn;
use telemetry::prometheus::Attached;
use volume::SourcePolicy;

pub use closing::ClosingDisk;
pub use error::ManageError;
pub use frontend::Frontend;
pub use namespaces::NewNamespace;
pub use resize::NewSize;
pub use thread::{Manage, start};

use crate::catalogue::Catalogue;
use crate::config::{FunctionName, Place, StartPolicy};
use crate::desired::{Desired, PortId};
use crate::events::Hub;
use crate::health::{Health, Phase};
use crate::identity::Nodes;
use crate::lives::Lives;
use crate::ports::Ports;
use crate::state::{Keepers, Overlay, StateFolder};
use crate::text::uuid_text;
use opening::Openings;
use steps::{Step, take};

/// See the module.
pub struct Manager {
    frontend: Box<dyn Frontend>,
    ports: Ports,
    policy: SourcePolicy,
    /// What the configuration says.
    base: Desired,
    /// What is to be served.
    desired: Desired,
    /// What is.
    live: Live,
    state: Option<StateFolder>,
    keepers: Option<Keepers>,
    lives: Option<Lives>,
    events: Hub,
    health: Health,
    catalogue: Catalogue,
    /// Sources that are being opened.
    openings: Openings,
    /// Namespaces that could not be served and are being opened again.
    retrying: BTreeSet<(Nqn, u32)>,
    /// Namespaces that are detached, and that stores have operations of.
    closing: Vec<ClosingDisk>,
    /// Namespaces that hosts see no longer, and that stores have operations of theirs of.
    hidden: Vec<closing::Hidden>,
    /// What health calls the namespaces whose damage it tells of.
    damaged: BTreeSet<String>,
    /// What health calls the namespaces whose stores it tells of.
    ailing: BTreeSet<String>,
    /// The same of listeners.
    deaf: BTreeSet<PortId>,
    /// Sources whose size is being changed.
    resizing: Vec<resize::Resizing>,
    /// Files that are to be cut once more.
    cuts: Vec<cut::CutAgain>,
    /// How files get their sizes.
    set_size: cut::SetSize,
    /// Whose request is being carried out; empty: nobody's.
    actor: String,
    /// The last event that the answer to it contains.
    as_of: u64,
}

/// What a manager starts from.
pub struct Foundation {
    /// The target.
    pub frontend: Box<dyn Frontend>,
    /// Where hosts connect.
    pub ports: Ports,
    /// Which files volumes may be mapped on.
    pub policy: SourcePolicy,
    /// What the configuration says.
    pub base: Desired,
    /// What a start needs.
    pub start: StartPolicy,
    /// Where changes are kept, if anywhere.
    pub state: Option<StateFolder>,
    /// Where events go.
    pub events: Hub,
    /// Where problems go.
    pub health: Health,
    /// How long a source may take to be opened.
    pub open_time_max: Duration,
    /// Where it is to be read what is attached.
    pub catalogue: Catalogue,
}

/// What is in force at the frontend.
#[derive(Debug, Default)]
pub struct Live {
    namespaces: BTreeMap<(Nqn, u32), NamespaceLive>,
    /// What the paths of those that are served lead to.
    nodes: BTreeMap<(Nqn, u32), Nodes>,
    listeners: BTreeMap<PortId, ListenerLive>,
    functions: BTreeMap<FunctionName, FunctionLive>,
    /// What listeners that are open may say later.
    troubles: BTreeMap<PortId, Trouble>,
}

/// A namespace that is to be served.
#[derive(Debug)]
pub enum NamespaceLive {
    /// It is.
    Served(Arc<Namespace>),
    /// Its source could not be opened: why.
    Failed(String),
}

/// A listener that is to be there.
#[derive(Debug)]
pub enum ListenerLive {
    /// It is, there, with the port in force.
    Open(Place),
    /// It could not be opened; health says why.
    Failed,
}

/// A function that is to be there.
#[derive(Debug)]
pub enum FunctionLive {
    /// It is; the frontend knows it by this number.
    Open(PortId),
    /// It is, and is a virtio disk.
    Disk,
    /// Its socket could not be had: why.
    Failed(String),
}

impl Live {
    fn function_number(&self, name: FunctionName) -> Option<PortId> {
        match self.functions.get(&name)? {
            FunctionLive::Open(number) => Some(*number),
            FunctionLive::Disk | FunctionLive::Failed(_) => None,
        }
    }

    fn served(&self, nqn: &Nqn, nsid: u32) -> Option<&Arc<Namespace>> {
        match self.namespaces.get(&(nqn.clone(), nsid))? {
            NamespaceLive::Served(namespace) => Some(namespace),
            NamespaceLive::Failed(_) => None,
        }
    }

    fn all_served(&self) -> impl Iterator<Item = (&Nqn, &Arc<Namespace>)> {
        self.namespaces
            .iter()
            .filter_map(|((nqn, _), it)| match it {
                NamespaceLive::Served(namespace) => Some((nqn, namespace)),
                NamespaceLive::Failed(_) => None,
            })
    }
}

/// What health calls the state folder.
const STATE_SUBJECT: &str = "state folder";

/// Why operations of a store are still under way behind a change that is in force, one line; none where there are none.
pub type StillClosing = Option<String>;

/// An event on its way: told when its change is in force.
type News = (Kind, String);

impl Manager {
    /// What is to be served.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// What the configuration says.
    pub fn base(&self) -> &Desired {
        &self.base
    }

    /// A namespace that is to be served, as it is.
    pub fn live_namespace(&self, nqn: &Nqn, nsid: u32) -> Option<&NamespaceLive> {
        self.live.namespaces.get(&(nqn.clone(), nsid))
    }

    /// Where a listener is, with the port in force; none if it could not be opened.
    pub fn live_listener(&self, port_id: PortId) -> Option<Place> {
        match self.live.listeners.get(&port_id)? {
            ListenerLive::Open(place) => Some(*place),
            ListenerLive::Failed => None,
        }
    }

    /// The controllers, by CNTLID.
    ///
    /// # Errors
    /// The daemon is ending.
    pub fn controllers(&self) -> Result<Vec<ControllerReport>, ManageError> {
        Ok(self.frontend.controllers()?)
    }

    /// Ends a controller and its connections.
    ///
    /// # Errors
    /// No such controller.
    pub fn end_controller(&mut self, id: u16) -> Result<StillClosing, ManageError> {
        self.may_change()?;
        let closed = self.frontend.end_controller(ControllerId(id))?;
        Ok(closing::of_controllers(&closed))
    }

    /// A request begins: its answer contains what happened before it, and its own events are somebody's.
    pub fn begin(&mut self, actor: String) {
        self.look_around();
        self.as_of = self.events.last();
        self.actor = actor;
    }

    /// Does what follows from what others have done since: stores that have closed, sources that are open.
    pub fn look_around(&mut self) {
        self.look_at_closing();
        self.look_at_cuts();
        self.look_at_damage();
        self.look_at_stores();
        self.look_at_listeners();
        self.hear_openings();
    }

    /// Whether others are to do something that is worth to be looked at.
    pub fn waits_for_others(&self) -> bool {
        let is_closing = !self.closing.is_empty() || !self.hidden.is_empty();
        is_closing || !self.cuts.is_empty() || !self.openings.is_idle()
    }

    /// It is answered.
    pub fn end(&mut self) {
        self.actor.clear();
    }

    /// What the answer to the request is true of.
    pub fn as_of(&self) -> v1::AsOf {
        self.events.as_of_event(self.as_of)
    }

    /// That a namespace is the disk that was meant, where one was.
    ///
    /// # Errors
    /// It is another one, or not known.
    pub fn expect(&self, nqn: &Nqn, nsid: u32, uuid: Option<[u8; 16]>) -> Result<(), ManageError> {
        self.require_namespace(nqn, nsid)?;
        let Some(uuid) = uuid else { return Ok(()) };
        let there = self.live.served(nqn, nsid).map(|it| it.identity.uuid);
        if there == Some(uuid) {
            return Ok(());
        }
        let there = there.map_or_else(|| "not known".to_owned(), |it| uuid_text(&it));
        let text = format!(
            "namespace {nsid} of {nqn} is another disk: its UUID is {there}, not {}; look which one is meant",
            uuid_text(&uuid)
        );
        Err(ManageError::new(Reason::OtherUuid, text).of_namespace(nqn, nsid))
    }

    /// That a subsystem is there.
    ///
    /// # Errors
    /// What is named is not there.
    pub fn require_subsystem(&self, nqn: &Nqn) -> Result<(), ManageError> {
        self.subsystem(nqn).map(|_| ())
    }

    /// That a namespace is there, served or not.
    ///
    /// # Errors
    /// What is named is not there.
    pub fn require_namespace(&self, nqn: &Nqn, nsid: u32) -> Result<(), ManageError> {
        self.namespace_config(nqn, nsid).map(|_| ())
    }

    fn may_change(&self) -> Result<(), ManageError> {
        match self.health.phase() {
            Phase::Draining => Err(ManageError::new(
                Reason::Ending,
                "the daemon is on its way out and takes no changes; ask the next one".to_owned(),
            )),
            Phase::Starting | Phase::Serving => Ok(()),
        }
    }

    /// Saves a change, puts it in force, and tells it.
    fn commit(
        &mut self,
        next: Desired,
        step: Step,
        news: Vec<News>,
    ) -> Result<Closed, ManageError> {
        self.save(&next)?;
        let closed = match take(&*self.frontend, &mut self.live, step) {
            Ok(closed) => closed,
            Err(error) => {
                self.put_back();
                return Err(error);
            }
        };
        self.desired = next;
        self.list_attached();
        self.tell(news);
        // What comes of it besides is nobody's doing, and not what the answer is about.
        let (actor, as_of) = (std::mem::take(&mut self.actor), self.as_of);
        self.retry_failed();
        (self.actor, self.as_of) = (actor, as_of);
        Ok(closed)
    }

    /// Has the catalogue say what is attached now.
    fn list_attached(&self) {
        let row = |(nqn, it): (&Nqn, &Arc<Namespace>)| Attached {
            subsystem: nqn.to_string(),
            nsid: it.nsid,
            uuid: uuid_text(&it.identity.uuid),
            source: it.name.clone(),
            kind: match it.backing {
                Backing::Raw(_) => "raw",
                Backing::View { .. } => "view",
                Backing::Mixed(_) => "mixed",
            },
        };
        self.catalogue
            .set(self.live.all_served().map(row).collect());
    }

    fn tell(&mut self, news: Vec<News>) {
        for (kind, text) in news {
            let by = (!self.actor.is_empty()).then_some(self.actor.as_str());
            tracing::info!(by, "{text}");
            self.as_of = self.events.publish_by(&self.actor, kind, text);
        }
    }

    /// Keeps `next` for the next start.
    fn save(&mut self, next: &Desired) -> Result<(), ManageError> {
        if let Some(state) = &mut self.state
            && let Err(error) = state.save(&Overlay::between(&self.base, next))
        {
            self.health
                .problem(STATE_SUBJECT, HealthCode::StateFolder, error.to_string());
            return Err(error.into());
        }
        self.health.well(STATE_SUBJECT);
        Ok(())
    }

    /// What was saved was not put in force: what is in force is saved again.
    fn put_back(&mut self) {
        let now = self.desired.clone();
        if let Err(error) = self.save(&now) {
            let what = format!(
                "{error}; a change that was refused would be made at the next start: make another one when the folder can be written"
            );
            tracing::error!("{what}");
            self.health
                .problem(STATE_SUBJECT, HealthCode::StateFolder, what);
        }
    }

    /// Where the folder could not be written: what is in force is saved again, which says whether it can be by now.
    fn save_again(&mut self) {
        if let Some(state) = &mut self.state
            && self.health.has(STATE_SUBJECT)
            && state
                .save(&Overlay::between(&self.base, &self.desired))
                .is_ok()
        {
            self.health.well(STATE_SUBJECT);
        }
    }

    fn subsystem(&self, nqn: &Nqn) -> Result<&crate::desired::Subsystem, ManageError> {
        self.desired
            .subsystems
            .get(nqn)
            .ok_or_else(|| no_subsystem(nqn))
    }

    /// A changed copy of what is to be served; the subsystem is there.
    fn with_subsystem(
        &self,
        nqn: &Nqn,
        change: impl FnOnce(&mut crate::desired::Subsystem),
    ) -> Result<Desired, ManageError> {
        let mut next = self.desired.clone();
        let subsystem = next.subsystems.get_mut(nqn);
        change(subsystem.ok_or_else(|| no_subsystem(nqn))?);
        Ok(next)
    }
}

fn no_subsystem(nqn: &Nqn) -> ManageError {
    ManageError::new(
        Reason::NoSubsystem,
        format!("there is no subsystem {nqn}; `snapctl subsystem list` shows those that are there"),
    )
    .of_subsystem(nqn)
}

fn subsystem_news(change: v1::SubsystemChange, nqn: &Nqn, what: &str) -> News {
    let event = v1::SubsystemEvent {
        change: change.into(),
        subsystem_nqn: nqn.to_string(),
    };
    (Kind::Subsystem(event), format!("subsystem {nqn} {what}"))
}
