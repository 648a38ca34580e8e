//! The path against a controller that answers as each test says, on a clock that the test steps.

use std::time::Duration;

use nvme_spec::fabrics::FabricsType;
use nvme_spec::feature::NumberOfQueues;
use nvme_spec::identify::{
    Cns, ControllerType, IdentifyController, IdentifyNamespace, NamespaceDescriptorHeader,
    NamespaceIdType, cmic, ctratt,
};
use nvme_spec::log::{AnaGroup, AnaLogHeader, GetLogPage};
use nvme_spec::register::{Cap, Csts, Property};
use nvme_spec::{AdminOpcode, Sqe, Status, U16, U32, U64};
use zerocopy::IntoBytes;

use super::*;

const KATO: Duration = Duration::from_secs(5);
const MARGIN: Duration = Duration::from_secs(3);
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(2);

fn options() -> PathOptions {
    PathOptions {
        association: Association {
            host_id: [1; 16],
            hostnqn: "nqn.host".into(),
            subnqn: "nqn.sub".into(),
        },
        nsid: Some(Nsid(7)),
        io_queues_wanted: 4,
        keep_alive: KATO,
        quiesce_margin: MARGIN,
        reconnect_delay_min: DELAY_MIN,
        reconnect_delay_max: DELAY_MAX,
    }
}

/// A controller with one namespace, whose group is 3.
#[derive(Clone, Debug)]
struct Controller {
    uuid: [u8; 16],
    blocks: u64,
    ana: u8,
    cqt_ms: u16,
    is_attached: bool,
    counts_traffic: bool,
}

impl Controller {
    fn new() -> Self {
        Self {
            uuid: [9; 16],
            blocks: 1000,
            ana: 1,
            cqt_ms: 0,
            is_attached: true,
            counts_traffic: false,
        }
    }

    fn answer(&self, sqe: &Sqe) -> (Cqe, Vec<u8>) {
        let mut result = 0;
        let mut data = Vec::new();
        match AdminOpcode(sqe.opcode) {
            AdminOpcode::FABRICS => match FabricsType(sqe.fctype()) {
                FabricsType::CONNECT => result = 42,
                FabricsType::PROPERTY_GET if sqe.cdw11.get() == Property::CAP.0 => {
                    result = Cap::default().with_mqes_z(127).0;
                }
                FabricsType::PROPERTY_GET => result = u64::from(Csts::RDY),
                _ => {}
            },
            AdminOpcode::IDENTIFY => match Cns(sqe.cdw10.to_bytes()[0]) {
                Cns::CONTROLLER => {
                    let mut identify = IdentifyController::zeroed();
                    identify.cntrltype = ControllerType::IO.0;
                    identify.kas_100ms = U16::new(10);
                    identify.cqt_ms = U16::new(self.cqt_ms);
                    identify.cmic = cmic::ANA;
                    if self.counts_traffic {
                        identify.ctratt = U32::new(ctratt::TRAFFIC_BASED_KEEP_ALIVE);
                    }
                    identify.ioccsz_16b = U32::new(4);
                    data = identify.as_bytes().to_vec();
                }
                Cns::NAMESPACE => {
                    assert_eq!(sqe.nsid.get(), 7);
                    let mut identify = IdentifyNamespace::zeroed();
                    if self.is_attached {
                        identify.nsze = U64::new(self.blocks);
                        identify.lbaf[0].lbads = 12;
                        identify.anagrpid = U32::new(3);
                    }
                    data = identify.as_bytes().to_vec();
                }
                Cns::NAMESPACE_DESCRIPTORS => {
                    let header = NamespaceDescriptorHeader {
                        nidt: NamespaceIdType::UUID.0,
                        nidl: 16,
                        reserved_2: [0; 2],
                    };
                    data = header.as_bytes().to_vec();
                    data.extend(self.uuid);
                    data.resize(4096, 0);
                }
                other => panic!("{other:?}"),
            },
            AdminOpcode::SET_FEATURES => {
                result = u64::from(NumberOfQueues::new(3, 3).0);
            }
            AdminOpcode::GET_LOG_PAGE => {
                let asked = GetLogPage::of(sqe);
                if asked.id == LogPageId::ANA {
                    assert_eq!(asked.lsp, 1, "groups only");
                    let header = AnaLogHeader {
                        change_count: U64::ZERO,
                        groups: U16::new(1),
                        reserved_10: [0; 6],
                    };
                    let group = AnaGroup {
                        group_id: U32::new(3),
                        namespaces: U32::ZERO,
                        change_count: U64::ZERO,
                        state: self.ana,
                        reserved_17: [0; 15],
                    };
                    data = [header.as_bytes(), group.as_bytes()].concat();
                }
                data.resize(usize::try_from(asked.bytes).unwrap(), 0);
            }
            AdminOpcode::KEEP_ALIVE => {}
            other => panic!("{other:?}"),
        }
        (cqe(result), data)
    }
}

