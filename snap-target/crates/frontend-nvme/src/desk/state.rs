//! What outlives controllers: a namespace's reservations and its write protection. The desk alone changes them, one change of a namespace at a time:
//!
//! ```text
//!  command --> next state --> on stable storage --> in force on every reactor --> hosts are told --> commands of the preempted end --> answer
//! ```
//! From before a preemption is in force until every reactor has given up or fenced what the preempted have under way there, no write begins (`fences`).

mod change;
mod fences;
mod kept;
mod overdue;
mod protecting;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use namespace::{Engine, Namespace, NamespaceKey};
use nvme::Time;
use nvme::controller::reservation::Change;
use nvme::controller::{ControllerId, NamespaceAsk, Protection};
use nvme::nqn::Nqn;
use nvme::queue::{Completion, QueueId, Slot};
use nvme_spec::{IoOpcode, Nsid, Sqe, Status};

use super::{Desk, To};
use crate::message::{Message, PreemptId, Reserve, Reserved};
use crate::table::Key;
pub(super) use kept::KeptInbox;
use overdue::Overdue;

/// Changes of namespaces' states, those under way and those that wait for them.
#[derive(Debug, Default)]
pub(super) struct States {
    lines: BTreeMap<(Nqn, u32), Line>,
    /// Set Features commands, by number.
    commands: HashMap<u64, AdminCommand>,
    last: u64,
    kept: KeptInbox,
    fences: fences::Fences,
    flushes: protecting::Flushes,
}

/// The changes of one namespace.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Item>,
    busy: Option<Busy>,
}

/// A change that is asked for.
#[derive(Debug)]
struct Item {
    asker: Asker,
    namespace: Arc<Namespace>,
    what: What,
}

#[derive(Debug)]
enum What {
    Command { sqe: Sqe, data: Vec<u8> },
    Persistence(bool),
    Protection(Protection),
}

/// Who gets the answer.
#[derive(Clone, Copy, Debug)]
enum Asker {
    /// A command of an I/O queue.
    Queue {
        controller: ControllerId,
        queue: QueueId,
        token: u64,
    },
    /// A Set Features command.
    Admin(u64),
}

/// A Set Features command that may concern several namespaces.
#[derive(Debug)]
struct AdminCommand {
    key: Key,
    slot: Slot,
    left: usize,
    status: Status,
}

/// What a line is doing.
#[derive(Debug)]
enum Busy {
    /// Its record is on its way to stable storage.
    Keeping {
        number: u64,
        asker: Asker,
        namespace: Arc<Namespace>,
        next: Next,
        until: Time,
    },
    /// It has not got there in time, and may still.
    Overdue(Overdue),
    /// Reactors end the commands of the preempted.
    Preempting {
        id: PreemptId,
        asker: Asker,
        /// Reactors that have not said so.
        awaited: usize,
        until: Time,
    },
}

/// The state to come.
#[derive(Debug)]
enum Next {
    Reservations(Change),
    Protection(Protection),
}

impl States {
    /// Whether the desk has something to begin that no event will bring about.
    pub(super) fn has_work(&self) -> bool {
        self.flushes.wait_to_begin() || self.fences.are_to_be_lowered()
    }

    /// A reactor has carried out its part of a Preempt and Abort.
    pub(super) fn fenced(&mut self, id: PreemptId) {
        self.fences.carried(id);
    }

