//! One way to a subsystem: an association brought up, watched, lost, and brought up again.
//!
//! ```text
//! Down --Connect--> Connecting --admin_up--> attaching, surveying --> Up --lost--> Down ...
//! ```
//! The driver does what [`Path::step`] says, on the admin queue's connection, until it says wait; brings answers back
//! ([`Path::answered`]), and says when any connection of the association ended ([`Path::lost`]): then it closes all of them, and what was
//! outstanding is of unknown outcome until the time that `lost` returns. I/O queues are the driver's, from [`PathEvent::Up`] on.
//!
//! **Known dead.** A controller that does not hear from its host ends by itself: KATO after the last command that it may have received, and CQT
//! after that nothing of the host's commands takes effect any more (Base, "Communication Loss Handling"). So from the moment in which all connections of
//! an association are closed, with nothing left in this machine's send queues, that takes KATO, in the controller's own steps, + CQT + a margin: for what the
//! network holds back, since a late command is heard, and carried out, as if its host were there; and for CQT where a controller reports none.

use std::collections::VecDeque;
use std::time::Duration;

use nvme_spec::feature::{AsyncEvent, async_event_configuration};
use nvme_spec::log::LogPageId;
use nvme_spec::{Cqe, Nsid};

use super::ana::{self, ANA_LOG_BYTES_MAX};
use super::command::{self, Association};
use super::{
    AnaState, AttachAdmin, Attached, Command, InitiatorError, KeepAlive, KeepAliveStep,
    NamespaceInfo, Sequence, Step, expect_success,
};
use crate::Time;

/// SQSIZE of the admin queue, and the commands outstanding there: fabrics asks for at least 32 entries.
pub const ADMIN_ENTRIES_Z: u16 = 31;
/// The Changed Attached Namespace List: 1,024 NSIDs.
const CHANGED_LIST_BYTES: u32 = 4096;
/// Waits after so many attempts in vain are as long as after this many: 2^16 times the shortest.
const DOUBLINGS_MAX: u32 = 16;
/// Changes that a path wants to hear of.
const NOTICES: u32 = async_event_configuration::NAMESPACE_ATTRIBUTE_NOTICES
    | async_event_configuration::ANA_CHANGE_NOTICES;

/// What a path is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOptions {
    /// Who connects to what.
    pub association: Association,
    /// The namespace that matters; `None`: the only one there is.
    pub nsid: Option<Nsid>,
    /// I/O queues asked for; at least one.
    pub io_queues_wanted: u16,
    /// KATO; not zero.
    pub keep_alive: Duration,
    /// What the network can hold back; it stands for CQT as well where the controller reports none.
    pub quiesce_margin: Duration,
    /// The wait before the first new attempt.
    pub reconnect_delay_min: Duration,
    /// Waits double up to this.
    pub reconnect_delay_max: Duration,
}

/// Which command of the admin queue an answer is for. One of each kind is outstanding at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AdminCommand {
    /// Of the sequence that brings the association up.
    Attach,
    /// Keep Alive.
    KeepAlive,
    /// Asynchronous Event Request: answered when something happens, or never.
    AsyncEvent,
    /// Looks at what may have changed.
    Survey,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// Connect an admin queue; then [`Path::admin_up`] or [`Path::lost`].
    Connect,
    /// Send this command on it, `data_out` with it.
    Issue {
        /// For [`Path::answered`].
        of: AdminCommand,
        /// The command.
        command: Command,
        /// Its outgoing data.
        data_out: Vec<u8>,
    },
    /// The association is given up: close all its connections, and call [`Path::lost`].
    GiveUp(InitiatorError),
    /// Nothing before that time, unless an answer comes.
    WaitUntil(Time),
    /// Nothing, until the driver says something.
    Wait,
}

/// What an answer has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The association stands: [`Path::up`]. I/O queues may be connected.
    Up,
    /// [`Path::namespace`] or [`Path::ana`] may be another than before.
    Changed,
}

/// See the module.
#[derive(Debug)]
pub struct Path {
    options: PathOptions,
    stage: Stage,
    generation: u64,
    /// Attempts since the last association that stood for a while.
    attempts: u32,
    random: u64,
}

#[derive(Debug)]
enum Stage {
    Down { connect_at: Time },
    Connecting,
    Attaching(Box<Attaching>),
    Live(Box<Live>),
}

#[derive(Debug)]
struct Attaching {
    sequence: AttachAdmin,
    issued: bool,
    by: Time,
}

/// What is known of an association that stands, or is about to.
#[derive(Debug)]
struct Live {
    attached: Attached,
    /// As the options name it.
    named: Option<Nsid>,
    namespace: Option<NamespaceInfo>,
    ana: AnaState,
    keep_alive: KeepAlive,
    awaits_event: bool,
    surveys: VecDeque<Survey>,
    /// The first of them is issued, since then.
    surveying: Option<Time>,
    is_up: bool,
    since: Time,
}

