//! What the admin plane changed of what the configuration says.
//!
//! An [`Overlay`] is the difference of the two: for each object that differs, what the configuration said of it at that time, and what holds instead.
//! The next start puts it on the configuration again. Where the configuration has another word for the object by then, the file was edited since:
//! whoever changed it last is right, so the file's word holds and the overlay's is dropped.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;

use nvme::controller::HostPolicy;
use nvme::nqn::Nqn;

use crate::config::{
    FunctionConfig, FunctionName, ListenerConfig, NamespaceConfig, ReferralConfig,
};
use crate::desired::{Desired, PortId, Subsystem, SubsystemBody};

/// One object: what the configuration says of it, and what holds. `None`: it is not there.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<T> {
    /// The configuration's word when the change was made.
    pub base: Option<T>,
    /// What holds.
    pub word: Option<T>,
}

/// Every object that differs from the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlay {
    /// Subsystems, without their namespaces.
    pub subsystems: BTreeMap<Nqn, Change<SubsystemBody>>,
    /// Namespaces of subsystems that are there.
    pub namespaces: BTreeMap<(Nqn, u32), Change<NamespaceConfig>>,
    /// Listeners.
    pub listeners: BTreeMap<PortId, Change<ListenerConfig>>,
    /// Functions.
    pub functions: BTreeMap<FunctionName, Change<FunctionConfig>>,
    /// Referrals.
    pub referrals: BTreeMap<SocketAddr, Change<ReferralConfig>>,
    /// Hosts that were denied, by subsystem. No word of the configuration lets them in.
    pub denied: BTreeMap<Nqn, Vec<Nqn>>,
    /// The lists that were in force, of subsystems with denials that are not there.
    pub left_lists: BTreeMap<Nqn, Vec<Nqn>>,
}

impl Overlay {
    /// How `desired` differs from `base`.
    pub fn between(base: &Desired, desired: &Desired) -> Self {
        let bodies = |of: &Desired| {
            let all = of.subsystems.iter();
            all.map(|(nqn, it)| (nqn.clone(), it.body.clone()))
                .collect::<BTreeMap<_, _>>()
        };
        // The namespaces of a subsystem that was deleted went with it. If the file brings it back, they come back.
        let namespaces = |of: &Desired| {
            let kept = of
                .subsystems
                .iter()
                .filter(|(nqn, _)| desired.subsystems.contains_key(*nqn));
            kept.flat_map(|(nqn, it)| {
                let all = it.namespaces.iter();
                all.map(|(nsid, one)| ((nqn.clone(), *nsid), one.clone()))
            })
            .collect::<BTreeMap<_, _>>()
        };
        let (said, held) = (bodies(base), bodies(desired));
        let mut subsystems = changes(&said, &held);
        // Of one with denials the list in force is kept, changed or not: it holds if the file comes to allow any host.
        for nqn in desired.denied.keys() {
            if let (Some(base), Some(word)) = (said.get(nqn), held.get(nqn)) {
                let unchanged = Change {
                    base: Some(base.clone()),
                    word: Some(word.clone()),
                };
                subsystems.entry(nqn.clone()).or_insert(unchanged);
            }
        }
        Self {
            subsystems,
            namespaces: changes(&namespaces(base), &namespaces(desired)),
            listeners: changes(&base.listeners, &desired.listeners),
            functions: changes(&base.functions, &desired.functions),
            referrals: changes(&base.referrals, &desired.referrals),
            denied: desired.denied.clone(),
            left_lists: desired.left_lists.clone(),
        }
    }

    /// Puts it on a configuration. Returns what holds, and a line for each change that the file has overtaken, and for each host that it would have let in.
    pub fn onto(&self, base: &Desired) -> (Desired, Vec<String>) {
        let mut dropped = Vec::new();
        let mut desired = base.clone();
        for (nqn, change) in &self.subsystems {
            let said = base.subsystems.get(nqn).map(|it| &it.body);
            if let (Some(before), Some(said), Some(word), Some(there)) = (
                &change.base,
                said,
                &change.word,
                desired.subsystems.get_mut(nqn),
            ) {
                there.body = merged(
                    &mut dropped,
                    nqn,
                    before,
                    said,
                    word,
                    self.denied.contains_key(nqn),
                );
                continue;
            }
            if overtaken(&mut dropped, format!("subsystem {nqn}"), change, said) {
                continue;
            }
            match (&change.word, desired.subsystems.get_mut(nqn)) {
                (None, _) => {
                    desired.subsystems.remove(nqn);
                }
                (Some(body), Some(there)) => there.body = body.clone(),
                (Some(body), None) => {
                    let made = Subsystem {
                        body: body.clone(),
                        namespaces: BTreeMap::new(),
                    };
                    desired.subsystems.insert(nqn.clone(), made);
                }
            }
        }
        desired.denied.clone_from(&self.denied);
        self.keep_out(&mut desired, &mut dropped);
        desired.left_lists = self.lists_left(&desired);
        for ((nqn, nsid), change) in &self.namespaces {
            let what = format!("namespace {nsid} of {nqn}");
            if overtaken(&mut dropped, &what, change, base.namespace(nqn, *nsid)) {
                continue;
            }
            match desired.subsystems.get_mut(nqn) {
                Some(subsystem) => put(&mut subsystem.namespaces, nsid, change),
                None => dropped.push(format!(
                    "{what} was added while serving and is forgotten: the file no longer has its subsystem"
                )),
            }
        }
        for (port_id, change) in &self.listeners {
            let what = format!("listener {port_id}");
            if !overtaken(&mut dropped, &what, change, base.listeners.get(port_id)) {
                put(&mut desired.listeners, port_id, change);
            }
        }
        for (name, change) in &self.functions {
            let what = format!("function {name}");
            if !overtaken(&mut dropped, &what, change, base.functions.get(name)) {
                put(&mut desired.functions, name, change);
            }
        }
        for (address, change) in &self.referrals {
            let what = format!("referral {address}");
            if !overtaken(&mut dropped, &what, change, base.referrals.get(address)) {
                put(&mut desired.referrals, address, change);
            }
        }
        (desired, dropped)
    }
}

