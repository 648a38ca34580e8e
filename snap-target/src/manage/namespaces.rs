//! Namespaces come, go, grow, and are shown to some hosts.

use std::sync::Arc;
use std::sync::mpsc::channel;

use admin_proto::v1::{self, NamespaceChange, Reason, event::Kind};
use namespace::Namespace;
use nvme::controller::{NAMESPACES_MAX, Visibility};
use nvme::nqn::Nqn;
use store::decorate::Limit;

use super::hosts::take_off;
use super::opening::Opened;
use super::steps::Step;
use super::{ManageError, Manager, News, StillClosing};
use crate::config::{NamespaceConfig, SourceSpec, Writes};
use crate::identity::Nodes;
use crate::limits::HOSTS_MAX;
use crate::text::uuid_text;

/// What to attach.
#[derive(Clone, Debug)]
pub struct NewNamespace {
    /// To which subsystem.
    pub nqn: Nqn,
    /// Under which number; none: the lowest free one.
    pub nsid: Option<u32>,
    /// A volume or a store, as on the command line.
    pub source: String,
    /// Block size; none: 4096 of a store, its own of a volume.
    pub lba_bytes: Option<u32>,
    /// Whether hosts may write where the store could be written.
    pub writes: Writes,
    /// How fast its stores are at most.
    pub limit: Option<Limit>,
    /// Who sees it.
    pub visibility: Visibility,
}

/// What health calls a namespace.
pub fn subject(nqn: &Nqn, nsid: u32) -> String {
    format!("{nqn} nsid {nsid}")
}

impl Manager {
    /// Opens what stands behind a namespace, and attaches it; `then` hears its NSID, or why not: what cannot be opened is refused and says why. Other
    /// requests are carried out meanwhile.
    pub fn attach_then(
        &mut self,
        new: NewNamespace,
        then: impl FnOnce(&mut Self, Result<u32, ManageError>) + Send + 'static,
    ) {
        let config = match self.check_new(&new) {
            Ok(config) => config,
            Err(error) => return then(self, Err(error)),
        };
        let actor = self.actor.clone();
        let attach = move |manager: &mut Self, opened: Result<Opened, ManageError>| {
            manager.begin(actor);
            let attached = opened.and_then(|opened| manager.attach_opened(new, opened));
            then(manager, attached);
            manager.end();
        };
        self.open_then(&config, None, Box::new(attach));
    }

    /// The same, waiting for it.
    ///
    /// # Errors
    /// [`ManageError`].
    #[cfg(test)]
    pub fn attach(&mut self, new: NewNamespace) -> Result<u32, ManageError> {
        let (tell, told) = std::sync::mpsc::channel();
        self.attach_then(new, move |_, attached| tell.send(attached).unwrap());
        self.wait_for_openings();
        told.recv().unwrap()
    }

    /// That it may be attached, as far as that is known before it is opened. Its number may be another one in the end, where none was asked for.
    fn check_new(&self, new: &NewNamespace) -> Result<NamespaceConfig, ManageError> {
        self.may_change()?;
        let nsid = self.free_nsid(&new.nqn, new.nsid)?;
        let source = SourceSpec::parse(&new.source, new.lba_bytes.unwrap_or(4096))
            .map_err(|error| ManageError::field("source", error))?;
        let config = NamespaceConfig {
            nsid,
            source: absolute(source)?,
            visibility: new.visibility.clone(),
            writes: new.writes,
            limit: new.limit,
            cut: None,
        };
        self.check_closing(&config, None)?;
        Ok(config)
    }

    /// The number that was asked for, or the lowest that is free.
    fn free_nsid(&self, nqn: &Nqn, asked: Option<u32>) -> Result<u32, ManageError> {
        let there = &self.subsystem(nqn)?.namespaces;
        let lowest = (1..=NAMESPACES_MAX).find(|nsid| !there.contains_key(nsid));
        let nsid = asked.or(lowest).ok_or_else(|| {
            let text = format!(
                "{nqn} has {NAMESPACES_MAX} namespaces, and no more are possible; detach one first"
            );
            ManageError::new(Reason::Limit, text).of_subsystem(nqn)
        })?;
        if there.contains_key(&nsid) {
            let text = format!(
                "{nqn} has a namespace {nsid} already; detach it first, or take another number"
            );
            return Err(ManageError::new(Reason::NsidTaken, text).of_namespace(nqn, nsid));
        }
        Ok(nsid)
    }