    /// Lets writes begin where every reactor has.
    pub(super) fn lower_fences(&mut self, engine: &mut Engine) {
        self.fences.lower(engine);
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Desk {
    /// A reservation command of an I/O queue.
    pub(super) fn reserve(&mut self, reserve: Reserve) {
        let asker = Asker::Queue {
            controller: reserve.controller,
            queue: reserve.queue,
            token: reserve.token,
        };
        let nsid = reserve.sqe.nsid();
        let Some((nqn, namespace)) = self.namespace_of(reserve.controller, nsid) else {
            return self.state_answer(asker, Err(Status::INVALID_NAMESPACE.dnr()), Vec::new());
        };
        if IoOpcode(reserve.sqe.opcode) == IoOpcode::RESERVATION_REPORT {
            // NUMD, zero-based dwords: the queue has checked it against MDTS.
            let bytes = (reserve.sqe.cdw10.get() as usize).saturating_add(1) * 4;
            let report = namespace.access.reservations().report(bytes);
            return self.state_answer(asker, Ok(()), report);
        }
        let item = Item {
            asker,
            namespace,
            what: What::Command {
                sqe: reserve.sqe,
                data: reserve.data,
            },
        };
        self.line_up(nqn, nsid, item);
    }

    /// A feature that lives with a namespace.
    pub(super) fn ask_namespace(
        &mut self,
        key: Key,
        id: ControllerId,
        slot: Slot,
        ask: NamespaceAsk,
    ) {
        let (nsids, what): (Vec<Nsid>, fn(NamespaceAsk) -> What) = match ask {
            NamespaceAsk::GetPersistence(nsid) => {
                let completion = match self.namespace_of(id, nsid) {
                    Some((_, namespace)) => Completion::result(u32::from(
                        namespace.access.reservations().is_persistent(),
                    )),
                    None => Completion::of(Status::INVALID_NAMESPACE.dnr()),
                };
                return self.answer(key, slot, completion);
            }
            NamespaceAsk::SetPersistence(Nsid::BROADCAST, _) => {
                let seen = self
                    .registry
                    .controller(id)
                    .map(|it| it.namespaces().clone());
                let nsids = seen.iter().flat_map(|set| set.iter().map(|info| info.nsid));
                (nsids.collect(), what)
            }
            NamespaceAsk::SetPersistence(nsid, _) | NamespaceAsk::SetProtection(nsid, _) => {
                (vec![nsid], what)
            }
        };
        let number = self.states.next_number();
        let command = AdminCommand {
            key,
            slot,
            // One more than there are namespaces, so that none of them ends the count before all have begun.
            left: 1,
            status: Status::SUCCESS,
        };
        self.states.commands.insert(number, command);
        for nsid in nsids {
            let Some((nqn, namespace)) = self.namespace_of(id, nsid) else {
                continue;
            };
            let cannot_persist = matches!(ask, NamespaceAsk::SetPersistence(_, true))
                && !namespace.keeper.is_durable();
            if cannot_persist {
                continue;
            }
            if let Some(command) = self.states.commands.get_mut(&number) {
                command.left += 1;
            }
            let item = Item {
                asker: Asker::Admin(number),
                namespace,
                what: what(ask),
            };
            self.line_up(nqn, nsid, item);
        }
        self.state_answer(Asker::Admin(number), Ok(()), Vec::new());
    }

    /// The namespace that a controller's host means, and its subsystem.
    fn namespace_of(&self, id: ControllerId, nsid: Nsid) -> Option<(Nqn, Arc<Namespace>)> {
        let controller = self.registry.controller(id)?;
        let handle = controller.namespaces().get(nsid)?.handle;
        let nqn = controller.subsystem()?.nqn.clone();
        let key = NamespaceKey::from_bits(handle);
        let namespace = self.disks.namespace(&nqn, nsid, key)?;
        Some((nqn, namespace))
    }

    fn line_up(&mut self, nqn: Nqn, nsid: Nsid, item: Item) {
        let place = (nqn, nsid.0);
        let line = self.states.lines.entry(place.clone()).or_default();
        if line.is_stuck(&item.namespace) {
            return self.state_answer(item.asker, Err(Status::INTERNAL_ERROR), Vec::new());
        }
        line.waiting.push_back(item);
        self.go_on(&place);
    }

    /// Answers a command: a reservation command to its queue's reactor, a feature on its admin queue once all its namespaces have it.
    fn state_answer(&mut self, asker: Asker, result: Result<(), Status>, data: Vec<u8>) {
        let status = result.err().unwrap_or(Status::SUCCESS);
        match asker {
            Asker::Queue {
                controller,
                queue,
                token,
            } => {
                // It stays there until this was answered, whatever became of its connection.
                let Some(reactor) = self.placing.of(controller, queue) else {
                    return;
                };
                let reserved = Box::new(Reserved {
                    token,
                    status,
                    data,
                });
                let message = Message::Reserved(reserved);
                self.requests.push((To::Reactor(reactor), message));
            }
            Asker::Admin(number) => {
                let Some(command) = self.states.commands.get_mut(&number) else {
                    return;
                };
                if command.status == Status::SUCCESS {
                    command.status = status;
                }
                command.left -= 1;
                if command.left == 0
                    && let Some(command) = self.states.commands.remove(&number)
                {
                    let completion = Completion::of(command.status);
                    self.answer(command.key, command.slot, completion);
                }
            }
        }
    }
}

fn what(ask: NamespaceAsk) -> What {
    match ask {
        NamespaceAsk::SetProtection(_, protection) => What::Protection(protection),
        NamespaceAsk::SetPersistence(_, persistent) => What::Persistence(persistent),
        NamespaceAsk::GetPersistence(_) => What::Persistence(false),
    }
}
