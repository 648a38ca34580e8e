//! Who is there, by what is asked at each Connect and each turn: a target with a thousand hosts looks at none of the others for it.

use std::collections::{BTreeMap, BTreeSet};

use super::Connected;
use crate::Time;
use crate::controller::{ControllerId, Transport};
use crate::nqn::Nqn;

/// A subsystem's name; none: discovery.
type Where = Option<Nqn>;

/// See the module. It holds what [`Registry`](super::Registry) has told it of each controller.
#[derive(Debug, Default)]
pub(super) struct Roll {
    by_host: BTreeMap<(Where, Nqn), BTreeSet<ControllerId>>,
    by_subsystem: BTreeMap<Where, usize>,
    /// Controllers over fabrics, and of functions.
    over_fabrics: usize,
    functions: usize,
    claims: Claims,
    /// When to look at a controller's keep alive: never later than its deadline, which moves away with each command.
    looks: BTreeSet<(Time, ControllerId)>,
}

/// I/O queues that controllers have or were granted; one of each that has not asked yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// Of controllers over fabrics.
    pub over_fabrics: usize,
    /// Of PCIe functions.
    pub of_functions: usize,
}

impl Claims {
    /// What controllers over this transport have.
    pub fn over(&mut self, transport: Transport) -> &mut usize {
        match transport.is_fabric() {
            true => &mut self.over_fabrics,
            false => &mut self.of_functions,
        }
    }
}

/// What the roll counts of a controller; kept with it.
#[derive(Debug, Default)]
pub(super) struct Counted {
    claim: usize,
    look: Option<Time>,
}

impl Counted {
    /// Its I/O queues among [`Roll::claims`].
    pub fn claim(&self) -> usize {
        self.claim
    }
}

fn names(connected: &Connected) -> (Where, Nqn) {
    let controller = &connected.controller;
    let subsystem = controller.subsystem().map(|it| it.nqn.clone());
    (subsystem, controller.host().clone())
}

impl Roll {
    /// A controller came.
    pub fn enter(&mut self, connected: &mut Connected) {
        let names = names(connected);
        *self.by_subsystem.entry(names.0.clone()).or_default() += 1;
        let of_host = self.by_host.entry(names).or_default();
        of_host.insert(connected.controller.id());
        match connected.controller.transport().is_fabric() {
            true => self.over_fabrics += 1,
            false => self.functions += 1,
        }
        self.update(connected);
    }

    /// Its queues, its keep alive or its end may have changed.
    pub fn update(&mut self, connected: &mut Connected) {
        let claim = connected.claim();
        let claimed = self.claims.over(connected.controller.transport());
        *claimed = *claimed + claim - connected.counted.claim;
        connected.counted.claim = claim;
        // Silence is news of those alone that are not ending.
        let deadline = match connected.ending {
            true => None,
            false => connected.controller.keep_alive_deadline(),
        };
        let look = connected.counted.look;
        if look.is_none() || deadline.is_none_or(|deadline| look > Some(deadline)) {
            self.look_at(connected, deadline);
        }
    }

    fn look_at(&mut self, connected: &mut Connected, at: Option<Time>) {
        let id = connected.controller.id();
        if let Some(look) = connected.counted.look {
            self.looks.remove(&(look, id));
        }
        self.looks.extend(at.map(|at| (at, id)));
        connected.counted.look = at;
    }

    /// A controller is gone.
    pub fn leave(&mut self, mut connected: Connected) {
        let names = names(&connected);
        if let Some(count) = self.by_subsystem.get_mut(&names.0) {
            *count -= 1;
            if *count == 0 {
                self.by_subsystem.remove(&names.0);
            }
        }
        if let Some(of_host) = self.by_host.get_mut(&names) {
            of_host.remove(&connected.controller.id());
            if of_host.is_empty() {
                self.by_host.remove(&names);
            }
        }
        let transport = connected.controller.transport();
        match transport.is_fabric() {
            true => self.over_fabrics -= 1,
            false => self.functions -= 1,
        }
        *self.claims.over(transport) -= connected.counted.claim;
        self.look_at(&mut connected, None);
    }

    /// Controllers of a host at a subsystem, or of its discovery controllers.
    pub fn of_host(&self, subsystem: Where, host: &Nqn) -> impl Iterator<Item = ControllerId> {
        let of_host = self.by_host.get(&(subsystem, host.clone()));
        of_host.into_iter().flatten().copied()
    }

    /// How many controllers a subsystem has, or discovery.
    pub fn count(&self, subsystem: &Where) -> usize {
        self.by_subsystem.get(subsystem).copied().unwrap_or(0)
    }

    /// Controllers that came over fabrics: each has an admin queue.
    pub fn over_fabrics(&self) -> usize {
        self.over_fabrics
    }

    /// Controllers of functions.
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// What all have claimed.
    pub fn claims(&self) -> Claims {
        self.claims
    }

    /// When a keep alive is next worth a look: no deadline is before it.
    pub fn next_look(&self) -> Option<Time> {
        self.looks.first().map(|(at, _)| *at)
    }

    /// The first controller whose look is due.
    pub fn due(&self, now: Time) -> Option<ControllerId> {
        let (at, id) = self.looks.first()?;
        (*at <= now).then_some(*id)
    }

    /// A look found that its host was heard of meanwhile.
    pub fn look_later(&mut self, connected: &mut Connected) {
        self.look_at(connected, connected.controller.keep_alive_deadline());
    }
}

#[cfg(test)]
impl super::Registry {
    /// Holds the roll against a look at everybody.
    pub(in crate::controller) fn check_roll(&self) {
        let all = || self.associations.values();
        let mut claims = Claims::default();
        for connected in all() {
            *claims.over(connected.controller.transport()) += connected.claim();
        }
        assert_eq!(self.roll.claims, claims);
        let over_fabrics = all().filter(|it| it.controller.transport().is_fabric());
        let over_fabrics = over_fabrics.count();
        assert_eq!(self.roll.over_fabrics, over_fabrics);
        assert_eq!(self.roll.functions, all().count() - over_fabrics);
        let counts: usize = self.roll.by_subsystem.values().sum();
        assert_eq!(counts, all().count());
        for connected in all() {
            let (subsystem, host) = names(connected);
            let same = || all().filter(|other| names(other).0 == subsystem);
            assert_eq!(self.roll.count(&subsystem), same().count());
            let of_host = same().filter(|other| *other.controller.host() == host);
            let ids: Vec<_> = of_host.map(|other| other.controller.id()).collect();
            let listed: Vec<_> = self.roll.of_host(subsystem.clone(), &host).collect();
            assert_eq!(listed, ids);
            let deadline = connected.controller.keep_alive_deadline();
            let deadline = deadline.filter(|_| !connected.ending);
            let look = connected.counted.look;
            assert_eq!(look.is_some(), deadline.is_some());
            assert!(look <= deadline, "no deadline is before its look");
        }
        let looks = all().filter(|it| it.counted.look.is_some()).count();
        assert_eq!(self.roll.looks.len(), looks);
    }
}