    /// Attaches what was opened: all is checked again, since it took its time.
    fn attach_opened(&mut self, new: NewNamespace, mut opened: Opened) -> Result<u32, ManageError> {
        let config = self.check_new(&new)?;
        let NewNamespace { nqn, lba_bytes, .. } = new;
        opened.namespace = opened.namespace.numbered(config.nsid);
        let (namespace, nodes) = self.admit(&nqn, &config, opened)?;
        if let Some(wanted) = lba_bytes
            && wanted != namespace.lba_bytes
        {
            let text = format!(
                "{} has blocks of {} bytes, not {wanted}; leave the block size out",
                namespace.name, namespace.lba_bytes
            );
            return Err(ManageError::new(Reason::BlockSize, text));
        }
        let next = self.with_subsystem(&nqn, |it| {
            it.namespaces.insert(config.nsid, config.clone());
        })?;
        let news = news(NamespaceChange::Attached, &nqn, &namespace, "attached");
        let step = Step::Attach(nqn, namespace, nodes, config.visibility);
        let _nothing_closes = self.commit(next, step, vec![news])?;
        Ok(config.nsid)
    }

    /// Takes a namespace away. Its data stay.
    ///
    /// # Errors
    /// What is named is not there.
    pub fn detach(&mut self, nqn: &Nqn, nsid: u32) -> Result<StillClosing, ManageError> {
        self.may_change()?;
        self.namespace_config(nqn, nsid)?;
        let next = self.with_subsystem(nqn, |it| {
            it.namespaces.remove(&nsid);
        })?;
        let news = vec![self.news_of(NamespaceChange::Detached, nqn, nsid, "detached")?];
        let leaving = self.leaving(nqn, nsid);
        let closed = self.commit(next, Step::Detach(nqn.clone(), nsid), news)?;
        let closing = self.left(nqn, leaving, &closed);
        self.health.well(&subject(nqn, nsid));
        Ok(closing)
    }

    /// Shows a namespace to other hosts. Returns what those that lost it left.
    ///
    /// # Errors
    /// What is named is not there.
    pub fn set_visibility(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        visibility: Visibility,
    ) -> Result<StillClosing, ManageError> {
        self.may_change()?;
        if self.namespace_config(nqn, nsid)?.visibility == visibility {
            return Ok(None);
        }
        let next = self.with_subsystem(nqn, |it| {
            if let Some(config) = it.namespaces.get_mut(&nsid) {
                config.visibility = visibility.clone();
            }
        })?;
        let what = "is seen by other hosts";
        let news = vec![self.news_of(NamespaceChange::Visibility, nqn, nsid, what)?];
        let step = Step::SetVisibility(nqn.clone(), nsid, visibility);
        let closed = self.commit(next, step, news)?;
        Ok(self.hidden(nqn, nsid, closed))
    }

    /// Shows a namespace to hosts besides those who see it.
    ///
    /// # Errors
    /// No such namespace, all hosts see it, or the list is full.
    pub fn show_to(&mut self, nqn: &Nqn, nsid: u32, hosts: &[Nqn]) -> Result<(), ManageError> {
        let mut list = self.seen_by(nqn, nsid)?;
        for host in hosts {
            if !list.contains(host) {
                list.push(host.clone());
            }
        }
        if list.len() > HOSTS_MAX {
            let text = format!(
                "a list has at most {HOSTS_MAX} hosts; hide it from some first, or show it to all"
            );
            return Err(ManageError::new(Reason::Limit, text).of_namespace(nqn, nsid));
        }
        // Nobody loses it.
        let shown = self.set_visibility(nqn, nsid, Visibility::Hosts(list));
        shown.map(|_nothing_closes| ())
    }

    /// Shows a namespace no longer to these. Returns those that were not on its list, and what the others left.
    ///
    /// # Errors
    /// No such namespace, or all hosts see it.
    pub fn hide_from(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        hosts: &[Nqn],
    ) -> Result<(Vec<Nqn>, StillClosing), ManageError> {
        let mut list = self.seen_by(nqn, nsid)?;
        let not_listed = take_off(&mut list, hosts);
        let closing = self.set_visibility(nqn, nsid, Visibility::Hosts(list))?;
        Ok((not_listed, closing))
    }

    /// News of a namespace that is there, served or not.
    pub(super) fn news_of(
        &self,
        change: NamespaceChange,
        nqn: &Nqn,
        nsid: u32,
        what: &str,
    ) -> Result<News, ManageError> {
        if let Some(served) = self.live.served(nqn, nsid) {
            return Ok(news(change, nqn, served, what));
        }
        let source = &self.namespace_config(nqn, nsid)?.source;
        let text = format!("namespace {nsid} of {nqn} ({source}) {what}");
        Ok(not_served(change, nqn, nsid, text))
    }

    /// The hosts that see a namespace, where it has a list.
    fn seen_by(&self, nqn: &Nqn, nsid: u32) -> Result<Vec<Nqn>, ManageError> {
        match &self.namespace_config(nqn, nsid)?.visibility {
            Visibility::Hosts(list) => Ok(list.clone()),
            Visibility::All => {
                let text = format!(
                    "all hosts of {nqn} see namespace {nsid}; set a list in its place first"
                );
                Err(ManageError::new(Reason::AnyHost, text).of_namespace(nqn, nsid))
            }
        }
    }