fn cqe(result: u64) -> Cqe {
    #[expect(clippy::cast_possible_truncation, reason = "halves")]
    Cqe {
        dw0: U32::new(result as u32),
        dw1: U32::new((result >> 32) as u32),
        sqhd: U16::ZERO,
        sqid: U16::ZERO,
        cid: U16::ZERO,
        status_and_phase: U16::new(Status::SUCCESS.to_wire()),
    }
}

/// Drives a path until it waits, answering everything but asynchronous events. Says what happened, and until when it waits.
fn drive(
    path: &mut Path,
    controller: &Controller,
    now: Time,
) -> Result<(Vec<PathEvent>, Option<Time>), InitiatorError> {
    let mut events = Vec::new();
    loop {
        match path.step(now) {
            PathStep::Connect => path.admin_up(now),
            PathStep::GiveUp(error) => return Err(error),
            PathStep::Wait => return Ok((events, None)),
            PathStep::WaitUntil(at) => return Ok((events, Some(at))),
            PathStep::Issue {
                of: AdminCommand::AsyncEvent,
                ..
            } => {}
            PathStep::Issue { of, command, .. } => {
                let (cqe, data) = controller.answer(&command.sqe);
                events.extend(path.answered(now, of, &cqe, &data)?);
            }
        }
    }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn up(controller: &Controller) -> Path {
    let mut path = Path::new(options(), 5, at(0));
    let (events, _) = drive(&mut path, controller, at(0)).unwrap();
    assert_eq!(events, [PathEvent::Up]);
    path
}

fn event(path: &mut Path, event: AsyncEvent, now: Time) {
    let cqe = cqe(event.0.into());
    let said = path.answered(now, AdminCommand::AsyncEvent, &cqe, &[]);
    assert_eq!(said, Ok(None));
}

#[test]
fn it_comes_up_and_says_what_it_found() {
    let path = up(&Controller::new());
    assert_eq!(path.generation(), 1);
    assert_eq!(path.ana(), AnaState::Optimized);
    let namespace = path.namespace().unwrap();
    assert_eq!((namespace.blocks, namespace.lba_bytes), (1000, 4096));
    assert_eq!(namespace.ids.uuid.unwrap().0, [9; 16]);
    assert_eq!(path.up().unwrap().io_queues, 4);
}

#[test]
fn a_namespace_that_is_not_there_is_none_until_it_is_attached() {
    let mut controller = Controller {
        is_attached: false,
        ..Controller::new()
    };
    let mut path = up(&controller);
    assert_eq!(path.namespace(), None);
    controller.is_attached = true;
    event(&mut path, AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED, at(10));
    let (events, _) = drive(&mut path, &controller, at(10)).unwrap();
    assert_eq!(events, [PathEvent::Changed]);
    assert_eq!(path.namespace().unwrap().blocks, 1000);
}

#[test]
fn events_lead_to_another_look() {
    let mut controller = Controller::new();
    let mut path = up(&controller);
    controller.ana = 3;
    event(&mut path, AsyncEvent::ANA_CHANGED, at(10));
    let (events, _) = drive(&mut path, &controller, at(10)).unwrap();
    assert_eq!(events, [PathEvent::Changed]);
    assert_eq!(path.ana(), AnaState::Inaccessible);
    controller.uuid = [8; 16];
    event(&mut path, AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED, at(20));
    let (events, _) = drive(&mut path, &controller, at(20)).unwrap();
    assert_eq!(events, [PathEvent::Changed]);
    assert_eq!(path.namespace().unwrap().ids.uuid.unwrap().0, [8; 16]);
}

/// A controller that refuses Asynchronous Event Requests, or loses one: a path that is not usable is looked at with each Keep Alive.
#[test]
fn a_path_that_is_not_usable_is_looked_at_though_no_event_comes() {
    let mut controller = Controller {
        ana: 3,
        ..Controller::new()
    };
    let mut path = up(&controller);
    let mut refusal = cqe(0);
    refusal.status_and_phase = U16::new(Status::INVALID_OPCODE.dnr().to_wire());
    let said = path.answered(at(0), AdminCommand::AsyncEvent, &refusal, &[]);
    assert_eq!(said, Ok(None));
    assert_eq!(path.ana(), AnaState::Inaccessible);
    let (events, _) = drive(&mut path, &controller, at(2500)).unwrap();
    assert_eq!(events, [PathEvent::Changed]);
    assert_eq!(path.ana(), AnaState::Inaccessible);
    controller.ana = 2;
    let (events, _) = drive(&mut path, &controller, at(2600)).unwrap();
    assert_eq!(events, [], "not more often than that");
    let (events, _) = drive(&mut path, &controller, at(5000)).unwrap();
    assert_eq!(events, [PathEvent::Changed]);
    assert_eq!(path.ana(), AnaState::NonOptimized);
    // Commands meet what happens to a path that they use.
    let (events, _) = drive(&mut path, &controller, at(7500)).unwrap();
    assert_eq!(events, []);
}

#[test]
fn it_is_kept_alive_and_given_up_where_nobody_answers() {
    let controller = Controller::new();
    let mut path = up(&controller);
    let (_, wait) = drive(&mut path, &controller, at(0)).unwrap();
    assert_eq!(wait, Some(at(2500)));
    let (_, wait) = drive(&mut path, &controller, at(2500)).unwrap();
    assert_eq!(wait, Some(at(5000)));
    // From now on nobody answers.
    let silent = path.step(at(5000));
    assert!(
        matches!(
            silent,
            PathStep::Issue {
                of: AdminCommand::KeepAlive,
                ..
            }
        ),
        "{silent:?}"
    );
    assert_eq!(path.step(at(9999)), PathStep::WaitUntil(at(10_000)));
    assert!(matches!(path.step(at(10_000)), PathStep::GiveUp(_)));
}

#[test]
fn a_lost_controller_is_dead_after_its_keep_alive_and_its_quiesce_time() {
    let mut path = up(&Controller::new());
    // It reports no CQT: the margin stands for it.
    assert_eq!(path.lost(at(1000)), Some(at(1000) + KATO + MARGIN));
    // It is lost once: nothing brings its death nearer.
    assert_eq!(path.lost(at(1001)), None);
    let mut path = up(&Controller {
        cqt_ms: 7000,
        ..Controller::new()
    });
    assert_eq!(
        path.lost(at(0)),
        Some(at(0) + KATO + Duration::from_secs(7) + MARGIN)
    );
    // One that counts traffic looks once in each timeout.
    let mut path = up(&Controller {
        counts_traffic: true,
        ..Controller::new()
    });
    assert_eq!(path.lost(at(0)), Some(at(0) + KATO * 2 + MARGIN));
    // One that never stood has had no command of ours.
    let mut path = Path::new(options(), 5, at(0));
    assert_eq!(path.step(at(0)), PathStep::Connect);
    assert_eq!(path.lost(at(10)), Some(at(10)));
}

#[test]
fn a_controller_counts_its_keep_alive_in_its_own_steps() {
    let ms = Duration::from_millis;
    for (keep_alive, granularity, counted) in [
        (ms(5000), 1000, ms(5000)),
        (ms(2500), 1000, ms(3000)),
        (ms(1), 100, ms(100)),
        (ms(2500), 0, ms(2500)),
    ] {
        assert_eq!(in_steps_of(keep_alive, granularity), counted);
    }
}

#[test]
fn waits_double_up_to_their_limit_and_begin_anew_after_a_while_up() {
    let mut path = Path::new(options(), 5, at(0));
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(path.step(now), PathStep::Connect);
        path.lost(now);
        let PathStep::WaitUntil(next) = path.step(now) else {
            panic!("it does not wait");
        };
        waits.push(next.since(now));
        now = next;
    }
    for (attempt, wait) in waits.iter().enumerate() {
        let most = DELAY_MIN.saturating_mul(1 << attempt).min(DELAY_MAX);
        assert!(*wait >= most / 2 && *wait <= most, "{attempt}: {wait:?}");
    }
    let (events, _) = drive(&mut path, &Controller::new(), now).unwrap();
    assert_eq!(events, [PathEvent::Up]);
    path.lost(now + DELAY_MAX);
    let PathStep::WaitUntil(next) = path.step(now + DELAY_MAX) else {
        panic!("it does not wait");
    };
    assert!(next.since(now + DELAY_MAX) <= DELAY_MIN);
}