/// A look at something.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Survey {
    /// Asks for these notices.
    ConfigureEvents(u32),
    AnaGroups,
    /// Reading the list lets the controller report the next change.
    ChangedList,
    Namespace(Nsid),
    Descriptors(Box<NamespaceInfo>),
}

impl Path {
    /// A path that is down and connects at once. `seed` makes its waits differ from those of others.
    pub fn new(options: PathOptions, seed: u64, now: Time) -> Path {
        Path {
            options,
            stage: Stage::Down { connect_at: now },
            generation: 0,
            attempts: 0,
            random: seed | 1,
        }
    }

    /// Counts the associations, begun with each [`PathStep::Connect`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether there is no association, nor one on its way.
    pub fn is_down(&self) -> bool {
        matches!(self.stage, Stage::Down { .. })
    }

    /// What the association found out, while it is up.
    pub fn up(&self) -> Option<&Attached> {
        self.live().map(|live| &live.attached)
    }

    /// The namespace as it was looked at last, while the path is up and it is there.
    pub fn namespace(&self) -> Option<&NamespaceInfo> {
        self.live()?.namespace.as_ref()
    }

    /// How the namespace is reached; inaccessible while the path is down.
    pub fn ana(&self) -> AnaState {
        self.live().map_or(AnaState::Inaccessible, |live| live.ana)
    }

    fn live(&self) -> Option<&Live> {
        match &self.stage {
            Stage::Live(live) if live.is_up => Some(live),
            _ => None,
        }
    }

    /// How long after the loss of an association of this kind its controller is surely dead.
    pub fn dead_after(&self) -> Duration {
        let kato = self.options.keep_alive;
        let (keep_alive, quiesce) = self.up().map_or((kato, Duration::ZERO), |attached| {
            let controller = &attached.controller;
            let keep_alive = in_steps_of(kato, controller.keep_alive_granularity_ms);
            // One that counts traffic looks once in each timeout: what came right after a look is noticed at the next, and expires at the one after.
            let looks = 1 + u32::from(controller.traffic_based_keep_alive);
            (keep_alive * looks, controller.quiesce_time)
        });
        keep_alive + quiesce + self.options.quiesce_margin
    }

    /// The admin queue is connected: Connect comes first.
    pub fn admin_up(&mut self, now: Time) {
        let Stage::Connecting = self.stage else {
            return;
        };
        let options = &self.options;
        let sequence = AttachAdmin::new(
            options.association.clone(),
            ADMIN_ENTRIES_Z,
            options.keep_alive,
            options.io_queues_wanted.max(1),
            now,
        );
        self.stage = match sequence {
            Ok(sequence) => Stage::Attaching(Box::new(Attaching {
                sequence: match options.nsid {
                    Some(nsid) => sequence.only(nsid),
                    None => sequence,
                },
                issued: false,
                by: now + options.keep_alive,
            })),
            // A name that no field holds was refused when the options were made; there is no way to connect.
            Err(_) => self.down(now),
        };
    }

    /// A connection of the association ended, or could not be made, and all others of it are closed. Says when its controller is surely dead: at once
    /// where it never stood. `None`: it was lost before, and nothing that its connections still bring makes its controller die earlier.
    pub fn lost(&mut self, now: Time) -> Option<Time> {
        let dead_at = match &self.stage {
            Stage::Down { .. } => return None,
            Stage::Live(live) => {
                if now.since(live.since) >= self.options.reconnect_delay_max {
                    self.attempts = 0;
                }
                now + self.dead_after()
            }
            _ => now,
        };
        self.stage = self.down(now);
        Some(dead_at)
    }

    fn down(&mut self, now: Time) -> Stage {
        let doubled = self
            .options
            .reconnect_delay_min
            .saturating_mul(1 << self.attempts.min(DOUBLINGS_MAX));
        let most = doubled.min(self.options.reconnect_delay_max);
        self.attempts = self.attempts.saturating_add(1);
        // Between half of it and all of it, so that many hosts of one target do not come back at one moment.
        let half = u64::try_from(most.as_nanos() / 2).unwrap_or(u64::MAX / 2);
        let jitter = self.next_random() % (half + 1);
        Stage::Down {
            connect_at: now + Duration::from_nanos(half + jitter),
        }
    }

    /// xorshift64 (Marsaglia 2003): spread is all that is asked of it.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// What to do next; to be asked again until it says wait, and after each answer and at the time it names.
    pub fn step(&mut self, now: Time) -> PathStep {
        match &mut self.stage {
            Stage::Down { connect_at } if now < *connect_at => PathStep::WaitUntil(*connect_at),
            Stage::Down { .. } => {
                self.generation += 1;
                self.stage = Stage::Connecting;
                PathStep::Connect
            }
            Stage::Connecting => PathStep::Wait,
            Stage::Attaching(attaching) => attaching.step(now),
            Stage::Live(live) => live.step(now, self.options.keep_alive),
        }
    }

