//! Who may connect.

use admin_proto::v1::{self, HostChange, event::Kind};
use nvme::controller::HostPolicy;
use nvme::nqn::Nqn;

use super::steps::Step;
use super::{ManageError, Manager, News};
use crate::limits::HOSTS_MAX;

impl Manager {
    /// Adds hosts to the list; those that are on it are no error.
    ///
    /// # Errors
    /// [`ManageError::NotFound`]; [`ManageError::Precondition`] where any host is allowed; [`ManageError::Exhausted`].
    pub fn allow_hosts(&mut self, nqn: &Nqn, hosts: &[Nqn]) -> Result<HostPolicy, ManageError> {
        let mut list = self.host_list(nqn)?;
        for host in hosts {
            if !list.contains(host) {
                list.push(host.clone());
            }
        }
        self.set_hosts(nqn, HostPolicy::Only(list))
            .map(|(policy, _)| policy)
    }

    /// Takes hosts off the list, and ends their controllers. Returns who may connect now, and how many controllers ended.
    ///
    /// # Errors
    /// [`ManageError::NotFound`] also for a host that is not on it; [`ManageError::Precondition`] where any host is allowed.
    pub fn deny_hosts(
        &mut self,
        nqn: &Nqn,
        hosts: &[Nqn],
    ) -> Result<(HostPolicy, usize), ManageError> {
        let mut list = self.host_list(nqn)?;
        for host in hosts {
            let at = list.iter().position(|it| it == host).ok_or_else(|| {
                ManageError::NotFound(format!(
                    "{host} is not on the list of {nqn}; `snapctl host list` shows who is"
                ))
            })?;
            list.remove(at);
        }
        self.set_hosts(nqn, HostPolicy::Only(list))
    }

    /// Takes "any host" back.
    ///
    /// # Errors
    /// [`ManageError::NotFound`]; [`ManageError::Precondition`] while a list is in force.
    pub fn deny_any_host(&mut self, nqn: &Nqn) -> Result<(HostPolicy, usize), ManageError> {
        match &self.subsystem(nqn)?.body.hosts {
            HostPolicy::Any => self.set_hosts(nqn, HostPolicy::Only(Vec::new())),
            HostPolicy::Only(_) => Err(ManageError::Precondition(format!(
                "{nqn} is not open to any host, it has a list; deny the hosts on it by name"
            ))),
        }
    }

    /// Replaces who may connect, and ends the controllers of hosts that no longer may. Returns how many.
    ///
    /// # Errors
    /// [`ManageError::NotFound`], [`ManageError::Exhausted`].
    pub fn set_hosts(
        &mut self,
        nqn: &Nqn,
        hosts: HostPolicy,
    ) -> Result<(HostPolicy, usize), ManageError> {
        self.may_change()?;
        if let HostPolicy::Only(list) = &hosts
            && list.len() > HOSTS_MAX
        {
            return Err(ManageError::Exhausted(format!(
                "a list has at most {HOSTS_MAX} hosts; deny some first, or allow any host"
            )));
        }
        let before = self.subsystem(nqn)?.body.hosts.clone();
        if before == hosts {
            return Ok((hosts, 0));
        }
        let ended = self
            .controllers()?
            .iter()
            .filter(|it| it.subsystem.as_ref() == Some(nqn) && !hosts.allows(&it.host))
            .count();
        let next = self.with_subsystem(nqn, |it| it.body.hosts = hosts.clone())?;
        let step = Step::SetHosts(nqn.clone(), hosts.clone());
        self.commit(next, step, news(nqn, &before, &hosts))?;
        Ok((hosts, ended))
    }

    fn host_list(&self, nqn: &Nqn) -> Result<Vec<Nqn>, ManageError> {
        match &self.subsystem(nqn)?.body.hosts {
            HostPolicy::Only(list) => Ok(list.clone()),
            HostPolicy::Any => Err(ManageError::Precondition(format!(
                "{nqn} is open to any host; set a list in its place, or take \"any host\" back first"
            ))),
        }
    }
}

/// Who may connect now and could not before, and the other way round.
fn news(nqn: &Nqn, before: &HostPolicy, now: &HostPolicy) -> Vec<News> {
    let list = |policy: &HostPolicy| match policy {
        HostPolicy::Any => Vec::new(),
        HostPolicy::Only(list) => list.clone(),
    };
    let mut all = Vec::new();
    match (before, now) {
        (HostPolicy::Any, HostPolicy::Only(_)) => all.push(told(HostChange::Denied, nqn, None)),
        (HostPolicy::Only(_), HostPolicy::Any) => all.push(told(HostChange::Allowed, nqn, None)),
        _ => {}
    }
    let (before, now) = (list(before), list(now));
    let only = |these: &[Nqn], others: &[Nqn]| -> Vec<Nqn> {
        these
            .iter()
            .filter(|it| !others.contains(it))
            .cloned()
            .collect()
    };
    for host in only(&now, &before) {
        all.push(told(HostChange::Allowed, nqn, Some(&host)));
    }
    for host in only(&before, &now) {
        all.push(told(HostChange::Denied, nqn, Some(&host)));
    }
    all
}

fn told(change: HostChange, nqn: &Nqn, host: Option<&Nqn>) -> News {
    let event = v1::HostEvent {
        change: change.into(),
        subsystem_nqn: nqn.to_string(),
        host_nqn: host.map(Nqn::to_string).unwrap_or_default(),
    };
    let who = host.map_or_else(|| "any host".to_owned(), Nqn::to_string);
    let what = match change {
        HostChange::Denied => "may no longer connect to",
        _ => "may connect to",
    };
    (Kind::Host(event), format!("{who} {what} {nqn}"))
}
