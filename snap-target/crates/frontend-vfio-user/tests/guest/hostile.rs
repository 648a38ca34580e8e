//! Guests that mean harm: what they name that is not theirs, or not there. Nothing of it ends the function, and nobody else's memory is touched.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use guest_memory::CLIENT_BYTES_MAX;
use nvme_spec::{SglDescriptor, Sqe, Status, U32, U64};
use rustix::fs::{MemfdFlags, memfd_create};
use zerocopy::FromBytes;

use crate::driver::{
    BASE, DATA, Guest, LIST, MEMORY_BYTES, Machine, command, descriptor, longs, places, status,
    transfer, words,
};
use frontend_nvme::conformance::memory;
use frontend_vfio_user::CLIENT_MAPPINGS_MAX;

/// Where a BIOS puts BAR0.
const BAR: u64 = 0xFEBF_0000;
/// Where no window is.
const APART: u64 = 1 << 40;

/// CVE-2021-3929: the controller's own BAR is no memory. Nothing is written to a register, and nothing read of one.
#[test]
fn prps_at_the_controllers_own_bar() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    // As QEMU maps it: without a descriptor.
    guest.map_apart(BAR, 0x4000).unwrap();
    // Where the device says that it is, too.
    let write = [longs(&[0x10]), words(&[7, 4, BAR as u32])].concat();
    guest.client.call(10, &write, &[]).unwrap();
    // Were it written to, zeros would turn the controller off.
    for opcode in [1, 2] {
        for prp1 in [BAR, BAR + 0x14, BAR + 0x1000, BAR + 0x3000] {
            let cqe = guest.run(1, transfer(opcode, 0, 1, prp1, DATA));
            assert_eq!(
                status(&cqe),
                Status::DATA_TRANSFER_ERROR,
                "{opcode} {prp1:#x}"
            );
        }
    }
    // Its list, its structures, its queues.
    let listed = guest.run(1, transfer(2, 0, 4, DATA, BAR));
    assert_eq!(status(&listed), Status::DATA_TRANSFER_ERROR);
    let mut identify = command(0x06, 0);
    identify.dptr.address = U64::new(BAR);
    identify.cdw10 = U32::new(1);
    assert_eq!(status(&guest.admin(identify)), Status::DATA_TRANSFER_ERROR);
    let mut queue = command(0x05, 0);
    queue.dptr.address = U64::new(BAR + 0x1000);
    queue.cdw10 = U32::new(2 | 15 << 16);
    queue.cdw11 = U32::new(1);
    assert_eq!(status(&guest.admin(queue)), Status::INVALID_FIELD);
    queue.opcode = 0x01;
    queue.dptr.address = U64::new(BAR);
    queue.cdw11 = U32::new(1 | 1 << 16);
    assert_eq!(status(&guest.admin(queue)), Status::INVALID_FIELD);
    guest.ring(0x1010, 5);
    assert_eq!(guest.csts(), 1);
    // Not even a message about it.
    assert!(guest.client.is_silent());
    guest.still_works();
}

/// What a page of would have to be waited for: by a file system, another program, for ever.
#[test]
fn memory_that_is_none_is_not_mapped() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let on_disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    on_disk.set_len(1 << 20).unwrap();
    let device = File::options().read(true).write(true).open("/dev/zero");
    let (pipe, _other_end) = std::io::pipe().unwrap();
    for file in [on_disk.into(), device.unwrap().into(), OwnedFd::from(pipe)] {
        let refused = guest.map_file(file.as_fd(), APART, 1 << 20);
        assert_eq!(refused, Err(22), "{file:?}");
    }
    guest.still_works();
}