    /// Opens what stands behind a namespace, and waits for it. For a start.
    pub(super) fn open_waiting(&mut self, config: &NamespaceConfig) -> Result<Opened, ManageError> {
        let (tell, told) = channel();
        let then = move |_: &mut Self, opened| {
            // Whoever waits takes it below.
            let _told = tell.send(opened);
        };
        self.open_then(config, None, Box::new(then));
        self.wait_for_openings();
        let nobody = || ManageError::new(Reason::Fault, "nothing came of the opening");
        told.try_recv().unwrap_or_else(|_| Err(nobody()))
    }

    /// Takes what was opened among what may be served, with the keeper of its records.
    pub(super) fn admit(
        &self,
        nqn: &Nqn,
        config: &NamespaceConfig,
        opened: Opened,
    ) -> Result<(Arc<Namespace>, Nodes), ManageError> {
        self.check_closing(config, Some(&opened))?;
        self.check_twins(nqn, &opened)?;
        let Opened { namespace, nodes } = opened;
        Ok((self.keep(namespace, config)?, nodes))
    }

    /// Gives it the keeper of its records, and takes up what there is.
    pub(super) fn keep(
        &self,
        mut namespace: Namespace,
        config: &NamespaceConfig,
    ) -> Result<Arc<Namespace>, ManageError> {
        if let Some(keepers) = &self.keepers
            && config.source.is_lasting()
        {
            let keeper = keepers.of(&namespace.identity);
            namespace = namespace
                .kept_by(keeper)
                .map_err(|error| ManageError::new(Reason::SourceUnusable, error.to_string()))?;
        }
        Ok(Arc::new(namespace))
    }

    /// That nothing is served which a namespace of this subsystem would be a second way to.
    pub(super) fn check_twins(&self, nqn: &Nqn, opened: &Opened) -> Result<(), ManageError> {
        let Opened { namespace, nodes } = opened;
        for (of, other) in self.live.all_served() {
            // Two subsystems may show the same view; a disk that can be written has one writer's order, and one set of reservations.
            let read_only = other.write_protected && namespace.write_protected;
            let others = self.live.nodes.get(&(of.clone(), other.nsid));
            let what = if other.identity == namespace.identity && (of == nqn || !read_only) {
                "the same content under the same UUID"
            } else if !read_only
                && (others.is_some_and(|others| others.meet(nodes))
                    || other.shares_store_with(namespace))
            {
                "two names of the same disk"
            } else {
                continue;
            };
            let text = format!(
                "{} and {} are {what}; serve it once: namespace {} of {of} has it",
                other.name, namespace.name, other.nsid
            );
            return Err(ManageError::new(Reason::SourceInUse, text).of_namespace(of, other.nsid));
        }
        Ok(())
    }

    pub(super) fn namespace_config(
        &self,
        nqn: &Nqn,
        nsid: u32,
    ) -> Result<&NamespaceConfig, ManageError> {
        let there = self.subsystem(nqn)?.namespaces.get(&nsid);
        there.ok_or_else(|| {
            ManageError::new(Reason::NoNamespace, format!(
                "{nqn} has no namespace {nsid}; `snapctl namespace list` shows those that are there"
            ))
            .of_namespace(nqn, nsid)
        })
    }
}

/// What was given by a client is relative to nothing that it knows.
fn absolute(source: SourceSpec) -> Result<SourceSpec, ManageError> {
    let mut paths = source.parts().iter().flat_map(SourceSpec::paths);
    let Some(path) = paths.find(|path| !path.is_absolute()) else {
        return Ok(source);
    };
    Err(ManageError::field(
        "source",
        format_args!(
            "{} is relative; write the whole path on the daemon's machine",
            path.display()
        ),
    ))
}

/// A namespace cannot be served.
pub(super) fn failed_news(nqn: &Nqn, config: &NamespaceConfig, why: &str) -> News {
    let text = format!("namespace {} of {nqn} cannot be served: {why}", config.nsid);
    not_served(NamespaceChange::Failed, nqn, config.nsid, text)
}

/// News of one whose UUID and size are not known.
fn not_served(change: NamespaceChange, nqn: &Nqn, nsid: u32, text: String) -> News {
    let event = v1::NamespaceEvent {
        change: change.into(),
        subsystem_nqn: nqn.to_string(),
        nsid,
        ..v1::NamespaceEvent::default()
    };
    (Kind::Namespace(event), text)
}

pub(super) fn news(change: NamespaceChange, nqn: &Nqn, namespace: &Namespace, what: &str) -> News {
    let event = v1::NamespaceEvent {
        change: change.into(),
        subsystem_nqn: nqn.to_string(),
        nsid: namespace.nsid,
        uuid: uuid_text(&namespace.identity.uuid),
        bytes: namespace.bytes(),
    };
    let text = format!(
        "namespace {} of {nqn} ({}) {what}",
        namespace.nsid, namespace.name
    );
    (Kind::Namespace(event), text)
}
