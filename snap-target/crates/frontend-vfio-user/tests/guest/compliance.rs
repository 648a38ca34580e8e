//! The eighteen cases of SPDK's nvme_compliance (test/nvme/compliance), in our own words, over doorbells that are trapped; docs/pcie.md has them by name. What they
//! ask for in words ("fails") is a status here.

use frontend_nvme::conformance::memory;
use nvme_spec::{Sqe, Status, U32, U64};

use crate::driver::{DATA, Guest, Machine, command, places, set_prps, status, transfer};

const GET_FEATURES: u8 = 0x0A;
const SET_FEATURES: u8 = 0x09;
const NUMBER_OF_QUEUES: u32 = 0x07;

fn machine() -> Machine {
    match module_path!().ends_with("_polled") {
        true => Machine::polled(memory(), 2),
        false => Machine::start(memory(), 2),
    }
}

/// A guest whose controller is enabled, and has no I/O queues.
fn enabled(machine: &Machine) -> Guest {
    let mut guest = machine.guest();
    guest.enable();
    guest
}

/// An admin command without data.
fn admin(guest: &mut Guest, opcode: u8, cdw10: u32, cdw11: u32) -> (Status, u32) {
    let mut sqe = command(opcode, 0);
    sqe.cdw10 = U32::new(cdw10);
    sqe.cdw11 = U32::new(cdw11);
    let cqe = guest.admin(sqe);
    (status(&cqe), cqe.dw0.get())
}

fn identify(nsid: u32, cns: u32, prp1: u64, prp2: u64) -> Sqe {
    let mut sqe = command(0x06, nsid);
    sqe.cdw10 = U32::new(cns);
    set_prps(&mut sqe, prp1, prp2);
    sqe
}

/// Create I/O Completion Queue (5) or Create I/O Submission Queue (1): `entries_z` is zero-based, `cdw11` its flags and what it goes to.
fn create(guest: &mut Guest, opcode: u8, id: u16, entries_z: u32, cdw11: u32) -> Status {
    let (sq, cq) = places(id);
    let place = if opcode == 1 { sq } else { cq };
    create_at(guest, opcode, id, entries_z, cdw11, place)
}

fn create_at(
    guest: &mut Guest,
    opcode: u8,
    id: u16,
    entries_z: u32,
    cdw11: u32,
    at: u64,
) -> Status {
    let mut sqe = command(opcode, 0);
    sqe.dptr.address = U64::new(at);
    sqe.cdw10 = U32::new(u32::from(id) | entries_z << 16);
    sqe.cdw11 = U32::new(cdw11);
    status(&guest.admin(sqe))
}

/// CAP.MQES, and CAP.CQR.
fn cap(guest: &mut Guest) -> (u32, bool) {
    let cap = guest.read_register(0, 8);
    ((cap & 0xFFFF) as u32, cap >> 16 & 1 == 1)
}

/// Number of Queues as granted: submission queues, completion queues.
fn granted(guest: &mut Guest) -> (u32, u32) {
    let (status, dw0) = admin(guest, GET_FEATURES, NUMBER_OF_QUEUES, 0);
    assert_eq!(status, Status::SUCCESS);
    ((dw0 & 0xFFFF) + 1, (dw0 >> 16) + 1)
}

#[test]
fn identify_controller_needs_all_of_its_place() {
    let machine = machine();
    let mut guest = enabled(&machine);
    assert_eq!(
        status(&guest.admin(identify(0, 1, DATA, 0))),
        Status::SUCCESS
    );
    // 1 KiB to the page's end, and nothing that says where the rest goes.
    let short = guest.admin(identify(0, 1, DATA + 3072, 0));
    assert_eq!(status(&short), Status::DATA_TRANSFER_ERROR);
}

#[test]
fn admin_commands_are_not_fused() {
    let machine = machine();
    let mut guest = enabled(&machine);
    for half in [1, 2] {
        let mut sqe = identify(0, 1, DATA, 0);
        sqe.flags = half;
        assert_eq!(status(&guest.admin(sqe)), Status::INVALID_FIELD, "{half}");
    }
}

#[test]
fn identify_namespace_tells_valid_identifiers_from_others() {
    let machine = machine();
    let mut guest = enabled(&machine);
    assert_eq!(
        status(&guest.admin(identify(0, 1, DATA, 0))),
        Status::SUCCESS
    );
    let controller = guest.get(DATA, 4096);
    let (oacs, nn) = (
        controller[256],
        u32::from_le_bytes(controller[516..520].try_into().unwrap()),
    );
    assert_eq!(oacs & 8, 0, "no Namespace Management");
    for nsid in [0, u32::MAX] {
        let cqe = guest.admin(identify(nsid, 0, DATA, 0));
        assert_eq!(status(&cqe), Status::INVALID_NAMESPACE, "{nsid}");
    }
    assert_eq!(
        status(&guest.admin(identify(1, 0, DATA, 0))),
        Status::SUCCESS
    );
    let page = guest.get(DATA, 4096);
    if page[24] & 0x10 != 0 {
        let blocks = |at: usize| u32::from(u16::from_le_bytes([page[at], page[at + 1]])) + 1;
        let (npwg, nows) = (blocks(64), blocks(72));
        let mdts_blocks = 1_u32 << controller[77];
        assert!(npwg <= mdts_blocks && nows <= mdts_blocks && nows % npwg == 0);
    }
    // Valid, and not active: zeros.
    assert!(nn > 1);
    guest.put(DATA, &[0x5A; 4096]);
    assert_eq!(
        status(&guest.admin(identify(nn, 0, DATA, 0))),
        Status::SUCCESS
    );
    assert!(guest.get(DATA, 4096) == [0; 4096]);
}

