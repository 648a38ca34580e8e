//! What was taken away, and is not over: operations of stores that have not answered.

use std::sync::Arc;

use admin_proto::v1::{HealthCode, NamespaceChange, Reason};
use frontend_nvme::{Closed, Closing};
use namespace::Namespace;
use nvme::nqn::Nqn;

use super::opening::Opened;
use super::{ManageError, Manager, StillClosing, namespaces};
use crate::config::NamespaceConfig;
use crate::identity::Nodes;
use crate::text::uuid_text;

/// A namespace that no host sees any more, and that a store has operations of.
#[derive(Debug)]
pub struct ClosingDisk {
    /// Its subsystem, which may be gone.
    pub nqn: Nqn,
    /// What it was.
    pub config: NamespaceConfig,
    /// As it was served.
    pub namespace: Arc<Namespace>,
    nodes: Nodes,
    operations: Closing,
}

impl ClosingDisk {
    /// Why it is still there, one line.
    pub fn why(&self) -> String {
        format!(
            "operations of {} are still under way: its store has not answered them",
            self.namespace.name
        )
    }

    /// What health calls it.
    fn id(&self) -> String {
        let uuid = uuid_text(&self.namespace.identity.uuid);
        let subject = namespaces::subject(&self.nqn, self.config.nsid);
        format!("{subject} closing {uuid}")
    }
}

/// A namespace that hosts see no longer, and that a store has operations of theirs of.
#[derive(Debug)]
pub(super) struct Hidden {
    nqn: Nqn,
    namespace: Arc<Namespace>,
    operations: Closing,
}

impl Hidden {
    fn why(&self) -> String {
        let name = &self.namespace.name;
        format!(
            "operations of hosts that see {name} no longer are still under way: its store has not answered them"
        )
    }

    /// What health calls it.
    fn id(&self) -> String {
        let subject = namespaces::subject(&self.nqn, self.namespace.nsid);
        format!("{subject} hidden")
    }
}

/// A namespace that is to be taken away, as it was before.
pub(super) type Leaving = (NamespaceConfig, Arc<Namespace>, Nodes);

impl Manager {
    /// Namespaces that are closing.
    pub fn closing(&self) -> &[ClosingDisk] {
        &self.closing
    }

    /// What a namespace is before it is taken away; none where it is not served.
    pub(super) fn leaving(&self, nqn: &Nqn, nsid: u32) -> Option<Leaving> {
        let config = self.desired.namespace(nqn, nsid)?.clone();
        let namespace = self.live.served(nqn, nsid)?.clone();
        let nodes = self.live.nodes.get(&(nqn.clone(), nsid)).cloned();
        Some((config, namespace, nodes.unwrap_or_default()))
    }

    /// Namespaces were taken away: keeps those that are not over. Returns why, if any is not.
    pub(super) fn left(
        &mut self,
        nqn: &Nqn,
        leaving: impl IntoIterator<Item = Leaving>,
        closed: &Closed,
    ) -> StillClosing {
        let Closed::Later(operations) = closed else {
            return None;
        };
        let mut why = None;
        for (config, namespace, nodes) in leaving {
            let disk = ClosingDisk {
                nqn: nqn.clone(),
                config,
                namespace,
                nodes,
                operations: operations.clone(),
            };
            tracing::warn!(%nqn, nsid = disk.config.nsid, "{}", disk.why());
            self.health
                .problem(&disk.id(), HealthCode::Closing, disk.why());
            why = Some(disk.why());
            self.closing.push(disk);
        }
        why.or_else(|| of_controllers(closed))
    }

    /// Hosts see a namespace no longer. Returns why that is not over, if it is not.
    pub(super) fn hidden(&mut self, nqn: &Nqn, nsid: u32, closed: Closed) -> StillClosing {
        let Closed::Later(operations) = closed else {
            return None;
        };
        let hidden = Hidden {
            nqn: nqn.clone(),
            namespace: self.live.served(nqn, nsid)?.clone(),
            operations,
        };
        let why = hidden.why();
        tracing::warn!(%nqn, nsid, "{why}");
        self.health
            .problem(&hidden.id(), HealthCode::Closing, why.clone());
        self.hidden.push(hidden);
        Some(why)
    }

    /// Tells the end of those that are over.
    pub(super) fn look_at_closing(&mut self) {
        let over: Vec<ClosingDisk> = self
            .closing
            .extract_if(.., |disk| disk.operations.is_over())
            .collect();
        for disk in over {
            self.health.well(&disk.id());
            let change = NamespaceChange::Closed;
            let news = namespaces::news(change, &disk.nqn, &disk.namespace, "has closed");
            self.tell(vec![news]);
        }
        let over: Vec<Hidden> = self
            .hidden
            .extract_if(.., |it| it.operations.is_over())
            .collect();
        for hidden in over {
            // Of one that was hidden from more hosts since, operations may be left.
            let id = hidden.id();
            if self.hidden.iter().all(|other| other.id() != id) {
                self.health.well(&id);
            }
            let what = "has no operations left of hosts that see it no longer";
            let change = NamespaceChange::Hidden;
            let news = namespaces::news(change, &hidden.nqn, &hidden.namespace, what);
            self.tell(vec![news]);
        }
    }

    /// That a source is not one that is closing, or whose size is being changed.
    pub(super) fn check_closing(
        &self,
        config: &NamespaceConfig,
        opened: Option<&Opened>,
    ) -> Result<(), ManageError> {
        let is_lasting = config.source.is_lasting();
        if is_lasting {
            let unknown = Nodes::default();
            let nodes = opened.map_or(&unknown, |opened| &opened.nodes);
            self.check_resizing(&config.source, nodes)?;
        }
        let is_same = |disk: &&ClosingDisk| {
            let by_name = is_lasting && disk.config.source == config.source;
            let by_content = opened.is_some_and(|opened| {
                disk.namespace.identity == opened.namespace.identity
                    || disk.nodes.meet(&opened.nodes)
            });
            by_name || by_content
        };
        match self.closing.iter().find(is_same) {
            None => Ok(()),
            Some(disk) => {
                let text = format!(
                    "{} was detached, and {}; attach it when that has ended",
                    disk.namespace.name,
                    disk.why()
                );
                let error = ManageError::new(Reason::SourceClosing, text);
                Err(error.of_namespace(&disk.nqn, disk.config.nsid))
            }
        }
    }
}

/// What ended controllers left.
pub(super) fn of_controllers(closed: &Closed) -> StillClosing {
    match closed {
        Closed::Done => None,
        Closed::Later(_) => Some(
            "commands of ended controllers are still with a store that has not answered them"
                .to_owned(),
        ),
    }
}
