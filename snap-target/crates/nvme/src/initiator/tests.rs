//! Sequences against controllers that answer as they please.

use std::time::Duration;

use nvme_spec::discovery::{DiscoveryLogEntry, DiscoveryLogHeader, TransportType};
use nvme_spec::fabrics::FabricsType;
use nvme_spec::feature::NumberOfQueues;
use nvme_spec::identify::{
    Cns, ControllerType, IdentifyController, IdentifyNamespace, NvmIdentifyController,
};
use nvme_spec::log::GetLogPage;
use nvme_spec::nvm::oncs;
use nvme_spec::register::{Cap, Csts, Property};
use nvme_spec::{AdminOpcode, Cqe, Nsid, Sqe, Status, U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::attach::NAMESPACES_MAX;
use super::*;

/// What a controller answers: status, result, data.
struct Answer {
    status: Status,
    result: u64,
    data: Vec<u8>,
}

fn success(result: u64) -> Answer {
    Answer {
        status: Status::SUCCESS,
        result,
        data: Vec::new(),
    }
}

fn data(data: &[u8]) -> Answer {
    Answer {
        data: data.to_vec(),
        ..success(0)
    }
}

fn failure(status: Status, result: u64) -> Answer {
    Answer {
        status,
        ..success(result)
    }
}

/// Runs a sequence against a controller until it is done, a wait ending at once. Says how many commands it took.
fn run(
    sequence: &mut impl Sequence,
    mut controller: impl FnMut(&Sqe) -> Answer,
) -> Result<usize, InitiatorError> {
    let mut now = Time::ZERO;
    let mut commands = 0;
    loop {
        match sequence.step(now)? {
            Step::Done => return Ok(commands),
            Step::WaitUntil(time) => now = time,
            Step::Issue { command, .. } => {
                commands += 1;
                let answer = controller(&command.sqe);
                #[expect(clippy::cast_possible_truncation, reason = "halves")]
                let cqe = Cqe {
                    dw0: U32::new(answer.result as u32),
                    dw1: U32::new((answer.result >> 32) as u32),
                    sqhd: U16::ZERO,
                    sqid: U16::ZERO,
                    cid: U16::ZERO,
                    status_and_phase: U16::new(answer.status.to_wire()),
                };
                now = now + Duration::from_micros(10);
                sequence.answered(now, &cqe, &answer.data)?;
            }
        }
    }
}

fn association() -> Association {
    Association {
        host_id: [1; 16],
        hostnqn: "nqn.host".into(),
        subnqn: "nqn.sub".into(),
    }
}

fn attach() -> AttachAdmin {
    let timeout = Duration::from_secs(5);
    AttachAdmin::new(association(), 31, timeout, 4, Time::ZERO).unwrap()
}

const CNTLID: u64 = 0x0123;

fn cap() -> Cap {
    Cap::default().with_mqes_z(127).with_to_500ms(2)
}

fn identify_controller() -> IdentifyController {
    let mut identify = IdentifyController::zeroed();
    identify.cntrltype = ControllerType::IO.0;
    identify.ioccsz_16b = U32::new(4);
    identify
}

fn property(sqe: &Sqe) -> Property {
    Property(sqe.cdw11.get())
}

/// An honest controller with these namespaces, each of 1000 blocks of 512 bytes.
fn honest(sqe: &Sqe, nsids: &[u32]) -> Answer {
    if sqe.opcode == AdminOpcode::FABRICS.0 {
        return match (FabricsType(sqe.fctype()), property(sqe)) {
            (FabricsType::CONNECT, _) => success(CNTLID),
            (FabricsType::PROPERTY_GET, Property::CAP) => success(cap().0),
            (FabricsType::PROPERTY_GET, Property::CSTS) => success(u64::from(Csts::RDY)),
            _ => success(0),
        };
    }
    if sqe.opcode == AdminOpcode::SET_FEATURES.0 {
        return success(u64::from(NumberOfQueues::new(1, 7).0));
    }
    let [cns, ..] = sqe.cdw10.to_bytes();
    match Cns(cns) {
        Cns::CONTROLLER => data(identify_controller().as_bytes()),
        Cns::ACTIVE_NAMESPACES => {
            let mut list: Vec<u8> = nsids
                .iter()
                .filter(|&&nsid| nsid > sqe.nsid.get())
                .take(1024)
                .flat_map(|nsid| nsid.to_le_bytes())
                .collect();
            list.resize(4096, 0);
            data(&list)
        }
        Cns::NAMESPACE => {
            let mut identify = IdentifyNamespace::zeroed();
            identify.nsze = U64::new(1000);
            identify.lbaf[0].lbads = 9;
            data(identify.as_bytes())
        }
        _ => data(&[0; 4096]),
    }
}

/// The error of attaching to a controller that is honest but for some commands.
fn refused(mut liar: impl FnMut(&Sqe) -> Option<Answer>) -> InitiatorError {
    run(&mut attach(), |sqe| {
        liar(sqe).unwrap_or_else(|| honest(sqe, &[1]))
    })
    .unwrap_err()
}

fn is_get(sqe: &Sqe, wanted: Property) -> bool {
    sqe.opcode == AdminOpcode::FABRICS.0
        && sqe.fctype() == FabricsType::PROPERTY_GET.0
        && property(sqe) == wanted
}

fn is_connect(sqe: &Sqe) -> bool {
    sqe.opcode == AdminOpcode::FABRICS.0 && sqe.fctype() == FabricsType::CONNECT.0
}

#[test]
fn attaching_finds_every_namespace_across_the_pages_of_the_list() {
    let nsids: Vec<u32> = (1..=2500).map(|index| index * 3).collect();
    let mut attach = attach();
    let commands = run(&mut attach, |sqe| honest(sqe, &nsids)).unwrap();
    // Six for the controller, three pages, two for each namespace.
    assert_eq!(commands, 6 + 3 + 2 * nsids.len());
    let attached = attach.finish().unwrap();
    assert_eq!(attached.cntlid, 0x0123);
    // Two submission queues were granted, though more completion queues.
    assert_eq!(attached.io_queues, 2);
    let found: Vec<u32> = attached.namespaces.iter().map(|ns| ns.nsid.0).collect();
    assert_eq!(found, nsids);
}

#[test]
fn a_list_that_never_ends_is_left() {
    let everything: Vec<u32> = (1..=8192).collect();
    let error = run(&mut attach(), |sqe| honest(sqe, &everything)).unwrap_err();
    assert!(
        matches!(error, InitiatorError::TooMany { limit, .. } if limit == NAMESPACES_MAX as u64),
        "{error}"
    );
}

#[test]
fn a_namespace_that_went_between_list_and_identify_is_left_out() {
    let mut attach = attach();
    let result = run(&mut attach, |sqe| {
        let gone = sqe.opcode == AdminOpcode::IDENTIFY.0
            && sqe.cdw10.get() == u32::from(Cns::NAMESPACE.0)
            && sqe.nsid() == Nsid(2);
        if gone {
            data(IdentifyNamespace::zeroed().as_bytes())
        } else {
            honest(sqe, &[1, 2, 3])
        }
    });
    result.unwrap();
    let found: Vec<u32> = attach
        .finish()
        .unwrap()
        .namespaces
        .iter()
        .map(|ns| ns.nsid.0)
        .collect();
    assert_eq!(found, [1, 3]);
}

#[test]
fn a_controller_that_does_not_become_ready_is_given_its_time_and_no_more() {
    let mut reads = 0;
    let error = refused(|sqe| {
        is_get(sqe, Property::CSTS).then(|| {
            reads += 1;
            success(0)
        })
    });
    let after = Duration::from_secs(1);
    let action = "become ready";
    assert_eq!(error, InitiatorError::NotInTime { action, after });
    // Every 10 ms in the second that CAP.TO says, the first at once.
    assert!((95..=101).contains(&reads), "{reads} reads of CSTS");
    let fatal = refused(|sqe| is_get(sqe, Property::CSTS).then(|| success(u64::from(Csts::CFS))));
    assert_eq!(fatal, InitiatorError::ControllerFatal);
}

#[test]
fn a_refused_connect_names_subsystem_status_and_parameter() {
    let status = Status::CONNECT_INVALID_PARAMETERS.dnr();
    let error = refused(|sqe| is_connect(sqe).then(|| failure(status, 1 << 16 | 256)));
    assert_eq!(
        error.to_string(),
        "the target refused to connect to nqn.sub: 1h/82h Connect Invalid Parameters, do not retry (byte 256 of the Connect data, the subsystem's NQN: name one that the target has, as its discovery service lists them)"
    );
    let error = refused(|sqe| is_connect(sqe).then(|| failure(status, 44)));
    assert!(
        error
            .to_string()
            .ends_with("(byte 44 of the Connect command)"),
        "{error}"
    );
    let error = refused(|sqe| is_connect(sqe).then(|| failure(Status::CONNECT_INVALID_HOST, 512)));
    assert!(
        matches!(
            error,
            InitiatorError::ConnectRefused {
                parameter: None,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn authentication_is_asked_for_by_either_bit() {
    for bit in [17, 18] {
        let error = refused(|sqe| is_connect(sqe).then(|| success(CNTLID | 1 << bit)));
        assert_eq!(error, InitiatorError::AuthenticationRequired);
    }
}

#[test]
fn any_command_of_the_sequence_may_be_refused_and_is_named() {
    for refuse_at in 1..=9 {
        let mut count = 0;
        let mut attach = attach();
        let result = run(&mut attach, |sqe| {
            count += 1;
            if count == refuse_at {
                failure(Status::INTERNAL_ERROR, 0)
            } else {
                honest(sqe, &[1])
            }
        });
        let error = result.unwrap_err().to_string();
        assert!(error.contains("0h/06h Internal Error"), "{error}");
        assert_eq!(attach.finish(), None, "half an attachment is none");
    }
}

#[test]
fn data_shorter_than_asked_are_refused() {
    for bytes in [0, 1, 100, 4095] {
        let error =
            refused(|sqe| (sqe.opcode == AdminOpcode::IDENTIFY.0).then(|| data(&vec![0; bytes])));
        assert!(matches!(error, InitiatorError::Malformed { .. }), "{error}");
    }
}

/// DMRSL and DMSL are looked at where there is Dataset Management, and whoever does not know them has no such limits.
#[test]
fn what_a_controller_deallocates_at_a_time_is_known() {
    let most = |dmrsl: u32, dmsl: u64, knows: bool| {
        let mut attach = attach();
        let commands = run(&mut attach, |sqe| {
            let is_identify = sqe.opcode == AdminOpcode::IDENTIFY.0;
            match Cns(sqe.cdw10.to_bytes()[0]) {
                Cns::CONTROLLER if is_identify => {
                    let mut identify = identify_controller();
                    identify.oncs = U16::new(oncs::DATASET_MANAGEMENT);
                    data(identify.as_bytes())
                }
                Cns::IO_COMMAND_SET_CONTROLLER if is_identify && knows => {
                    let mut limits = NvmIdentifyController::new_zeroed();
                    (limits.dmrsl, limits.dmsl) = (U32::new(dmrsl), U64::new(dmsl));
                    data(limits.as_bytes())
                }
                Cns::IO_COMMAND_SET_CONTROLLER if is_identify => failure(Status::INVALID_FIELD, 0),
                _ => honest(sqe, &[1]),
            }
        });
        assert_eq!(commands, Ok(6 + 1 + 1 + 2));
        attach.finish().unwrap().controller.deallocate_blocks_max
    };
    assert_eq!(most(0, 0, true), u32::MAX);
    assert_eq!(most(800, 0, true), 800);
    assert_eq!(most(0, 900, true), 900);
    assert_eq!(most(800, 700, true), 700);
    assert_eq!(most(0, 1 << 40, true), u32::MAX);
    assert_eq!(most(800, 700, false), u32::MAX);
}

#[test]
fn an_io_queue_belongs_to_the_controller_that_was_asked() {
    let mut attach = AttachIo::new(association(), 5, 1, 31);
    assert_eq!(run(&mut attach, |_| success(5)), Ok(1));
    let mut attach = AttachIo::new(association(), 5, 1, 31);
    let error = run(&mut attach, |_| success(6)).unwrap_err();
    assert!(
        matches!(error, InitiatorError::Malformed { found: 6, .. }),
        "{error}"
    );
}

#[test]
fn names_that_no_field_holds_are_refused_before_anything_is_sent() {
    for subnqn in [String::new(), "x".repeat(224)] {
        let association = Association {
            subnqn: subnqn.clone(),
            ..association()
        };
        let attach = AttachAdmin::new(association, 31, Duration::ZERO, 1, Time::ZERO);
        assert_eq!(attach.unwrap_err(), InitiatorError::Nqn(subnqn));
    }
}

#[test]
fn shutdown_waits_for_the_controller_and_not_for_ever() {
    let mut left = 3;
    let shutting_down = |sqe: &Sqe| {
        if is_get(sqe, Property::CSTS) {
            left -= 1;
            success(if left == 0 { 0b10 << 2 } else { 0b01 << 2 })
        } else {
            success(0)
        }
    };
    assert_eq!(
        run(&mut Shutdown::new(Duration::from_secs(5)), shutting_down),
        Ok(4)
    );
    let within = Duration::from_secs(1);
    let error = run(&mut Shutdown::new(within), |_| success(0)).unwrap_err();
    let action = "shut down";
    assert_eq!(
        error,
        InitiatorError::NotInTime {
            action,
            after: within
        }
    );
    let fatal = run(&mut Shutdown::new(within), |_| success(0b01 << 2 | 1 << 1)).unwrap_err();
    assert_eq!(fatal, InitiatorError::ControllerFatal);
}

/// A discovery log of so many records, at this generation.
fn discovery_log(records: u64, generation: u64) -> Vec<u8> {
    let mut header = DiscoveryLogHeader::new_zeroed();
    header.generation = U64::new(generation);
    header.records = U64::new(records);
    let mut log = header.as_bytes().to_vec();
    for index in 0..records.min(2000) {
        let mut entry = DiscoveryLogEntry::new_zeroed();
        entry.trtype = TransportType::TCP.0;
        let name = format!("nqn.{generation}.{index}");
        entry.subnqn[..name.len()].copy_from_slice(name.as_bytes());
        entry.traddr = [b' '; 256];
        entry.traddr[..9].copy_from_slice(b"10.0.0.\x1b1");
        log.extend_from_slice(entry.as_bytes());
    }
    log
}

/// The piece of a log that a command asks for.
fn piece(log: &[u8], sqe: &Sqe) -> Answer {
    let asked = GetLogPage::of(sqe);
    let start = usize::try_from(asked.offset).unwrap();
    let end = start + usize::try_from(asked.bytes).unwrap();
    data(&log[start..end])
}

#[test]
fn a_discovery_log_is_read_in_pieces_of_what_the_controller_takes() {
    let log = discovery_log(70, 1);
    for (transfer_bytes_max, commands) in [(8192, 9), (1 << 20, 3), (0, 70)] {
        let mut reading = ReadDiscoveryLog::new(transfer_bytes_max);
        let taken = run(&mut reading, |sqe| piece(&log, sqe)).unwrap();
        assert_eq!(taken, commands + 2, "and the header, before and after");
        let records = reading.finish().unwrap();
        assert_eq!(records.len(), 70);
        assert_eq!(records[69].subnqn, "nqn.1.69");
        assert_eq!(records[69].address, "10.0.0.?1");
    }
    let empty = discovery_log(0, 1);
    let mut reading = ReadDiscoveryLog::new(8192);
    assert_eq!(run(&mut reading, |sqe| piece(&empty, sqe)), Ok(1));
    assert_eq!(reading.finish(), Some(Vec::new()));
}

#[test]
fn a_log_that_changes_is_read_anew_and_given_up_in_the_end() {
    let mut commands = 0;
    let mut reading = ReadDiscoveryLog::new(8192);
    let result = run(&mut reading, |sqe| {
        commands += 1;
        // The second generation comes before the first was read whole.
        piece(&discovery_log(3, if commands <= 2 { 1 } else { 2 }), sqe)
    });
    result.unwrap();
    let names: Vec<String> = reading
        .finish()
        .unwrap()
        .into_iter()
        .map(|record| record.subnqn)
        .collect();
    assert_eq!(names, ["nqn.2.0", "nqn.2.1", "nqn.2.2"]);

    let mut generation = 0;
    let error = run(&mut ReadDiscoveryLog::new(8192), |sqe| {
        generation += 1;
        piece(&discovery_log(3, generation), sqe)
    });
    assert_eq!(error, Err(InitiatorError::DiscoveryUnstable(5)));
}

#[test]
fn a_log_of_absurd_length_or_unknown_format_is_refused() {
    for records in [DISCOVERY_RECORDS_MAX + 1, u64::MAX] {
        let error = run(&mut ReadDiscoveryLog::new(8192), |sqe| {
            piece(&discovery_log(records, 1), sqe)
        });
        assert!(matches!(error, Err(InitiatorError::TooMany { found, .. }) if found == records));
    }
    let mut log = discovery_log(1, 1);
    log[16] = 1;
    let error = run(&mut ReadDiscoveryLog::new(8192), |sqe| piece(&log, sqe));
    assert!(matches!(
        error,
        Err(InitiatorError::Malformed {
            what: "discovery log RECFMT",
            ..
        })
    ));
    let short = run(&mut ReadDiscoveryLog::new(8192), |_| data(&[0; 1023]));
    assert!(matches!(short, Err(InitiatorError::Malformed { .. })));
}

/// NVM, "Write command": FUA is CDW12 bit 30, and changes nothing else.
#[test]
fn a_durable_write_is_a_write_with_fua() {
    let blocks = Blocks {
        lba: nvme_spec::Lba(7),
        count: 3,
        lba_bytes: 512,
    };
    let (plain, durable) = (
        command::write(Nsid(1), blocks),
        command::write_durable(Nsid(1), blocks),
    );
    assert_eq!(plain.sqe.cdw12.get(), 2);
    assert_eq!(durable.sqe.cdw12.get(), 2 | 1 << 30);
    let mut sqe = durable.sqe;
    sqe.cdw12 = plain.sqe.cdw12;
    assert_eq!((sqe, durable.transfer), (plain.sqe, plain.transfer));
}
