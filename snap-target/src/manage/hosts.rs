//! Who may connect.

use admin_proto::v1::{self, HostChange, Reason, event::Kind};
use nvme::controller::HostPolicy;
use nvme::nqn::Nqn;

use super::steps::Step;
use super::{ManageError, Manager, News, StillClosing, closing};
use crate::limits::HOSTS_MAX;

/// Who may connect now, and what that ended.
#[derive(Debug, PartialEq)]
pub struct HostsSet {
    /// Who may.
    pub policy: HostPolicy,
    /// Controllers of hosts that no longer may.
    pub controllers_ended: usize,
    /// Operations that they left.
    pub closing: StillClosing,
}

/// Takes hosts off a list. Returns those that were not on it.
pub(super) fn take_off(list: &mut Vec<Nqn>, hosts: &[Nqn]) -> Vec<Nqn> {
    let not_listed = hosts.iter().filter(|host| !list.contains(host));
    let not_listed = not_listed.cloned().collect();
    list.retain(|host| !hosts.contains(host));
    not_listed
}

/// A function's host is on no list.
pub(super) fn refuse_functions<'a>(
    subsystem: &Nqn,
    hosts: impl IntoIterator<Item = &'a Nqn>,
) -> Result<(), ManageError> {
    match hosts.into_iter().find(|it| it.is_function_host()) {
        None => Ok(()),
        Some(name) => {
            let text = format!(
                "{name} is a PCIe function's host, which no list lets in or keeps out: whoever can open its socket has it; delete the function, or see `namespace visibility`"
            );
            Err(ManageError::new(Reason::HostList, text).of_subsystem(subsystem))
        }
    }
}

impl Manager {
    /// Adds hosts to the list; those that are on it are no error.
    ///
    /// # Errors
    /// No such subsystem, any host is allowed, or the list is full.
    pub fn allow_hosts(&mut self, nqn: &Nqn, hosts: &[Nqn]) -> Result<HostPolicy, ManageError> {
        let mut list = self.host_list(nqn)?;
        for host in hosts {
            if !list.contains(host) {
                list.push(host.clone());
            }
        }
        self.set_hosts(nqn, HostPolicy::Only(list))
            .map(|set| set.policy)
    }

    /// Takes hosts off the list, and ends their controllers: they stay out, whatever the file comes to say, until they are allowed. Returns what that did, and those that were not on it.
    ///
    /// # Errors
    /// No such subsystem, or any host is allowed.
    pub fn deny_hosts(
        &mut self,
        nqn: &Nqn,
        hosts: &[Nqn],
    ) -> Result<(HostsSet, Vec<Nqn>), ManageError> {
        let mut list = self.host_list(nqn)?;
        let not_listed = take_off(&mut list, hosts);
        let set = self.replace_hosts(nqn, HostPolicy::Only(list), hosts)?;
        Ok((set, not_listed))
    }

    /// Takes "any host" back.
    ///
    /// # Errors
    /// No such subsystem, or a list is in force.
    pub fn deny_any_host(&mut self, nqn: &Nqn) -> Result<HostsSet, ManageError> {
        match &self.subsystem(nqn)?.body.hosts {
            HostPolicy::Any => self.set_hosts(nqn, HostPolicy::Only(Vec::new())),
            HostPolicy::Only(_) => Err(ManageError::new(
                Reason::HostList,
                format!(
                    "{nqn} is not open to any host, it has a list; deny the hosts on it by name"
                ),
            )
            .of_subsystem(nqn)),
        }
    }

    /// Replaces who may connect, and ends the controllers of hosts that no longer may.
    ///
    /// # Errors
    /// No such subsystem, or the list is too long.
    pub fn set_hosts(&mut self, nqn: &Nqn, hosts: HostPolicy) -> Result<HostsSet, ManageError> {
        self.replace_hosts(nqn, hosts, &[])
    }

    /// The same; `denied` were named as such, on the list or not.
    fn replace_hosts(
        &mut self,
        nqn: &Nqn,
        hosts: HostPolicy,
        denied: &[Nqn],
    ) -> Result<HostsSet, ManageError> {
        self.may_change()?;
        if let HostPolicy::Only(list) = &hosts
            && list.len() > HOSTS_MAX
        {
            return Err(ManageError::new(
                Reason::Limit,
                format!("a list has at most {HOSTS_MAX} hosts; deny some first, or allow any host"),
            )
            .of_subsystem(nqn));
        }
        let before = self.subsystem(nqn)?.body.hosts.clone();
        // One that is there already, from before they were refused, may go.
        let added = only_in(listed(&hosts), listed(&before));
        let denied_anew = only_in(denied, listed(&before));
        refuse_functions(nqn, added.iter().chain(&denied_anew))?;
        let mut next = self.with_subsystem(nqn, |it| it.body.hosts = hosts.clone())?;
        let named = self.base.subsystems.get(nqn).map(|it| &it.body.hosts);
        next.deny(nqn, &only_in(listed(&before), listed(&hosts)), named);
        next.deny(nqn, denied, named);
        next.let_in(nqn, &hosts);
        if next == self.desired {
            return Ok(HostsSet {
                policy: hosts,
                controllers_ended: 0,
                closing: None,
            });
        }
        let ended = self
            .controllers()?
            .iter()
            .filter(|it| it.subsystem.as_ref() == Some(nqn))
            .filter(|it| !it.host.is_function_host() && !hosts.allows(&it.host))
            .count();
        let step = Step::SetHosts(nqn.clone(), hosts.clone());
        let closed = self.commit(next, step, news(nqn, &before, &hosts))?;
        Ok(HostsSet {
            policy: hosts,
            controllers_ended: ended,
            closing: closing::of_controllers(&closed),
        })
    }

    fn host_list(&self, nqn: &Nqn) -> Result<Vec<Nqn>, ManageError> {
        match &self.subsystem(nqn)?.body.hosts {
            HostPolicy::Only(list) => Ok(list.clone()),
            HostPolicy::Any => Err(ManageError::new(Reason::AnyHost, format!(
                "{nqn} is open to any host; set a list in its place, or take \"any host\" back first"
            )).of_subsystem(nqn)),
        }
    }
}

/// Those that a policy names.
pub(super) fn listed(policy: &HostPolicy) -> &[Nqn] {
    match policy {
        HostPolicy::Any => &[],
        HostPolicy::Only(list) => list,
    }
}

/// Those of `these` that are not among `others`.
fn only_in(these: &[Nqn], others: &[Nqn]) -> Vec<Nqn> {
    let alone = these.iter().filter(|it| !others.contains(it));
    alone.cloned().collect()
}

/// Who may connect now and could not before, and the other way round.
fn news(nqn: &Nqn, before: &HostPolicy, now: &HostPolicy) -> Vec<News> {
    let mut all = Vec::new();
    match (before, now) {
        (HostPolicy::Any, HostPolicy::Only(_)) => all.push(told(HostChange::Denied, nqn, None)),
        (HostPolicy::Only(_), HostPolicy::Any) => all.push(told(HostChange::Allowed, nqn, None)),
        _ => {}
    }
    let (before, now) = (listed(before), listed(now));
    for host in only_in(now, before) {
        all.push(told(HostChange::Allowed, nqn, Some(&host)));
    }
    for host in only_in(before, now) {
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
