//! A client that is not ours: the one of the crate `vfio_user`, and the least of a driver on it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use foreign_vfio_user::Client;
use frontend_nvme::conformance::memory;
use nvme_spec::{Cqe, Sqe, Status, U16, U32, U64};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use zerocopy::{FromBytes, IntoBytes};

use crate::driver::{
    BASE, DATA, MEMORY_BYTES, Machine, command, memory_file, pattern, places, status, transfer,
};

const BAR: u32 = 0;
const CONFIG: u32 = 7;
/// MSI-X, VFIO_IRQ_SET_DATA_EVENTFD and VFIO_IRQ_SET_ACTION_TRIGGER.
const MSIX: u32 = 2;
const BY_EVENTFD: u32 = 4 | 32;
const ENTRIES: u16 = 16;
/// Registers (NVM Express Base, "Controller Properties").
const CC: u64 = 0x14;
const CSTS: u64 = 0x1C;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;

struct Guest {
    client: Client,
    memory: File,
    /// By queue identifier, which is its vector's: how many commands it had.
    had: [u16; 2],
    vectors: [OwnedFd; 2],
}

impl Guest {
    fn new(machine: &Machine) -> Guest {
        let mut client = Client::new(&machine.socket()).unwrap();
        let memory = memory_file();
        client
            .dma_map(0, BASE, MEMORY_BYTES, memory.as_raw_fd())
            .unwrap();
        let vectors = [0, 1].map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let fds: Vec<i32> = vectors.iter().map(AsRawFd::as_raw_fd).collect();
        client.set_irqs(MSIX, BY_EVENTFD, 0, 2, &fds).unwrap();
        Guest {
            client,
            memory,
            had: [0; 2],
            vectors,
        }
    }

    fn read32(&mut self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.client.region_read(BAR, at, &mut word).unwrap();
        u32::from_le_bytes(word)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.client.region_write(BAR, at, bytes).unwrap();
    }

    fn enable(&mut self) {
        let (sq, cq) = places(0);
        let last = u32::from(ENTRIES - 1);
        self.write(AQA, &(last | last << 16).to_le_bytes());
        self.write(ASQ, &sq.to_le_bytes());
        self.write(ACQ, &cq.to_le_bytes());
        self.write(CC, &0x0046_0001_u32.to_le_bytes());
        while self.read32(CSTS) & 1 == 0 {}
    }

    /// A command on a queue, which has one at a time, to its interrupt.
    fn run(&mut self, queue: u16, mut sqe: Sqe) -> Status {
        let index = usize::from(queue);
        let had = self.had[index];
        self.had[index] += 1;
        sqe.cid = U16::new(had);
        let (sq, cq) = places(queue);
        let place = u64::from(had % ENTRIES);
        self.memory
            .write_all_at(sqe.as_bytes(), sq + place * 64 - BASE)
            .unwrap();
        let next = u32::from((had + 1) % ENTRIES);
        let doorbell = DOORBELLS + u64::from(queue) * 8;
        self.write(doorbell, &next.to_le_bytes());
        self.wait(index);
        let mut entry = [0; 16];
        self.memory
            .read_exact_at(&mut entry, cq + place * 16 - BASE)
            .unwrap();
        let cqe = Cqe::read_from_bytes(&entry[..]).unwrap();
        assert_eq!(cqe.cid.get(), had);
        assert_eq!(cqe.status_and_phase.get() & 1, 1 - had / ENTRIES % 2);
        self.write(doorbell + 4, &next.to_le_bytes());
        status(&cqe)
    }

    fn wait(&self, vector: usize) {
        let fd = self.vectors[vector].as_fd();
        let timeout = rustix::event::Timespec {
            tv_sec: Duration::from_secs(20).as_secs() as i64,
            tv_nsec: 0,
        };
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "no interrupt came");
        rustix::io::read(fd, &mut [0; 8]).unwrap();
    }

    fn create_queues(&mut self) {
        let (sq, cq) = places(1);
        let of = 1 | u32::from(ENTRIES - 1) << 16;
        // Create I/O Completion Queue with its vector, Create I/O Submission Queue of it; both contiguous.
        for (opcode, place, how) in [(0x05, cq, 3 | 1 << 16), (0x01, sq, 1 | 1 << 16)] {
            let mut sqe = command(opcode, 0);
            sqe.dptr.address = U64::new(place);
            sqe.cdw10 = U32::new(of);
            sqe.cdw11 = U32::new(how);
            assert_eq!(self.run(0, sqe), Status::SUCCESS);
        }
    }
}

#[test]
fn a_foreign_client_has_a_disk() {
    let machine = Machine::start(memory(), 2);
    let mut guest = Guest::new(&machine);
    let mut class = [0; 4];
    guest.client.region_read(CONFIG, 8, &mut class).unwrap();
    assert_eq!(class[1..], [0x02, 0x08, 0x01], "an NVM Express controller");
    let bar = guest.client.region(BAR).unwrap();
    assert!(bar.size > DOORBELLS && bar.sparse_areas.is_empty());
    assert!(guest.client.get_irq_info(MSIX).unwrap().count > 64);
    guest.enable();
    guest.create_queues();
    // Both rings come round.
    for seed in 0..2 * u64::from(ENTRIES) + 3 {
        let data = pattern(seed, 4096);
        guest.memory.write_all_at(&data, DATA - BASE).unwrap();
        let lba = seed % 16;
        let written = guest.run(1, transfer(1, lba, 1, DATA, 0));
        let there = DATA + 0x1000;
        let read = guest.run(1, transfer(2, lba, 1, there, 0));
        assert_eq!((written, read), (Status::SUCCESS, Status::SUCCESS));
        let mut back = vec![0; 4096];
        guest.memory.read_exact_at(&mut back, there - BASE).unwrap();
        assert!(back == data);
    }
    let beyond = guest.run(1, transfer(2, 1 << 40, 1, DATA, 0));
    assert_eq!(beyond, Status::LBA_OUT_OF_RANGE);
    // What it takes away, nobody touches.
    guest.client.dma_unmap(BASE, MEMORY_BYTES).unwrap();
    guest.client.reset().unwrap();
    assert_eq!(guest.read32(CSTS) & 1, 0);
    guest.client.shutdown().unwrap();
    machine.running().still_works();
}