    /// The answer to a command that [`PathStep::Issue`] named, with the data that came.
    ///
    /// # Errors
    /// The association is of no use: close its connections and call [`Path::lost`].
    pub fn answered(
        &mut self,
        now: Time,
        of: AdminCommand,
        cqe: &Cqe,
        data: &[u8],
    ) -> Result<Option<PathEvent>, InitiatorError> {
        match &mut self.stage {
            Stage::Attaching(attaching) if of == AdminCommand::Attach => {
                attaching.issued = false;
                attaching.sequence.answered(now, cqe, data)?;
                if attaching.sequence.step(now)? == Step::Done {
                    self.attached(now)?;
                }
                Ok(None)
            }
            Stage::Live(live) => live.answered(now, of, cqe, data),
            _ => Ok(None),
        }
    }

    fn attached(&mut self, now: Time) -> Result<(), InitiatorError> {
        let stage = std::mem::replace(&mut self.stage, Stage::Connecting);
        let Stage::Attaching(attaching) = stage else {
            return Ok(());
        };
        let attached = attaching
            .sequence
            .finish()
            .ok_or(InitiatorError::Malformed {
                what: "Number of Queues",
                found: 0,
                expected: "an I/O controller with at least one queue",
            })?;
        let namespace = match (self.options.nsid, attached.namespaces.as_slice()) {
            (_, [only]) => Some(only.clone()),
            (Some(_), _) | (None, []) => None,
            (None, several) => {
                return Err(InitiatorError::TooMany {
                    what: "namespaces, and none of them was named: say which (nsid=N)",
                    found: several.len() as u64,
                    limit: 1,
                });
            }
        };
        // One that it does not know makes a controller refuse all of them.
        let notices = attached.controller.notices & NOTICES;
        let mut surveys = VecDeque::from([Survey::ConfigureEvents(notices)]);
        if attached.controller.reports_ana {
            surveys.push_back(Survey::AnaGroups);
        }
        self.stage = Stage::Live(Box::new(Live {
            keep_alive: KeepAlive::new(self.options.keep_alive, now),
            attached,
            named: self.options.nsid,
            namespace,
            ana: AnaState::Optimized,
            awaits_event: false,
            surveys,
            surveying: None,
            is_up: false,
            since: now,
        }));
        Ok(())
    }
}

/// KATO as a controller counts it: rounded up to its granularity (KAS), in milliseconds.
fn in_steps_of(keep_alive: Duration, granularity_ms: u32) -> Duration {
    let granularity_ns = u128::from(granularity_ms.max(1)) * 1_000_000;
    let steps = keep_alive.as_nanos().div_ceil(granularity_ns);
    Duration::from_nanos(u64::try_from(steps * granularity_ns).unwrap_or(u64::MAX))
}

impl Attaching {
    fn step(&mut self, now: Time) -> PathStep {
        if now >= self.by {
            return PathStep::GiveUp(InitiatorError::NotInTime {
                action: "come up within the keep-alive time",
                after: Duration::ZERO,
            });
        }
        if self.issued {
            return PathStep::WaitUntil(self.by);
        }
        match self.sequence.step(now) {
            Ok(Step::Issue { command, data_out }) => {
                self.issued = true;
                PathStep::Issue {
                    of: AdminCommand::Attach,
                    command,
                    data_out,
                }
            }
            Ok(Step::WaitUntil(at)) => PathStep::WaitUntil(at.min(self.by)),
            Ok(Step::Done) => PathStep::Wait,
            Err(error) => PathStep::GiveUp(error),
        }
    }
}

impl Live {
    fn step(&mut self, now: Time, keep_alive: Duration) -> PathStep {
        let wait = match self.keep_alive.step(now) {
            KeepAliveStep::Send => {
                self.keep_alive.sent(now);
                // No command meets the change that makes it usable again, and the event may be refused, or lost.
                if self.is_up && self.attached.controller.reports_ana && !self.ana.is_usable() {
                    self.look_at(Survey::AnaGroups);
                }
                return issue(AdminCommand::KeepAlive, command::keep_alive());
            }
            KeepAliveStep::Expired => {
                return PathStep::GiveUp(InitiatorError::NotInTime {
                    action: "answer a Keep Alive",
                    after: keep_alive,
                });
            }
            KeepAliveStep::WaitUntil(at) => at,
        };
        let wait = match self.surveying {
            Some(since) if now >= since + keep_alive => {
                return PathStep::GiveUp(InitiatorError::NotInTime {
                    action: "answer what it was asked about its namespaces",
                    after: keep_alive,
                });
            }
            Some(since) => wait.min(since + keep_alive),
            None => wait,
        };
        if self.surveying.is_none()
            && let Some(survey) = self.surveys.front()
        {
            self.surveying = Some(now);
            return issue(AdminCommand::Survey, survey.command());
        }
        if self.is_up && !self.awaits_event {
            self.awaits_event = true;
            return issue(AdminCommand::AsyncEvent, command::async_event_request());
        }
        PathStep::WaitUntil(wait)
    }