#[test]
fn one_that_does_not_come_up_is_given_up() {
    let mut path = Path::new(options(), 5, at(0));
    assert_eq!(path.step(at(0)), PathStep::Connect);
    path.admin_up(at(0));
    assert!(matches!(path.step(at(0)), PathStep::Issue { .. }));
    assert_eq!(path.step(at(4999)), PathStep::WaitUntil(at(5000)));
    assert!(matches!(path.step(at(5000)), PathStep::GiveUp(_)));
}

#[test]
fn a_survey_that_is_not_answered_ends_the_association() {
    let mut path = Path::new(options(), 5, at(0));
    let controller = Controller::new();
    loop {
        match path.step(at(0)) {
            PathStep::Connect => path.admin_up(at(0)),
            PathStep::Issue {
                of: AdminCommand::Survey,
                ..
            } => break,
            PathStep::Issue { of, command, .. } => {
                let (cqe, data) = controller.answer(&command.sqe);
                path.answered(at(0), of, &cqe, &data).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    // Keep Alives are answered.
    for now in [2500, 4999] {
        if let PathStep::Issue { of, .. } = path.step(at(now)) {
            assert_eq!(of, AdminCommand::KeepAlive);
            path.answered(at(now), of, &cqe(0), &[]).unwrap();
        }
    }
    assert!(matches!(
        path.step(at(5000)),
        PathStep::Issue {
            of: AdminCommand::KeepAlive,
            ..
        }
    ));
    assert!(matches!(path.step(at(5000)), PathStep::GiveUp(_)));
}
