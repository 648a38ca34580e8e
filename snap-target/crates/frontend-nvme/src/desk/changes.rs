//! What is served changes: requests of an operator, carried out with all reactors.
//!
//! ```text
//!  attach:   every reactor opens handles ---------------> hosts are told -> every reactor's queues see it -> answer
//!  detach:   hosts are told -> every reactor's queues see it no more -> its requests end -> every reactor closes its handles -> answer
//!  replace:  attach the new one, tell the hosts, detach the old one
//!  conceal:  hosts are told -> every reactor's queues see it no more -> the requests that they have of it end -> answer
//! ```
//! A step is an order to all reactors; the next one begins when all have said that they carried it out. From the third step of a detach or a concealment on nobody
//! waits longer than a moment: whoever asked is answered that operations are left, and is told when they have ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use namespace::{Namespace, NamespaceKey};
use nvme::controller::{ControllerId, Subsystem, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;
use telemetry::EventKind;

use super::disks::Disk;
use super::{Desk, To};
use crate::admin::{AdminError, Closed, Closing, Reply, Request};
use crate::event::Gone;
use crate::life::Life;
use crate::limits::{CLOSE_PATIENCE, DETACH_LIMIT, DETACH_PATIENCE, REFERRALS_MAX, SUBSYSTEMS_MAX};
use crate::message::{ChangeId, Message, Order};

/// Changes under way.
#[derive(Debug, Default)]
pub(super) struct Changes {
    by_id: HashMap<ChangeId, Change>,
    last: u64,
}

#[derive(Debug)]
struct Change {
    step: Step,
    /// Reactors that have not carried the step's order out.
    awaited: usize,
    began: Instant,
    asker: Asker,
}

/// Whoever asked for a change.
#[derive(Debug)]
enum Asker {
    /// Waits for the answer.
    Waits(Reply<Closed>),
    /// Was told that operations are left; their end is noted here.
    Told(Closing),
}

impl Asker {
    /// The change has come to its end.
    fn end(self, result: Result<(), AdminError>) {
        match self {
            Self::Waits(reply) => reply.send(result.map(|()| Closed::Done)),
            Self::Told(closing) => closing.end(),
        }
    }

    /// The change takes longer than anybody waits; `result` is what came of it.
    fn put_off(&mut self, result: Result<(), AdminError>) {
        let closing = Closing::default();
        if matches!(self, Self::Told(_)) {
            return;
        }
        if let Self::Waits(reply) = std::mem::replace(self, Self::Told(closing.clone())) {
            reply.send(result.map(|()| Closed::Later(closing)));
        }
    }
}

/// What the reactors are doing, and with it what comes next.
#[derive(Debug)]
enum Step {
    /// Opening handles of a namespace that is new, or that takes the place of this one.
    Attaching {
        nqn: Nqn,
        namespace: Arc<Namespace>,
        replaced: Option<NamespaceKey>,
        failed: Option<AdminError>,
    },
    /// Letting their queues see it.
    Passing,
    /// Taking these from their queues: no new command gets there.
    Hiding(Arc<[NamespaceKey]>),
    /// Taking the queues of these from their hosts, and ending their requests.
    Ending(Vec<ControllerId>),
    /// Taking this from the queues of these, whose hosts are to see it no longer: no new command of theirs gets there.
    Concealing(NamespaceKey, Arc<[ControllerId]>),
    /// Waiting for the requests that controllers have of what was taken from them.
    Leaving,
    /// Ending the requests of these.
    Retiring(Arc<[NamespaceKey]>),
    /// Closing the handles of these; then this is the answer.
    Detaching {
        keys: Arc<[NamespaceKey]>,
        answer: Result<(), AdminError>,
    },
}

impl Desk {
    /// Carries out what an operator asks, or begins to.
    pub(super) fn request(&mut self, request: Request) {
        match request {
            Request::CreateSubsystem(subsystem, life, reply) => {
                reply.send(self.create_subsystem(subsystem, *life));
            }
            Request::DeleteSubsystem(nqn, reply) => self.delete_subsystem(&nqn, reply),
            Request::SetHosts(nqn, hosts, reply) => match self.registry.set_hosts(&nqn, hosts) {
                Some(denied) => {
                    self.answer_all_async_events();
                    self.end_and_answer(denied, reply);
                }
                None => reply.send(Err(AdminError::NoSubsystem { nqn })),
            },
            Request::Attach(nqn, namespace, visibility, reply) => {
                self.attach(nqn, namespace, visibility, reply);
            }
            Request::Replace(nqn, namespace, reply) => self.replace(nqn, namespace, reply),
            Request::Detach(nqn, nsid, reply) => self.detach(&nqn, nsid, reply),
            Request::SetVisibility(nqn, nsid, visibility, reply) => {
                self.set_visibility(&nqn, nsid, visibility, reply);
            }
            Request::AddListener(port_id, bound, reply) => {
                reply.send(self.add_listener(port_id, bound));
            }
            Request::RemoveListener(port_id, reply) => reply.send(self.remove_listener(port_id)),
            Request::RemoveFunction(port_id, reply) => match self.remove_listener(port_id) {
                Ok(()) => {
                    let controllers = self.let_clients_go(port_id);
                    self.end_and_answer(controllers, reply);
                }
                Err(error) => reply.send(Err(error)),
            },
            Request::SetReferrals(mut referrals, reply) => {
                referrals.truncate(REFERRALS_MAX);
                self.registry.set_referrals(referrals);
                self.answer_all_async_events();
                reply.send(Ok(()));
            }
            Request::EndController(id, reply) => match self.registry.controller(id) {
                Some(_) => self.end_and_answer(vec![id], reply),
                None => reply.send(Err(AdminError::NoController { id })),
            },
            Request::Controllers(reply) => reply.send(Ok(self.controllers())),
            Request::Lifetimes(reply) => reply.send(Ok(self.lifetimes())),
        }
    }

    fn create_subsystem(&mut self, subsystem: Subsystem, life: Life) -> Result<(), AdminError> {
        if self.registry.target().subsystems().len() >= SUBSYSTEMS_MAX {
            return Err(AdminError::TooMany {
                what: "subsystems",
                limit: SUBSYSTEMS_MAX,
            });
        }
        let limits = &self.service.limits;
        let is_within = subsystem.limits.queue_entries_max <= limits.queue_entries_max
            && subsystem.limits.transfer_bytes_max <= limits.transfer_bytes_max
            && subsystem.limits.capsule_data_bytes == limits.capsule_data_bytes;
        if !is_within {
            return Err(AdminError::Connection);
        }
        let nqn = subsystem.nqn.clone();
        self.registry.add_subsystem(subsystem)?;
        self.begin_life(&nqn, life);
        self.disks.by_subsystem.insert(nqn, BTreeMap::new());
        self.answer_all_async_events();
        Ok(())
    }

    fn delete_subsystem(&mut self, nqn: &Nqn, reply: Reply<Closed>) {
        let Some(controllers) = self.registry.remove_subsystem(nqn) else {
            return reply.send(Err(AdminError::NoSubsystem { nqn: nqn.clone() }));
        };
        self.end_life(nqn);
        self.end_all(&controllers);
        self.answer_all_async_events();
        let disks = self.disks.by_subsystem.remove(nqn).unwrap_or_default();
        // One that is on its way in finds its subsystem gone, and leaves by itself.
        let there = disks.values().filter(|disk| !disk.is_coming);
        let keys: Vec<_> = there.map(|disk| disk.namespace.key).collect();
        self.retire(keys, reply);
    }

    fn end_all(&mut self, controllers: &[ControllerId]) {
        for id in controllers {
            self.end_controller(*id, Gone::Ended);
        }
    }

    /// Ends controllers; answered when their hosts reach them no more, and their last requests have ended or take long.
    fn end_and_answer(&mut self, controllers: Vec<ControllerId>, reply: Reply<Closed>) {
        self.end_all(&controllers);
        // Behind the orders that close their queues.
        let step = Step::Ending(controllers);
        self.begin(step, Instant::now(), Asker::Waits(reply), Order::Pass);
    }

    /// A controller has gone: changes that waited for it alone have ended.
    pub(super) fn look_at_endings(&mut self) {
        let leaving = &self.leaving;
        let is_over = |change: &Change| match &change.step {
            Step::Ending(ids) => {
                change.awaited == 0 && ids.iter().all(|id| !leaving.contains_key(id))
            }
            _ => false,
        };
        let all = self.changes.by_id.iter();
        let over: Vec<_> = all
            .filter(|(_, change)| is_over(change))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            if let Some(change) = self.changes.by_id.remove(&id) {
                change.asker.end(Ok(()));
            }
        }
    }

    fn attach(
        &mut self,
        nqn: Nqn,
        namespace: Arc<Namespace>,
        visibility: Visibility,
        reply: Reply<Closed>,
    ) {
        if let Err(error) = self.disks.check_new(&nqn, &namespace) {
            return reply.send(Err(error));
        }
        if let Ok(disks) = self.disks.of(&nqn) {
            let disk = Disk {
                namespace: namespace.clone(),
                visibility,
                is_coming: true,
            };
            disks.insert(namespace.nsid, disk);
        }
        self.begin_attach(nqn, namespace, None, reply);
    }

    fn replace(&mut self, nqn: Nqn, namespace: Arc<Namespace>, reply: Reply<Closed>) {
        match self.disks.check_next(&nqn, &namespace) {
            Ok(replaced) => self.begin_attach(nqn, namespace, Some(replaced), reply),
            Err(error) => reply.send(Err(error)),
        }
    }

    fn begin_attach(
        &mut self,
        nqn: Nqn,
        namespace: Arc<Namespace>,
        replaced: Option<NamespaceKey>,
        reply: Reply<Closed>,
    ) {
        let step = Step::Attaching {
            nqn,
            namespace: namespace.clone(),
            replaced,
            failed: None,
        };
        let began = Instant::now();
        let asker = Asker::Waits(reply);
        self.begin(step, began, asker, |id| Order::Attach(id, namespace));
    }

    fn detach(&mut self, nqn: &Nqn, nsid: Nsid, reply: Reply<Closed>) {
        let key = match self.disks.disk(nqn, nsid) {
            Ok(disk) => disk.namespace.key,
            Err(error) => return reply.send(Err(error)),
        };
        if let Ok(disks) = self.disks.of(nqn) {
            disks.remove(&nsid.0);
        }
        self.note_namespace(EventKind::Detached, nsid);
        match self.publish(nqn) {
            Ok(()) => self.retire(vec![key], reply),
            Err(error) => reply.send(Err(error)),
        }
    }

    fn set_visibility(
        &mut self,
        nqn: &Nqn,
        nsid: Nsid,
        visibility: Visibility,
        reply: Reply<Closed>,
    ) {
        let set = self.disks.disk(nqn, nsid).map(|disk| {
            disk.visibility = visibility;
            disk.namespace.key
        });
        let seeing = self.controllers_that_see(nqn, nsid);
        let published = set.and_then(|key| self.publish(nqn).map(|()| key));
        match published {
            Ok(key) => {
                let see = self.controllers_that_see(nqn, nsid);
                let lost = seeing.into_iter().filter(|id| !see.contains(id));
                let step = Step::Concealing(key, lost.collect());
                self.begin(step, Instant::now(), Asker::Waits(reply), Order::Pass);
            }
            Err(error) => reply.send(Err(error)),
        }
    }

    fn controllers_that_see(&self, nqn: &Nqn, nsid: Nsid) -> Vec<ControllerId> {
        self.controllers_of(nqn, |it| it.namespaces().get(nsid).is_some())
    }

    /// Tells the controllers of a subsystem, and the reactors that have their queues, what it has now.
    pub(super) fn publish(&mut self, nqn: &Nqn) -> Result<(), AdminError> {
        let infos = Arc::new(self.disks.infos(nqn)?);
        self.registry.set_namespaces(nqn, &infos);
        let of_subsystem = self.registry.controllers().filter(|controller| {
            let theirs = controller.subsystem();
            theirs.is_some_and(|subsystem| subsystem.nqn == *nqn)
        });
        for controller in of_subsystem {
            let seen = Arc::clone(controller.namespaces());
            let order = Order::Namespaces(controller.id(), seen);
            self.requests.push((To::All, Message::Order(order)));
        }
        self.answer_all_async_events();
        Ok(())
    }

    /// Ends what the queues no longer have, behind the orders that took it from them.
    fn retire(&mut self, keys: Vec<NamespaceKey>, reply: Reply<Closed>) {
        let step = Step::Hiding(keys.into());
        self.begin(step, Instant::now(), Asker::Waits(reply), Order::Pass);
    }

    /// Has every reactor carry out an order.
    fn begin(
        &mut self,
        step: Step,
        began: Instant,
        asker: Asker,
        order: impl FnOnce(ChangeId) -> Order,
    ) {
        self.changes.last += 1;
        let id = ChangeId(self.changes.last);
        if matches!(
            step,
            Step::Retiring(_) | Step::Detaching { .. } | Step::Ending(_) | Step::Leaving
        ) {
            self.look_after(id, CLOSE_PATIENCE);
        }
        self.changes.by_id.insert(
            id,
            Change {
                step,
                awaited: self.placing.reactors(),
                began,
                asker,
            },
        );
        self.requests.push((To::All, Message::Order(order(id))));
    }

    fn look_after(&self, id: ChangeId, time: Duration) {
        if self.owner.timer(Instant::now() + time, id.0).is_err() {
            tracing::error!("no timer left: a detach may wait for its store for ever");
        }
    }

    /// What a change took away has not come to its end in time: whoever asked waits no longer.
    pub(super) fn change_takes_long(&mut self, id: ChangeId) {
        let Some(change) = self.changes.by_id.get_mut(&id) else {
            return;
        };
        let (keys, result) = match &change.step {
            Step::Retiring(keys) => (keys.clone(), Ok(())),
            Step::Detaching { keys, answer } => (keys.clone(), answer.clone()),
            Step::Ending(_) if change.awaited == 0 => return change.asker.put_off(Ok(())),
            // A reactor has not closed its queues yet.
            Step::Ending(_) => return self.look_after(id, CLOSE_PATIENCE),
            // Hosts that lost a namespace are still there, and wait for these answers: they are not cancelled.
            Step::Leaving => return change.asker.put_off(Ok(())),
            Step::Attaching { .. } | Step::Passing | Step::Hiding(_) | Step::Concealing(..) => {
                return;
            }
        };
        change.asker.put_off(result);
        let elapsed = change.began.elapsed();
        if elapsed >= DETACH_LIMIT {
            tracing::error!(
                "a store does not answer: its namespace is detached and its handles stay open until it does"
            );
            return;
        }
        if elapsed >= DETACH_PATIENCE {
            tracing::warn!("requests of a namespace that is detached are cancelled");
            let order = Order::Cancel(keys);
            self.requests.push((To::All, Message::Order(order)));
        }
        self.look_after(id, DETACH_PATIENCE);
    }

    /// A reactor has carried out its part of a change, or cannot.
    pub(super) fn carried(&mut self, id: ChangeId, reactor: u16, result: Result<(), String>) {
        let Some(change) = self.changes.by_id.get_mut(&id) else {
            return;
        };
        change.awaited -= 1;
        if let (Step::Attaching { failed, .. }, Err(why)) = (&mut change.step, result) {
            failed.get_or_insert(AdminError::Reactor { reactor, why });
        }
        if change.awaited == 0
            && let Some(change) = self.changes.by_id.remove(&id)
        {
            self.step_ended(id, change);
        }
    }

    /// Every reactor has done its part: the next step, or the answer.
    fn step_ended(&mut self, id: ChangeId, change: Change) {
        if matches!(change.step, Step::Ending(_)) {
            self.changes.by_id.insert(id, change);
            return self.look_at_endings();
        }
        let Change {
            step, began, asker, ..
        } = change;
        match step {
            Step::Attaching {
                nqn,
                namespace,
                replaced,
                failed,
            } => {
                let taken = match failed {
                    None => self.take_in(&nqn, &namespace, replaced),
                    Some(error) => Err(error),
                };
                if taken.is_ok() {
                    self.log_given_to_connected(&nqn, &namespace);
                }
                match (taken, replaced) {
                    (Ok(()), None) => self.begin(Step::Passing, began, asker, Order::Pass),
                    (Ok(()), Some(old)) => {
                        let step = Step::Hiding([old].into());
                        self.begin(step, Instant::now(), asker, Order::Pass);
                    }
                    (Err(error), _) => self.turn_away(&nqn, &namespace, error, asker),
                }
            }
            Step::Hiding(keys) => {
                let step = Step::Retiring(keys.clone());
                self.begin(step, began, asker, |id| Order::Retire(id, keys));
            }
            Step::Retiring(keys) => {
                let step = Step::Detaching {
                    keys: keys.clone(),
                    answer: Ok(()),
                };
                self.begin(step, began, asker, |id| Order::Detach(id, keys));
            }
            Step::Concealing(key, from) => {
                self.begin(Step::Leaving, began, asker, |id| {
                    Order::Await(id, key, from)
                });
            }
            Step::Passing | Step::Leaving => asker.end(Ok(())),
            Step::Detaching { answer, .. } => asker.end(answer),
            Step::Ending(_) => {}
        }
    }

    /// Every reactor has a namespace: hosts are told.
    fn take_in(
        &mut self,
        nqn: &Nqn,
        namespace: &Arc<Namespace>,
        replaced: Option<NamespaceKey>,
    ) -> Result<(), AdminError> {
        let nsid = Nsid(namespace.nsid);
        let disk = self.disks.of(nqn)?.get_mut(&namespace.nsid);
        let expected = replaced.unwrap_or(namespace.key);
        let disk = disk
            .filter(|disk| disk.namespace.key == expected)
            .ok_or_else(|| AdminError::NoNamespace {
                nqn: nqn.clone(),
                nsid,
            })?;
        disk.namespace = namespace.clone();
        disk.is_coming = false;
        let kind = match replaced {
            Some(_) => EventKind::Resized,
            None => EventKind::Attached,
        };
        self.note_namespace(kind, nsid);
        self.publish(nqn)
    }

    /// A namespace is not taken in: whichever reactor has it lets go of it.
    fn turn_away(
        &mut self,
        nqn: &Nqn,
        namespace: &Arc<Namespace>,
        error: AdminError,
        asker: Asker,
    ) {
        if let Ok(disks) = self.disks.of(nqn) {
            let is_ours =
                |_: &u32, disk: &mut Disk| !(disk.is_coming && disk.namespace.key == namespace.key);
            disks.retain(is_ours);
        }
        let keys: Arc<[NamespaceKey]> = [namespace.key].into();
        let step = Step::Detaching {
            keys: keys.clone(),
            answer: Err(error),
        };
        self.begin(step, Instant::now(), asker, |id| Order::Detach(id, keys));
    }
}
