//! Subsystems come and go.

use std::collections::BTreeMap;

use admin_proto::v1::{FunctionChange, NamespaceChange, Reason, SubsystemChange};
use nvme::nqn::Nqn;

use super::steps::Step;
use super::{ManageError, Manager, StillClosing, functions, hosts, subsystem_news};
use crate::desired::{Subsystem, SubsystemBody};
use crate::limits::SUBSYSTEMS_MAX;

impl Manager {
    /// Makes a subsystem without namespaces.
    ///
    /// # Errors
    /// It is there already, there are as many as may be, its hosts are none, or the target refuses it.
    pub fn create_subsystem(&mut self, nqn: Nqn, body: SubsystemBody) -> Result<(), ManageError> {
        self.may_change()?;
        if self.desired.subsystems.contains_key(&nqn) {
            return Err(ManageError::new(
                Reason::SubsystemExists,
                format!(
                    "there is a subsystem {nqn} already; delete it first, or take another name"
                ),
            )
            .of_subsystem(&nqn));
        }
        if self.desired.subsystems.len() >= SUBSYSTEMS_MAX {
            return Err(ManageError::new(
                Reason::Limit,
                format!(
                    "there are {SUBSYSTEMS_MAX} subsystems, and no more are possible; delete one first"
                ),
            ));
        }
        hosts::refuse_functions(&nqn, hosts::listed(&body.hosts))?;
        let mut next = self.desired.clone();
        let made = Subsystem {
            body: body.clone(),
            namespaces: BTreeMap::new(),
        };
        next.subsystems.insert(nqn.clone(), made);
        next.let_in(&nqn, &body.hosts);
        let news = subsystem_news(SubsystemChange::Created, &nqn, "was made");
        let life = self.life(&nqn, true);
        let step = Step::CreateSubsystem(nqn.clone(), Box::new((body, life)));
        match self.commit(next, step, vec![news]) {
            Ok(_nothing_closes) => self.begin_lives(),
            Err(error) => {
                self.forget_life(&nqn);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Deletes a subsystem with all that it has. Returns how many namespaces and controllers it had, and what they left.
    ///
    /// # Errors
    /// There is none, or it is in use and that is not forced.
    pub fn delete_subsystem(
        &mut self,
        nqn: &Nqn,
        force: bool,
    ) -> Result<(usize, usize, StillClosing), ManageError> {
        self.may_change()?;
        let namespaces: Vec<u32> = self.subsystem(nqn)?.namespaces.keys().copied().collect();
        let controllers = self.controllers()?;
        let controllers = controllers
            .iter()
            .filter(|it| it.subsystem.as_ref() == Some(nqn))
            .count();
        let functions: Vec<_> = self
            .desired
            .functions_of(nqn)
            .map(|config| {
                (
                    config.name,
                    functions::news(FunctionChange::Deleted, config),
                )
            })
            .collect();
        let is_used = !namespaces.is_empty() || controllers > 0 || !functions.is_empty();
        if !force && is_used {
            return Err(ManageError::new(Reason::SubsystemInUse, format!(
                "{nqn} is in use: namespaces {}, controllers {controllers}, functions {}; force deletes it with them (stores keep their data)",
                namespaces.len(),
                functions.len()
            ))
            .of_subsystem(nqn));
        }
        let mut next = self.desired.clone();
        next.subsystems.remove(nqn);
        // Whom it kept out stays out where the file may bring it back.
        if !self.base.subsystems.contains_key(nqn) {
            next.denied.remove(nqn);
        }
        next.functions.retain(|_, config| config.subsystem != *nqn);
        let (names, mut news): (Vec<_>, Vec<_>) = functions.into_iter().unzip();
        // Who follows namespaces alone hears of each.
        let detached = NamespaceChange::Detached;
        for nsid in &namespaces {
            news.push(self.news_of(detached, nqn, *nsid, "detached with its subsystem")?);
        }
        news.push(subsystem_news(SubsystemChange::Deleted, nqn, "was deleted"));
        let leaving: Vec<_> = namespaces
            .iter()
            .filter_map(|nsid| self.leaving(nqn, *nsid))
            .collect();
        let closed = self.commit(
            next,
            Step::DeleteSubsystem(nqn.clone(), names.clone()),
            news,
        )?;
        self.forget_life(nqn);
        for name in names {
            self.health.well(&functions::subject(name));
        }
        for nsid in &namespaces {
            self.health.well(&super::namespaces::subject(nqn, *nsid));
        }
        let closing = self.left(nqn, leaving, &closed);
        Ok((namespaces.len(), controllers, closing))
    }
}
