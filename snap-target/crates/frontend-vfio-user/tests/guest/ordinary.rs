//! What a well-behaved guest sees.

use nvme_spec::{SglDescriptor, Status, U32};
use zerocopy::FromBytes;

use crate::driver::{
    DATA, Guest, LIST, Machine, command, descriptor, pattern, places, set_prps, status, transfer,
};
use frontend_nvme::conformance::{Gate, memory};

#[test]
fn an_nvme_controller_is_on_the_bus() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    assert_eq!(guest.read_config(0x08, 4), 0x0108_0201);
    // CAP: 128 entries, contiguous, 30 s, doorbells without a stride, a subsystem reset, the NVM command set, pages of 4 KiB, ready with media.
    let cap = guest.read_register(0, 8);
    assert_eq!(cap, 0x0800_0030_3C01_007F);
    assert_eq!(guest.read_register(0x08, 4), 0x0002_0000);
    assert_eq!((guest.csts(), guest.read_register(0x68, 4)), (0, 60));
    guest.enable();
    assert_eq!(guest.read_register(0x14, 4), 0x0046_0001);
}

#[test]
fn identify_says_what_a_pcie_controller_says() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let mut identify = command(0x06, 0);
    set_prps(&mut identify, DATA, 0);
    identify.cdw10 = U32::new(1);
    assert_eq!(status(&guest.admin(identify)), Status::SUCCESS);
    let page = guest.get(DATA, 4096);
    assert_eq!(
        (page[77], page[512], page[513]),
        (8, 0x66, 0x44),
        "MDTS, SQES, CQES"
    );
    assert_eq!(page[256..258], [0, 1], "OACS: Doorbell Buffer Config");
    assert_eq!(page[536..540], [1, 0, 4, 0], "SGLS");
    assert_eq!(page[1792..1808], [0; 16], "no capsules");
    // Beginning inside of a page, the structure takes two.
    set_prps(&mut identify, DATA + 0x2F00, DATA + 0x8000);
    assert_eq!(status(&guest.admin(identify)), Status::SUCCESS);
    let halves = [
        guest.get(DATA + 0x2F00, 0x100),
        guest.get(DATA + 0x8000, 0xF00),
    ];
    assert_eq!(halves.concat(), page);
}

/// Features with data, whose lengths the commands do not say, and those of PCIe alone.
#[test]
fn features_go_by_prps() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let mut set = command(0x09, 0);
    set.cdw10 = U32::new(0x16);
    set_prps(&mut set, DATA, 0);
    let mut behavior = [0; 512];
    behavior[0] = 1;
    guest.put(DATA, &behavior);
    assert_eq!(status(&guest.admin(set)), Status::SUCCESS);
    let mut get = command(0x0A, 0);
    get.cdw10 = U32::new(0x16);
    set_prps(&mut get, DATA + 0x1000, 0);
    assert_eq!(status(&guest.admin(get)), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 0x1000, 512), behavior);

    set.cdw10 = U32::new(0x09);
    set.cdw11 = U32::new(1 << 16 | 3);
    assert_eq!(status(&guest.admin(set)), Status::SUCCESS);
    get.cdw10 = U32::new(0x09);
    for (vector, expected) in [(3, 1 << 16 | 3), (4, 4)] {
        get.cdw11 = U32::new(vector);
        assert_eq!(guest.admin(get).dw0.get(), expected);
    }
    get.cdw11 = U32::new(65);
    assert_eq!(status(&guest.admin(get)), Status::INVALID_FIELD);
    set.cdw10 = U32::new(0x08);
    set.cdw11 = U32::new(0x0203);
    assert_eq!(status(&guest.admin(set)), Status::SUCCESS);
    get.cdw10 = U32::new(0x08);
    assert_eq!(guest.admin(get).dw0.get(), 0x0203);
}

/// The pages of a guest's buffer, far from each other, and its two PRPs.
fn pages(first: u64, count: u64) -> (Vec<u64>, u64, u64) {
    let all: Vec<u64> = (0..count)
        .map(|index| DATA + index * 0x3000)
        .enumerate()
        .map(|(index, page)| if index == 0 { page + first } else { page })
        .collect();
    let prp2 = match count {
        1 => 0,
        2 => all[1],
        _ => LIST,
    };
    let prp1 = all[0];
    (all, prp1, prp2)
}