/// A file without bytes in it is as long as somebody says: no client takes the address space that others need, nor the mappings.
#[test]
fn a_client_maps_so_much_and_no_more() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let sparse: OwnedFd = memfd_create("sparse", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&sparse, 1 << 46).unwrap();
    let left = CLIENT_BYTES_MAX - MEMORY_BYTES;
    for size in [1 << 46, left + 0x1000] {
        assert_eq!(guest.map_file(sparse.as_fd(), APART, size), Err(28));
    }
    guest.map_file(sparse.as_fd(), APART, left).unwrap();
    let beyond = APART + left;
    assert_eq!(guest.map_file(sparse.as_fd(), beyond, 0x1000), Err(28));
    guest.still_works();
    let unmap = Guest::unmap_body(APART, left);
    guest.client.call(3, &unmap, &[]).unwrap();
    // One window is the guest's memory.
    let windows = CLIENT_MAPPINGS_MAX - 1;
    for at in 0..windows {
        let window = APART + at * 0x2000;
        guest.map_file(sparse.as_fd(), window, 0x1000).unwrap();
    }
    assert_eq!(guest.map_file(sparse.as_fd(), beyond, 0x1000), Err(28));
    guest.still_works();
    let unmap = Guest::unmap_body(APART, 0x1000);
    guest.client.call(3, &unmap, &[]).unwrap();
    guest.map_file(sparse.as_fd(), beyond, 0x1000).unwrap();
    guest.still_works();
}

#[test]
fn prps_outside_of_memory() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    // A window that may be read alone.
    let rom = 0xC_0000;
    guest.map(rom, 0x1000, DATA + 0x8000 - BASE, 1).unwrap();
    guest.put(DATA + 0x8000, &[0x55; 4096]);
    let end = BASE + MEMORY_BYTES;
    for opcode in [1, 2] {
        for prp1 in [
            0,
            0x1000,
            end,
            end + 0x1000,
            u64::MAX - 0xFFF,
            BASE - 0x1000,
        ] {
            let cqe = guest.run(1, transfer(opcode, 0, 1, prp1, 0));
            assert_eq!(
                status(&cqe),
                Status::DATA_TRANSFER_ERROR,
                "{opcode} {prp1:#x}"
            );
        }
        // The second page alone.
        let cqe = guest.run(1, transfer(opcode, 0, 2, DATA, end));
        assert_eq!(status(&cqe), Status::DATA_TRANSFER_ERROR);
    }
    let denied = guest.run(1, transfer(2, 0, 1, rom, 0));
    assert_eq!(status(&denied), Status::DATA_TRANSFER_ERROR);
    assert_eq!(guest.get(DATA + 0x8000, 4096), [0x55; 4096]);
    assert_eq!(
        status(&guest.run(1, transfer(1, 0, 1, rom, 0))),
        Status::SUCCESS
    );
    guest.still_works();
}

#[test]
fn prps_that_are_not_aligned() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    guest.put_list(LIST, &[DATA + 0x1000, DATA + 0x2001, DATA + 0x3000]);
    for opcode in [1, 2] {
        for (blocks, prp1, prp2) in [
            (1, DATA + 1, 0),
            (1, DATA + 2, 0),
            (2, DATA, DATA + 0x1004),
            (4, DATA, LIST + 4),
            (4, DATA, LIST),
        ] {
            let cqe = guest.run(1, transfer(opcode, 0, blocks, prp1, prp2));
            assert_eq!(
                status(&cqe),
                Status::PRP_OFFSET_INVALID,
                "{opcode} {blocks} {prp1:#x} {prp2:#x}"
            );
        }
    }
    guest.still_works();
}