impl Overlay {
    /// Nobody who was denied is let in by the file: they are taken off its lists, and where it came to allow any host, the list that was in force holds.
    fn keep_out(&self, desired: &mut Desired, dropped: &mut Vec<String>) {
        for (nqn, denied) in &desired.denied {
            let Some(subsystem) = desired.subsystems.get_mut(nqn) else {
                continue;
            };
            let policy = &mut subsystem.body.hosts;
            if let HostPolicy::Only(list) = policy {
                for host in list.iter().filter(|host| denied.contains(host)) {
                    dropped.push(format!(
                        "subsystem {nqn}: {host} was denied while serving, and stays denied; `snapctl host allow` lets it in"
                    ));
                }
                list.retain(|host| !denied.contains(host));
                continue;
            }
            let mut list = self.list_in_force(nqn).unwrap_or_default();
            list.retain(|host| !denied.contains(host));
            *policy = HostPolicy::Only(list);
            let others = match denied.len() - 1 {
                0 => " was".to_owned(),
                more => format!(" and {more} more were"),
            };
            let first = denied.first().map(Nqn::to_string).unwrap_or_default();
            dropped.push(format!(
                "subsystem {nqn}: the file allows any host, but {first}{others} denied while serving: only hosts that were allowed before may connect; `snapctl host allow {nqn} --any-host` lets all in"
            ));
        }
    }

    /// Of each subsystem with denials that is no longer there, since the file dropped it, the list that was in force.
    fn lists_left(&self, desired: &Desired) -> BTreeMap<Nqn, Vec<Nqn>> {
        let gone = self.denied.keys();
        let gone = gone.filter(|nqn| !desired.subsystems.contains_key(*nqn));
        gone.filter_map(|nqn| Some((nqn.clone(), self.list_in_force(nqn)?)))
            .collect()
    }

    /// The list of those who could connect, now or when the file dropped the subsystem. One that was deleted while serving has none.
    fn list_in_force(&self, nqn: &Nqn) -> Option<Vec<Nqn>> {
        let Some(change) = self.subsystems.get(nqn) else {
            return self.left_lists.get(nqn).cloned();
        };
        match &change.word.as_ref()?.hosts {
            HostPolicy::Only(list) => Some(list.clone()),
            HostPolicy::Any => None,
        }
    }
}

/// A subsystem that the file had and has, field by field: the file's word where it is another one by now, what holds where it is not. "Any host" beside
/// denials is left to [`Overlay::keep_out`], which has the line for it.
fn merged(
    dropped: &mut Vec<String>,
    nqn: &Nqn,
    before: &SubsystemBody,
    said: &SubsystemBody,
    word: &SubsystemBody,
    has_denied: bool,
) -> SubsystemBody {
    let mut is_overtaken = false;
    let overtaken = &mut is_overtaken;
    let hosts = if has_denied && said.hosts == HostPolicy::Any && before.hosts != said.hosts {
        said.hosts.clone()
    } else {
        newer(overtaken, &before.hosts, &said.hosts, &word.hosts)
    };
    let body = SubsystemBody {
        serial: newer(overtaken, &before.serial, &said.serial, &word.serial),
        model: newer(overtaken, &before.model, &said.model, &word.model),
        limits: newer(overtaken, &before.limits, &said.limits, &word.limits),
        hosts,
    };
    if is_overtaken {
        dropped.push(overtaken_line(format!("subsystem {nqn}")));
    }
    body
}

/// The file's word where it changed, and what holds where it did not.
fn newer<T: Clone + PartialEq>(is_overtaken: &mut bool, before: &T, said: &T, word: &T) -> T {
    if before == said {
        return word.clone();
    }
    *is_overtaken |= word != before && word != said;
    said.clone()
}

fn overtaken_line(what: impl Display) -> String {
    format!(
        "{what}: its section of the file was changed since, and holds; what was changed while serving is forgotten"
    )
}

fn changes<K: Ord + Clone, T: Clone + PartialEq>(
    base: &BTreeMap<K, T>,
    desired: &BTreeMap<K, T>,
) -> BTreeMap<K, Change<T>> {
    let keys = base.keys().chain(desired.keys());
    keys.filter(|key| base.get(key) != desired.get(key))
        .map(|key| {
            let change = Change {
                base: base.get(key).cloned(),
                word: desired.get(key).cloned(),
            };
            (key.clone(), change)
        })
        .collect()
}

/// Whether the file says something else than when the change was made.
fn overtaken<T: PartialEq>(
    dropped: &mut Vec<String>,
    what: impl Display,
    change: &Change<T>,
    said: Option<&T>,
) -> bool {
    if change.base.as_ref() == said {
        return false;
    }
    // The file came to say the same, or nothing but denials was kept: nothing is lost.
    if change.word.as_ref() != said && change.word != change.base {
        dropped.push(overtaken_line(what));
    }
    true
}

fn put<K: Ord + Clone, T: Clone>(all: &mut BTreeMap<K, T>, key: &K, change: &Change<T>) {
    match &change.word {
        Some(word) => {
            all.insert(key.clone(), word.clone());
        }
        None => {
            all.remove(key);
        }
    }
}