    fn answered(
        &mut self,
        now: Time,
        of: AdminCommand,
        cqe: &Cqe,
        data: &[u8],
    ) -> Result<Option<PathEvent>, InitiatorError> {
        match of {
            AdminCommand::Attach => Ok(None),
            AdminCommand::KeepAlive => {
                expect_success("Keep Alive", cqe)?;
                self.keep_alive.answered(now);
                Ok(None)
            }
            AdminCommand::AsyncEvent => {
                // One that was refused is not asked for again: changes then go unnoticed until a command meets them, or a look at each Keep Alive does
                // while none is sent.
                if cqe.status().is_success() {
                    self.awaits_event = false;
                    self.event(AsyncEvent(cqe.dw0.get()));
                }
                Ok(None)
            }
            AdminCommand::Survey => {
                self.surveying = None;
                let Some(survey) = self.surveys.pop_front() else {
                    return Ok(None);
                };
                self.surveyed(survey, cqe, data)?;
                Ok(self.surveys.is_empty().then(|| self.settled()))
            }
        }
    }

    /// All looks are taken.
    fn settled(&mut self) -> PathEvent {
        if self.is_up {
            PathEvent::Changed
        } else {
            self.is_up = true;
            PathEvent::Up
        }
    }

    fn event(&mut self, event: AsyncEvent) {
        if event == AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED {
            self.look_at(Survey::ChangedList);
            let nsid = self
                .namespace
                .as_ref()
                .map_or(self.named, |namespace| Some(namespace.nsid));
            if let Some(nsid) = nsid {
                self.look_at(Survey::Namespace(nsid));
            }
        } else if event == AsyncEvent::ANA_CHANGED {
            self.look_at(Survey::AnaGroups);
        }
    }

    fn look_at(&mut self, survey: Survey) {
        // One that is under way may have been answered before the change.
        let waiting = self
            .surveys
            .iter()
            .skip(usize::from(self.surveying.is_some()));
        if !waiting.into_iter().any(|other| *other == survey) {
            self.surveys.push_back(survey);
        }
    }

    fn surveyed(&mut self, survey: Survey, cqe: &Cqe, data: &[u8]) -> Result<(), InitiatorError> {
        match survey {
            // Without events changes go unnoticed until a command meets them.
            Survey::ConfigureEvents(_) | Survey::ChangedList => {}
            Survey::AnaGroups => {
                expect_success("Get Log Page, Asymmetric Namespace Access", cqe)?;
                self.ana = match self.namespace.as_ref().map(|it| it.ana_group) {
                    None | Some(0) => AnaState::Optimized,
                    Some(group) => ana::parse_group(data, group)?.unwrap_or(AnaState::Inaccessible),
                };
            }
            Survey::Namespace(nsid) => {
                let info = if cqe.status().is_success() {
                    NamespaceInfo::parse(nsid, data)?
                } else {
                    None
                };
                match info {
                    Some(info) => self.surveys.push_front(Survey::Descriptors(Box::new(info))),
                    None => self.namespace = None,
                }
            }
            Survey::Descriptors(mut info) => {
                expect_success("Identify, namespace identification descriptors", cqe)?;
                info.ids.add_descriptors(data)?;
                if self.attached.controller.reports_ana {
                    self.look_at(Survey::AnaGroups);
                }
                self.namespace = Some(*info);
            }
        }
        Ok(())
    }
}

impl Survey {
    fn command(&self) -> Command {
        match self {
            Survey::ConfigureEvents(notices) => command::set_async_events(*notices),
            Survey::AnaGroups => command::get_ana_groups(ANA_LOG_BYTES_MAX),
            Survey::ChangedList => command::get_log_page(
                LogPageId::CHANGED_NAMESPACES,
                Nsid::BROADCAST,
                0,
                CHANGED_LIST_BYTES,
            ),
            Survey::Namespace(nsid) => {
                command::identify(nvme_spec::identify::Cns::NAMESPACE, *nsid)
            }
            Survey::Descriptors(info) => {
                command::identify(nvme_spec::identify::Cns::NAMESPACE_DESCRIPTORS, info.nsid)
            }
        }
    }
}

fn issue(of: AdminCommand, command: Command) -> PathStep {
    PathStep::Issue {
        of,
        command,
        data_out: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