/// SGLs that lead to themselves, are too short, or have descriptors of other transports.
#[test]
fn sgls_that_mean_harm() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let end = BASE + MEMORY_BYTES;
    let of = |first: [u8; 16]| {
        let mut sqe = transfer(2, 0, 2, 0, 0);
        sqe.flags = 1 << 6;
        sqe.dptr = SglDescriptor::read_from_bytes(&first).unwrap();
        sqe
    };
    // A segment of nothing that goes on in itself.
    let mut looped = [descriptor(DATA, 0, 0); 4];
    looped[3] = descriptor(LIST, 64, 0x20);
    guest.put(LIST, looped.as_flattened());
    let last = LIST + 0x100;
    guest.put(last, &descriptor(DATA, 4096, 0));
    let inner = LIST + 0x200;
    guest.put(
        inner,
        [descriptor(LIST, 16, 0x30), descriptor(DATA, 8192, 0)].as_flattened(),
    );
    for (first, expected) in [
        (descriptor(LIST, 64, 0x20), Status::INVALID_SGL_COUNT),
        (descriptor(LIST, 64, 0x30), Status::INVALID_SGL_SEGMENT),
        (descriptor(inner, 32, 0x20), Status::INVALID_SGL_SEGMENT),
        (descriptor(last, 16, 0x20), Status::INVALID_SGL_SEGMENT),
        (descriptor(last, 16, 0x30), Status::DATA_SGL_LENGTH_INVALID),
        (descriptor(last, 0, 0x30), Status::INVALID_SGL_SEGMENT),
        (descriptor(last, 17, 0x30), Status::INVALID_SGL_SEGMENT),
        (descriptor(end, 16, 0x30), Status::DATA_TRANSFER_ERROR),
        (descriptor(end - 16, !15, 0x30), Status::DATA_TRANSFER_ERROR),
        (
            descriptor(u64::MAX - 15, 32, 0x30),
            Status::DATA_TRANSFER_ERROR,
        ),
        (descriptor(DATA, 8191, 0), Status::DATA_SGL_LENGTH_INVALID),
        (descriptor(end - 4096, 8192, 0), Status::DATA_TRANSFER_ERROR),
        (
            descriptor(u64::MAX - 4095, 8192, 0),
            Status::DATA_TRANSFER_ERROR,
        ),
        (descriptor(DATA, 8192, 0x01), Status::SGL_TYPE_INVALID),
        (descriptor(DATA, 8192, 0x40), Status::SGL_TYPE_INVALID),
        (descriptor(DATA, 8192, 0x5A), Status::SGL_TYPE_INVALID),
        (descriptor(DATA, 8192, 0xFF), Status::SGL_TYPE_INVALID),
    ] {
        let cqe = guest.run(1, of(first));
        assert_eq!(status(&cqe), expected, "{first:?}");
    }
    guest.still_works();
}

/// A list that leads to itself, one that leads nowhere, one outside of memory.
#[test]
fn lists_that_do_not_end() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    // The last slot of its page names the page itself.
    let mut entries = vec![DATA; 512];
    entries[511] = LIST;
    guest.put_list(LIST, &entries);
    let looped = guest.run(1, transfer(2, 0, 256, DATA, LIST + 0xFF8));
    assert_eq!(
        status(&looped),
        Status::SUCCESS,
        "it has an end all the same: 255 pages"
    );
    entries[511] = BASE + MEMORY_BYTES;
    guest.put_list(LIST, &entries);
    let nowhere = guest.run(1, transfer(2, 0, 256, DATA, LIST + 0xFF8));
    assert_eq!(status(&nowhere), Status::DATA_TRANSFER_ERROR);
    let outside = guest.run(1, transfer(1, 0, 256, DATA, BASE + MEMORY_BYTES));
    assert_eq!(status(&outside), Status::DATA_TRANSFER_ERROR);
    guest.still_works();
}

#[test]
fn commands_that_this_controller_does_not_take() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    // A reserved PSDT, and SGLs of admin commands.
    let mut reserved = transfer(2, 0, 1, DATA, 0);
    reserved.flags = 3 << 6;
    assert_eq!(status(&guest.run(1, reserved)), Status::INVALID_FIELD);
    for psdt in 1..4 {
        let mut identify = command(0x06, 0);
        identify.cdw10 = U32::new(1);
        identify.flags = psdt << 6;
        assert_eq!(status(&guest.admin(identify)), Status::INVALID_FIELD);
    }
    // Fabrics commands.
    assert_eq!(
        status(&guest.admin(command(0x7F, 0))),
        Status::INVALID_OPCODE
    );
    assert_eq!(
        status(&guest.run(1, command(0x7F, 0))),
        Status::INVALID_OPCODE
    );
    // More than MDTS.
    let long = guest.run(1, transfer(2, 0, 257, DATA, LIST));
    assert!([Status::INVALID_FIELD, Status::LBA_OUT_OF_RANGE].contains(&status(&long)));
    guest.still_works();
}