#[test]
fn features_that_must_be_there() {
    let machine = machine();
    let mut guest = enabled(&machine);
    // Error Recovery is a namespace's: SPDK's case asks without one.
    for (feature, nsid) in [1, 2, 4, 7, 8, 9, 0xA, 0xB]
        .map(|it| (it, 0))
        .into_iter()
        .chain([(5, 1)])
    {
        let mut sqe = command(GET_FEATURES, nsid);
        sqe.cdw10 = U32::new(feature);
        assert_eq!(status(&guest.admin(sqe)), Status::SUCCESS, "{feature:#x}");
    }
    let (unnamed, _) = admin(&mut guest, GET_FEATURES, 5, 0);
    assert_eq!(unnamed, Status::INVALID_NAMESPACE);
}

#[test]
fn features_that_may_be_there() {
    let machine = machine();
    let mut guest = enabled(&machine);
    assert_eq!(admin(&mut guest, GET_FEATURES, 0xF, 0).0, Status::SUCCESS);
    let mut behavior = command(GET_FEATURES, 0);
    behavior.cdw10 = U32::new(0x16);
    set_prps(&mut behavior, DATA, 0);
    assert_eq!(status(&guest.admin(behavior)), Status::SUCCESS);
}

#[test]
fn the_number_of_queues_is_set_once_and_early() {
    let machine = machine();
    let mut guest = enabled(&machine);
    let (refused, _) = admin(&mut guest, SET_FEATURES, NUMBER_OF_QUEUES, u32::MAX);
    assert_eq!(refused, Status::INVALID_FIELD);
    guest.create_pair(1);
    let (late, _) = admin(&mut guest, SET_FEATURES, NUMBER_OF_QUEUES, 128 << 16 | 128);
    assert_eq!(late, Status::COMMAND_SEQUENCE_ERROR);
}

fn log_page(guest: &mut Guest, page: u32, bytes: u32, offset: u32) -> Status {
    let mut sqe = command(0x02, 0);
    sqe.cdw10 = U32::new(page | (bytes / 4 - 1) << 16);
    sqe.cdw12 = U32::new(offset);
    set_prps(&mut sqe, DATA, 0);
    status(&guest.admin(sqe))
}

#[test]
fn log_pages_that_must_be_there() {
    let machine = machine();
    let mut guest = enabled(&machine);
    for (page, bytes) in [(1, 64), (2, 512), (3, 512)] {
        assert_eq!(
            log_page(&mut guest, page, bytes, 0),
            Status::SUCCESS,
            "{page}"
        );
    }
}

#[test]
fn log_pages_from_an_offset() {
    let machine = machine();
    let mut guest = enabled(&machine);
    assert_eq!(log_page(&mut guest, 3, 512, 0), Status::SUCCESS);
    assert_eq!(log_page(&mut guest, 3, 512, 516), Status::INVALID_FIELD);
    assert_eq!(log_page(&mut guest, 3, 512, 4), Status::SUCCESS);
}

#[test]
fn fabrics_commands_are_none_of_pcies() {
    let machine = machine();
    let mut guest = enabled(&machine);
    // Property Get of CAP.
    let mut sqe = command(0x7F, 0x04);
    sqe.cdw10 = U32::new(1);
    assert_eq!(status(&guest.admin(sqe)), Status::INVALID_OPCODE);
}

#[test]
fn the_admin_submission_queue_is_not_deleted() {
    let machine = machine();
    let mut guest = enabled(&machine);
    assert_eq!(guest.delete(0x00, 0), Err(Status::INVALID_QUEUE_ID));
}

#[test]
fn the_admin_completion_queue_is_not_deleted() {
    let machine = machine();
    let mut guest = enabled(&machine);
    assert_eq!(guest.delete(0x04, 0), Err(Status::INVALID_QUEUE_ID));
}

#[test]
fn a_submission_queue_is_deleted_once() {
    let machine = machine();
    let mut guest = machine.running();
    let read = guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    assert_eq!(guest.delete(0x00, 1), Ok(()));
    assert_eq!(guest.delete(0x00, 1), Err(Status::INVALID_QUEUE_ID));
}