/// Dwords from all over the first page, and numbers of pages up to MDTS, there and back. Each dword is `nvme::pcie`'s to test.
#[test]
fn data_go_where_prps_say() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let cases = (0..4096).step_by(252).map(|first| (first, 4)).chain([
        (0, 1),
        (0, 2),
        (4, 1),
        (4092, 2),
        (0, 256),
        (4, 256),
        (2048, 255),
    ]);
    for (first, blocks) in cases {
        let bytes = blocks as usize * 4096;
        let pages_needed = (first + bytes as u64).div_ceil(4096);
        let (all, prp1, prp2) = pages(first, pages_needed);
        guest.put_list(LIST, &all[1..]);
        let data = pattern(first + u64::from(blocks), bytes);
        let runs = |all: &[u64]| -> Vec<(u64, usize)> {
            let mut left = bytes;
            let mut runs = Vec::new();
            for page in all {
                let run = left.min(4096 - (*page % 4096) as usize);
                runs.push((*page, run));
                left -= run;
            }
            runs
        };
        let mut at = 0;
        for (page, run) in runs(&all) {
            guest.put(page, &data[at..at + run]);
            at += run;
        }
        let written = guest.run(1, transfer(1, 0, blocks, prp1, prp2));
        assert_eq!(status(&written), Status::SUCCESS, "{first} {blocks}");
        for (page, run) in runs(&all) {
            guest.put(page, &vec![0xEE; run]);
        }
        let read = guest.run(1, transfer(2, 0, blocks, prp1, prp2));
        assert_eq!(status(&read), Status::SUCCESS, "{first} {blocks}");
        let back: Vec<u8> = runs(&all)
            .iter()
            .flat_map(|(page, run)| guest.get(*page, *run))
            .collect();
        assert!(back == data, "{first} {blocks}");
    }
}

/// Runs of any length at any byte, in one descriptor, in a segment, in segments that go on, and longer than the data.
#[test]
fn data_go_where_sgls_say() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let bytes = 256 * 4096;
    // Runs of lengths that are no pages', at odd places, some of them of nothing.
    let mut runs = Vec::new();
    let (mut at, mut left) = (DATA + 3, bytes);
    for step in 0_u32.. {
        let run = [0, 1, 4095, 8191, 100_000][step as usize % 5].min(left);
        runs.push((at, run));
        at += u64::from(run) + 5;
        left -= run;
        if left == 0 {
            break;
        }
    }
    let whole = vec![(DATA + 1, bytes)];
    let longer = vec![(DATA + 1, bytes - 7), (DATA + 0x20_0000, 4096)];
    for (runs, segment) in [
        (&whole, 0),
        (&longer, 300),
        (&runs, 300),
        (&runs, 7),
        (&runs, 2),
    ] {
        let of = |opcode| {
            let mut sqe = transfer(opcode, 0, 256, 0, 0);
            sqe.flags = 1 << 6;
            sqe
        };
        let first = put_sgl(&guest, runs, segment);
        let data = pattern(segment as u64 + runs.len() as u64, bytes as usize);
        let mut done = 0;
        let places: Vec<(u64, usize)> = runs
            .iter()
            .map(|(at, run)| {
                let run = (*run as usize).min(bytes as usize - done);
                done += run;
                (*at, run)
            })
            .collect();
        let mut from = 0;
        for (at, run) in &places {
            guest.put(*at, &data[from..from + run]);
            from += run;
        }
        let mut write = of(1);
        write.dptr = first;
        let written = guest.run(1, write);
        assert_eq!(status(&written), Status::SUCCESS, "{segment}");
        guest.put(DATA, &vec![0xEE; 0x30_0000]);
        let mut read = of(2);
        read.dptr = first;
        let came = guest.run(1, read);
        assert_eq!(status(&came), Status::SUCCESS, "{segment}");
        let back: Vec<u8> = places
            .iter()
            .flat_map(|(at, run)| guest.get(*at, *run))
            .collect();
        assert!(back == data, "{segment}");
        // Nothing between them.
        let touched: usize = places.iter().map(|(_, run)| run).sum();
        let all = guest.get(DATA, 0x30_0000);
        let others = all.iter().filter(|byte| **byte != 0xEE).count();
        assert!(others <= touched);
        assert_eq!(guest.get(DATA, 1), [0xEE]);
    }
}

/// Puts an SGL into memory, so many descriptors a segment, the one that leads on among them; none: it is in the command. Returns the command's.
fn put_sgl(guest: &Guest, runs: &[(u64, u32)], segment: usize) -> SglDescriptor {
    let of = |bytes: [u8; 16]| SglDescriptor::read_from_bytes(&bytes).unwrap();
    let data: Vec<[u8; 16]> = runs
        .iter()
        .map(|(at, bytes)| descriptor(*at, *bytes, 0))
        .collect();
    if segment == 0 {
        return of(data[0]);
    }
    let mut segments: Vec<Vec<[u8; 16]>> = data.chunks(segment - 1).map(<[_]>::to_vec).collect();
    let mut next: Option<(u64, u32, u8)> = None;
    for (index, segment) in segments.iter_mut().enumerate().rev() {
        let id = if next.is_none() { 0x30 } else { 0x20 };
        if let Some((at, bytes, id)) = next {
            segment.push(descriptor(at, bytes, id));
        }
        // Apart, and not aligned to pages.
        let at = LIST + index as u64 * 0x1230;
        guest.put(at, segment.as_flattened());
        next = Some((at, segment.len() as u32 * 16, id));
    }
    let (at, bytes, id) = next.unwrap();
    of(descriptor(at, bytes, id))
}

/// Every queue that a function has, with something on each; they are spread over reactors.
#[test]
fn sixty_four_pairs_of_queues() {
    every_pair_works(&Machine::start(memory(), 2));
    every_pair_works(&Machine::polled(memory(), 2));
}