/// Doorbells of queues that are not there, of entries that are not, between doorbells, and beyond them.
#[test]
fn doorbells_that_name_nothing() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    for offset in (0x1000..0x1208)
        .step_by(4)
        .chain([0x1208, 0x1FFC, 0x2FFC, 0x3FFC])
    {
        // A tail of its own queues that is beyond their entries; of the others, anything.
        for value in [64, 65, 0x7FFF, 0xFFFF, 0x1_0000, u32::MAX] {
            guest.ring(offset, value);
        }
    }
    // A head that was not given.
    for head in 1..64 {
        let next = guest.pairs[1].head;
        if head != next {
            guest.ring(0x100C, head);
        }
    }
    guest.still_works();
    assert_eq!(guest.csts(), 1);
}

/// Commands of a kind that are all refused so, several at a time.
fn all_refused(guest: &mut Guest, commands: impl Iterator<Item = Sqe>, refusal: Status) {
    let mut commands = commands.peekable();
    while commands.peek().is_some() {
        let sent: Vec<Sqe> = commands.by_ref().take(60).collect();
        for sqe in &sent {
            guest.submit(0, *sqe);
        }
        for _ in &sent {
            let cqe = guest.complete(0);
            assert_eq!(status(&cqe), refusal, "one of {:?}", sent.first());
        }
    }
}

/// A command about a queue: opcode, identifier, entries, the rest.
fn about_queue(opcode: u8, id: u16, entries: u32, cdw11: u32) -> Sqe {
    let mut sqe = command(opcode, 0);
    sqe.dptr.address = U64::new(places(9).0);
    sqe.cdw10 = U32::new(u32::from(id) | (entries - 1) << 16);
    sqe.cdw11 = U32::new(cdw11);
    sqe
}

/// Each of 65,536 identifiers in each of the four commands: but for those that were granted, none is a queue's.
#[test]
fn queues_of_every_identifier() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let refusal = Status::INVALID_QUEUE_ID;
    let granted = 64;
    let ids = || (0..=u16::MAX).filter(move |id| *id == 0 || *id > granted);
    for (opcode, cdw11) in [(0x05, 1), (0x01, 1 | 1 << 16), (0x00, 0), (0x04, 0)] {
        let commands = ids().map(|id| about_queue(opcode, id, 16, cdw11));
        all_refused(&mut guest, commands, refusal);
    }
    // A completion queue of each.
    let commands = ids().map(|id| about_queue(0x01, 2, 16, 1 | u32::from(id) << 16));
    all_refused(&mut guest, commands, refusal);
    // Those that could be, and are not.
    let free = |opcode| (2..=granted).map(move |id| about_queue(opcode, id, 16, 0));
    all_refused(&mut guest, free(0x00), refusal);
    all_refused(&mut guest, free(0x04), refusal);
    guest.still_works();
}

/// Each of 65,536 sizes: those that CAP.MQES allows make queues that work, and no others.
#[test]
fn queues_of_every_size() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let sizes = || (1..=65_536).filter(|size| *size == 1 || *size > 128);
    let refusal = Status::INVALID_QUEUE_SIZE;
    for (opcode, cdw11) in [(0x05, 1), (0x01, 1 | 1 << 16)] {
        let commands = sizes().map(|size| about_queue(opcode, 2, size, cdw11));
        all_refused(&mut guest, commands, refusal);
    }
    let (sq, cq) = places(2);
    for size in 2..=128 {
        guest.create_cq(2, cq, size).unwrap();
        guest.create_sq(2, 2, sq, size).unwrap();
        // Once round, and further.
        for lba in 0..u64::from(size) + 1 {
            let read = guest.run(2, transfer(2, lba % 16, 1, DATA, 0));
            assert_eq!(status(&read), Status::SUCCESS, "{size}");
        }
        guest.delete(0x00, 2).unwrap();
        guest.delete(0x04, 2).unwrap();
    }
    guest.still_works();
}