#[test]
fn a_completion_queue_goes_behind_its_submission_queue() {
    let machine = machine();
    let mut guest = machine.running();
    let read = guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    assert_eq!(guest.delete(0x04, 1), Err(Status::INVALID_QUEUE_DELETION));
    assert_eq!(guest.delete(0x00, 1), Ok(()));
    assert_eq!(guest.delete(0x04, 1), Ok(()));
}

#[test]
fn a_completion_queue_has_a_vector_that_is_there_and_one_run_of_memory() {
    let machine = machine();
    let mut guest = enabled(&machine);
    let (mqes, has_to_be_contiguous) = cap(&mut guest);
    assert!(has_to_be_contiguous, "CAP.CQR");
    let mut create = |cdw11| create(&mut guest, 0x05, 1, mqes, cdw11);
    assert_eq!(create(3 | 2048 << 16), Status::INVALID_INTERRUPT_VECTOR);
    assert_eq!(create(2 | 1 << 16), Status::INVALID_FIELD);
    assert_eq!(create(3 | 1 << 16), Status::SUCCESS);
    assert_eq!(guest.delete(0x04, 1), Ok(()));
}

#[test]
fn a_submission_queue_has_a_size_and_a_completion_queue() {
    let machine = machine();
    let mut guest = machine.running();
    let read = guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    let (_, completion_queues) = granted(&mut guest);
    assert_eq!(guest.delete(0x00, 1), Ok(()));
    let (mqes, _) = cap(&mut guest);
    let mut create = |entries_z, cqid: u32| create(&mut guest, 0x01, 1, entries_z, 1 | cqid << 16);
    assert_eq!(create(0, 1), Status::INVALID_QUEUE_SIZE);
    assert_eq!(create(mqes + 1, 1), Status::INVALID_QUEUE_SIZE);
    assert_eq!(create(mqes, 0), Status::INVALID_QUEUE_ID);
    assert_eq!(
        create(mqes, completion_queues + 1),
        Status::INVALID_QUEUE_ID
    );
    assert_eq!(create(mqes, 1), Status::SUCCESS);
}

#[test]
fn a_submission_queue_is_one_run_of_memory() {
    let machine = machine();
    let mut guest = machine.running();
    let (mqes, has_to_be_contiguous) = cap(&mut guest);
    assert!(has_to_be_contiguous, "CAP.CQR");
    assert_eq!(guest.delete(0x00, 1), Ok(()));
    assert_eq!(
        create(&mut guest, 0x01, 1, mqes, 1 << 16),
        Status::INVALID_FIELD
    );
    assert_eq!(
        create(&mut guest, 0x01, 1, mqes, 1 | 1 << 16),
        Status::SUCCESS
    );
}

#[test]
fn as_many_queues_as_were_granted() {
    let machine = machine();
    let mut guest = enabled(&machine);
    let (submission, completion) = granted(&mut guest);
    let pairs = submission.min(completion) as u16;
    for id in 1..=pairs {
        assert_eq!(
            create(&mut guest, 0x05, id, 1, 3 | 1 << 16),
            Status::SUCCESS
        );
        let cdw11 = 1 | u32::from(id) << 16;
        assert_eq!(create(&mut guest, 0x01, id, 1, cdw11), Status::SUCCESS);
    }
    let one_more = pairs + 1;
    let refused = create_at(&mut guest, 0x05, one_more, 1, 3 | 1 << 16, DATA);
    assert_eq!(refused, Status::INVALID_QUEUE_ID);
    let refused = create_at(&mut guest, 0x01, one_more, 1, 1 | 1 << 16, DATA);
    assert_eq!(refused, Status::INVALID_QUEUE_ID);
}

#[test]
fn submission_queues_share_a_completion_queue() {
    let machine = machine();
    let mut guest = enabled(&machine);
    let (status, dw0) = admin(&mut guest, SET_FEATURES, NUMBER_OF_QUEUES, 1 << 16 | 3);
    assert_eq!(status, Status::SUCCESS);
    assert!(
        dw0 >> 16 >= 1 && dw0 & 0xFFFF >= 3,
        "{dw0:#x}: as many as were asked for"
    );
    for (id, vector) in [(1, 1), (2, 2)] {
        let made = create(&mut guest, 0x05, id, 7, 3 | vector << 16);
        assert_eq!(made, Status::SUCCESS);
    }
    for (id, to) in [(1, 2), (2, 2), (3, 2), (4, 1)] {
        let made = create(&mut guest, 0x01, id, 7, 1 | to << 16);
        assert_eq!(made, Status::SUCCESS, "{id}");
    }
    for id in [1, 2] {
        assert_eq!(guest.delete(0x00, id), Ok(()));
    }
    assert_eq!(guest.delete(0x04, 2), Err(Status::INVALID_QUEUE_DELETION));
    for id in [3, 4] {
        assert_eq!(guest.delete(0x00, id), Ok(()));
    }
    for id in [2, 1] {
        assert_eq!(guest.delete(0x04, id), Ok(()));
    }
}