fn every_pair_works(machine: &Machine) {
    let mut guest = machine.guest();
    guest.enable();
    let mut set = command(0x09, 0);
    set.cdw10 = U32::new(0x07);
    set.cdw11 = U32::new(63 << 16 | 63);
    assert_eq!(guest.admin(set).dw0.get(), 63 << 16 | 63);
    for id in 1..=64 {
        let page = u64::from(id) * 0x1000;
        let (sq, cq) = (DATA + 0x40_0000 + page, DATA + 0x60_0000 + page);
        guest.create_cq(id, cq, 16).unwrap();
        guest.create_sq(id, id, sq, 16).unwrap();
        guest.pairs[usize::from(id)].cq = cq;
    }
    let beyond = guest.create_cq(65, DATA + 0x50_0000, 16);
    assert_eq!(beyond, Err(Status::INVALID_QUEUE_ID));
    for id in 1..=64 {
        let data = pattern(id.into(), 4096);
        guest.put(DATA, &data);
        let lba = u64::from(id);
        assert_eq!(
            status(&guest.run(id, transfer(1, lba, 1, DATA, 0))),
            Status::SUCCESS
        );
    }
    for id in (1..=64).rev() {
        let lba = u64::from(65 - id);
        assert_eq!(
            status(&guest.run(id, transfer(2, lba, 1, DATA, 0))),
            Status::SUCCESS
        );
        assert!(guest.get(DATA, 4096) == pattern(lba, 4096));
    }
}

#[test]
fn two_submission_queues_share_a_completion_queue() {
    two_share_one(&Machine::start(memory(), 2));
    two_share_one(&Machine::polled(memory(), 2));
}

fn two_share_one(machine: &Machine) {
    let mut guest = machine.running();
    let (sq, _) = places(2);
    guest.create_sq(2, 1, sq, 16).unwrap();
    for round in 0..40_u64 {
        let lba = round % 16;
        guest.put(DATA, &pattern(round, 4096));
        let queue = 1 + (round % 2) as u16;
        guest.submit(queue, transfer(1, lba, 1, DATA, 0));
        let cqe = guest.complete(1);
        assert_eq!((cqe.sqid.get(), status(&cqe)), (queue, Status::SUCCESS));
    }
    assert_eq!(guest.delete(0x04, 1), Err(Status::INVALID_QUEUE_DELETION));
    guest.delete(0x00, 1).unwrap();
    guest.submit(2, transfer(2, 7, 1, DATA, 0));
    assert_eq!(guest.complete(1).sqid.get(), 2);
    assert!(guest.get(DATA, 4096) == pattern(39, 4096));
    guest.delete(0x00, 2).unwrap();
    guest.delete(0x04, 1).unwrap();
}

/// More commands than the completion queue has entries: none is lost, and each comes as room is made.
#[test]
fn completions_wait_for_room() {
    none_is_lost(&Machine::start(memory(), 2));
    none_is_lost(&Machine::polled(memory(), 2));
}

fn none_is_lost(machine: &Machine) {
    let mut guest = machine.guest();
    guest.enable();
    let (sq, cq) = places(1);
    guest.create_cq(1, cq, 4).unwrap();
    guest.create_sq(1, 1, sq, 64).unwrap();
    let cids: Vec<u16> = (0..50)
        .map(|lba| guest.submit(1, transfer(2, lba, 1, DATA + lba * 4096, 0)))
        .collect();
    // The driver's pair knows the entries of the submission queue alone.
    guest.pairs[1].entries = 4;
    let mut came: Vec<u16> = (0..50).map(|_| guest.complete(1).cid.get()).collect();
    came.sort_unstable();
    assert_eq!(came, cids);
    assert!(guest.peek(1).is_none());
}

/// Answers share lines of the completion queue, and none waits for one of another turn: while the store keeps a command, those of any number behind it come, in their
/// order.
#[test]
fn an_answer_waits_for_none_of_another_turn() {
    for polled in [false, true] {
        let (gate, store) = Gate::over(memory(), 1);
        let machine = match polled {
            true => Machine::polled(store, 1),
            false => Machine::start(store, 1),
        };
        let mut guest = machine.running();
        // The store keeps this one, so that commands are outstanding all the while.
        let kept = guest.submit(1, transfer(1, 0, 1, DATA, 0));
        gate.wait_held(1);
        for burst in 1..=9_u64 {
            let cids: Vec<u16> = (0..burst)
                .map(|lba| {
                    guest.prepare(
                        1,
                        transfer(2, 1 + lba % 8, 1, DATA + 0x10000 + lba * 4096, 0),
                    )
                })
                .collect();
            guest.ring_tail(1);
            let came: Vec<u16> = cids.iter().map(|_| guest.complete(1).cid.get()).collect();
            assert_eq!(came, cids, "a burst of {burst}");
        }
        gate.open();
        assert_eq!(guest.complete(1).cid.get(), kept);
        assert!(guest.peek(1).is_none());
    }
}
