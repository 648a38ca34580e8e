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

use crate::config::{ListenerConfig, NamespaceConfig, ReferralConfig};
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
    /// Referrals.
    pub referrals: BTreeMap<SocketAddr, Change<ReferralConfig>>,
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
        Self {
            subsystems: changes(&bodies(base), &bodies(desired)),
            namespaces: changes(&namespaces(base), &namespaces(desired)),
            listeners: changes(&base.listeners, &desired.listeners),
            referrals: changes(&base.referrals, &desired.referrals),
        }
    }

    /// Puts it on a configuration. Returns what holds, and a line for each change that the file has overtaken.
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
                there.body = merged(&mut dropped, nqn, before, said, word);
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
        for ((nqn, nsid), change) in &self.namespaces {
            let what = format!("namespace {nsid} of {nqn}");
            if overtaken(&mut dropped, &what, change, base.namespace(nqn, *nsid)) {
                continue;
            }
            match desired.subsystems.get_mut(nqn) {
                Some(subsystem) => put(&mut subsystem.namespaces, nsid, change),
                None => dropped.push(format!("{what}: the file no longer has its subsystem")),
            }
        }
        for (port_id, change) in &self.listeners {
            let what = format!("listener {port_id}");
            if !overtaken(&mut dropped, &what, change, base.listeners.get(port_id)) {
                put(&mut desired.listeners, port_id, change);
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

/// A subsystem that the file had and has, field by field: the file's word where it is another one by now, what holds where it is not. A host that was denied
/// while serving stays denied, whatever else the file came to say: it is let in again by the admin plane alone.
fn merged(
    dropped: &mut Vec<String>,
    nqn: &Nqn,
    before: &SubsystemBody,
    said: &SubsystemBody,
    word: &SubsystemBody,
) -> SubsystemBody {
    let mut is_overtaken = false;
    let mut body = SubsystemBody {
        serial: newer(
            &mut is_overtaken,
            &before.serial,
            &said.serial,
            &word.serial,
        ),
        model: newer(&mut is_overtaken, &before.model, &said.model, &word.model),
        hosts: newer(&mut is_overtaken, &before.hosts, &said.hosts, &word.hosts),
        limits: newer(
            &mut is_overtaken,
            &before.limits,
            &said.limits,
            &word.limits,
        ),
    };
    if let (HostPolicy::Only(list), HostPolicy::Only(had), HostPolicy::Only(has)) =
        (&mut body.hosts, &before.hosts, &word.hosts)
    {
        let denied = |host: &Nqn| had.contains(host) && !has.contains(host);
        for host in list.iter().filter(|host| denied(host)) {
            dropped.push(format!(
                "subsystem {nqn}: {host} was denied while serving, and stays denied; `snapctl host allow` lets it in"
            ));
        }
        list.retain(|host| !denied(host));
    }
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
    format!("{what}: its section of the file was changed since, and holds")
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
    // The file came to say the same: nothing is lost.
    if change.word.as_ref() != said {
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