/// What else is asked of a new queue.
#[test]
fn queues_that_cannot_be() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let mut set = command(0x09, 0);
    set.cdw10 = U32::new(0x07);
    set.cdw11 = U32::new(1 << 16 | 1);
    assert_eq!(
        status(&guest.admin(set)),
        Status::COMMAND_SEQUENCE_ERROR,
        "a queue is there"
    );
    let (sq, cq) = places(9);
    assert_eq!(guest.create_cq(1, cq, 16), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(guest.create_sq(1, 1, sq, 16), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(
        guest.create_sq(2, 2, sq, 16),
        Err(Status::COMPLETION_QUEUE_INVALID)
    );
    assert_eq!(guest.create_sq(2, 0, sq, 16), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(
        guest.create_cq(2, cq + 4, 16),
        Err(Status::PRP_OFFSET_INVALID)
    );
    let mut vector = command(0x05, 0);
    vector.dptr.address = U64::new(cq);
    vector.cdw10 = U32::new(2 | 15 << 16);
    vector.cdw11 = U32::new(3 | 65 << 16);
    assert_eq!(
        status(&guest.admin(vector)),
        Status::INVALID_INTERRUPT_VECTOR
    );
    guest.still_works();
}

/// Queues in memory that is not there: their commands and completions are gone, and the function is not.
#[test]
fn queues_outside_of_memory() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let outside = BASE + MEMORY_BYTES;
    let mut sqe = command(0x05, 0);
    sqe.dptr.address = U64::new(outside);
    sqe.cdw10 = U32::new(2 | 15 << 16);
    sqe.cdw11 = U32::new(1);
    assert_eq!(status(&guest.admin(sqe)), Status::SUCCESS);
    sqe.opcode = 0x01;
    sqe.cdw11 = U32::new(1 | 2 << 16);
    assert_eq!(status(&guest.admin(sqe)), Status::SUCCESS);
    guest.ring(0x1010, 5);
    // Commands that are there, completions that have no place.
    let (sq, _) = places(3);
    guest.create_sq(3, 2, sq, 16).unwrap();
    for _ in 0..5 {
        guest.submit(3, transfer(2, 0, 1, DATA, 0));
    }
    guest.delete(0x00, 3).unwrap();
    guest.delete(0x00, 2).unwrap();
    guest.delete(0x04, 2).unwrap();
    guest.still_works();
}

/// A controller whose admin queue is nowhere is enabled, has nothing to say, and can be disabled again.
#[test]
fn an_admin_queue_that_is_nowhere() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    for (aqa, asq) in [
        (0, 0),
        (0x0FFF_0FFF, u64::MAX),
        (0x003F_003F, BASE + MEMORY_BYTES),
    ] {
        guest.write_register(0x24, aqa);
        for at in [0x28, 0x30] {
            guest.write_register(at, asq as u32);
            guest.write_register(at + 4, (asq >> 32) as u32);
        }
        guest.write_register(0x14, 0x0046_0001);
        guest.wait_ready(true);
        guest.ring(0x1000, 1);
        guest.write_register(0x14, 0);
        guest.wait_ready(false);
    }
    // What CAP does not offer: a page size, a command set, an arbitration.
    for cc in [0x0046_0081, 0x0046_0011, 0x0046_0801] {
        guest.write_register(0x14, cc);
        assert_eq!(guest.csts(), 2, "{cc:#x}: a fatal status, and never ready");
        guest.write_register(0x14, 0);
        assert_eq!(guest.csts(), 0);
    }
    guest.enable();
    guest.create_pair(1);
    guest.still_works();
}

#[test]
fn windows_that_cannot_be() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let (einval, eexist) = (Err(22), Err(17));
    assert_eq!(guest.map(BASE, 0x1000, 0, 3), eexist);
    assert_eq!(guest.map(BASE - 0x1000, 0x2000, 0, 3), eexist);
    assert_eq!(
        guest.map(0x1000, 0x1000, MEMORY_BYTES, 3),
        einval,
        "beyond the file's end"
    );
    assert_eq!(guest.map(0x1000, 2 * MEMORY_BYTES, 0, 3), einval);
    assert_eq!(guest.map(0x1001, 0x1000, 0, 3), einval);
    assert_eq!(guest.map(0x1000, 0x1000, 0x10, 3), einval);
    // A descriptor that is no memory.
    let body = [words(&[32, 3]), longs(&[0, 0x1000, 0x1000])].concat();
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let refused = guest
        .client
        .call(2, &body, &[std::os::fd::AsFd::as_fd(&socket)]);
    assert_eq!(refused, Err(22));
    let part = guest.client.call(3, &Guest::unmap_body(BASE, 0x1000), &[]);
    assert_eq!(part, Err(2), "a window goes as a whole");
    guest.still_works();
}
