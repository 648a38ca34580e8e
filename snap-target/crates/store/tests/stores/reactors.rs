//! Several reactors on one store, passing regions to each other by messages.
//!
//! A region travels with a plain copy of what must be in it. Whoever holds it reads and writes it at random, compares, and passes it on.
//! A lost message, a lost wake-up, a torn hand-over or a wrong byte ends the test.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{Features, Receiver, Ring, RingConfig, Sender, Wait, channel};
use store::{Op, OpenOptions, SharedStore, Store, StoreSpec, Terms, Token};

use crate::scratch::Scratch;

const REACTORS: usize = 3;
const REGIONS: usize = 8;
/// Not a multiple of any block: neighbours share blocks.
const REGION_BYTES: usize = 20_001;
const HOPS: u32 = 12;
const STEPS_PER_HOP: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

struct Region {
    number: usize,
    hops_left: u32,
    random: u64,
    model: Vec<u8>,
}

enum Message {
    Region(Region),
    Finished(usize),
}

impl Region {
    fn random(&mut self, limit: usize) -> usize {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        usize::try_from(self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % limit
    }
}

struct Player {
    me: usize,
    ring: Ring,
    pool: Pool,
    store: Box<dyn Store>,
    inbox: Receiver<Message>,
    others: Vec<Sender<Message>>,
    /// Regions held here: what is in flight for each, and how many steps are left.
    held: Vec<(Region, Option<Op>, u32)>,
    finished: usize,
}

impl Player {
    fn play(mut self) {
        let deadline = Instant::now() + PATIENCE;
        let mut done = Vec::new();
        while self.finished < REGIONS {
            assert!(
                Instant::now() < deadline,
                "reactor {}: {} of {REGIONS} regions finished",
                self.me,
                self.finished
            );
            while let Some(message) = self.inbox.try_recv() {
                match message {
                    Message::Region(region) => self.take(region),
                    Message::Finished(number) => {
                        assert!(number < REGIONS);
                        self.finished += 1;
                    }
                }
            }
            self.store.poll(&mut done);
            let progress = !done.is_empty();
            for done in done.drain(..) {
                self.completed(done);
            }
            if !progress && self.finished < REGIONS {
                self.ring
                    .turn(Wait::Block {
                        until: Some(deadline),
                    })
                    .unwrap();
            }
        }
        // What was sent through the ring leaves with its next turn.
        self.ring.turn(Wait::Poll).unwrap();
    }

    fn take(&mut self, region: Region) {
        self.held.push((region, None, STEPS_PER_HOP));
        self.step(self.held.len() - 1);
    }

    /// Starts a random operation inside the region.
    fn step(&mut self, index: usize) {
        let (region, op, _) = &mut self.held[index];
        let start = region.random(REGION_BYTES - 1);
        let len = 1 + region.random(REGION_BYTES - start);
        let offset = (region.number * REGION_BYTES + start) as u64;
        let token = Token(region.number as u64);
        let mut buf = self.pool.alloc(len).unwrap();
        let next = if region.random(2) == 0 {
            let value = region.random(256).to_le_bytes()[0];
            buf.fill(0, len, value);
            region.model[start..start + len].fill(value);
            Op::Write {
                offset,
                durable: region.random(8) == 0,
            }
        } else {
            buf.fill(0, len, 0xdb);
            Op::Read { offset }
        };
        *op = Some(next);
        assert!(
            self.store
                .submit(next, Some(buf), token, Terms::default())
                .is_ok()
        );
    }

    fn completed(&mut self, done: store::Completion) {
        let index = self
            .held
            .iter()
            .position(|(region, ..)| region.number as u64 == done.token.0)
            .unwrap();
        let (region, op, left) = &mut self.held[index];
        let buf: IoBuf = done.buf.unwrap();
        assert_eq!(done.result, Ok(u32::try_from(buf.len()).unwrap()));
        if let Some(Op::Read { offset }) = op.take() {
            let start = usize::try_from(offset).unwrap() - region.number * REGION_BYTES;
            assert!(
                buf.to_vec() == region.model[start..start + buf.len()],
                "region {} at {start}",
                region.number
            );
        }
        *left -= 1;
        if *left > 0 {
            self.step(index);
        } else {
            let (region, ..) = self.held.swap_remove(index);
            self.pass_on(region);
        }
    }

    fn pass_on(&mut self, mut region: Region) {
        if region.hops_left == 0 {
            for other in &self.others {
                other
                    .send_via(&self.ring, Message::Finished(region.number))
                    .ok()
                    .unwrap();
            }
            self.finished += 1;
            return;
        }
        region.hops_left -= 1;
        let to = region.random(self.others.len());
        // By turns through the ring and through the eventfd.
        let message = Message::Region(region);
        let sent = if to == 0 {
            self.others[to].send(message)
        } else {
            self.others[to].send_via(&self.ring, message)
        };
        assert!(sent.is_ok());
    }
}

fn pass_regions_around(shared: &SharedStore, mask: Features) {
    let (mut givers, takers): (Vec<_>, Vec<_>) = (0..REACTORS)
        .map(|_| mpsc::channel::<Vec<Sender<Message>>>())
        .unzip();
    let (made, senders) = mpsc::channel();
    thread::scope(|scope| {
        for (me, taker) in takers.into_iter().enumerate() {
            let made = made.clone();
            scope.spawn(move || {
                let config = RingConfig {
                    spin: Duration::from_micros(20),
                    ..RingConfig::default()
                };
                let ring = Ring::new(&config.mask(mask)).unwrap();
                let (sender, inbox) = channel(&ring, REGIONS * 2);
                made.send((me, sender)).unwrap();
                let others = taker.recv().unwrap();
                let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
                let store = shared.open_handle(&ring).unwrap();
                let mut player = Player {
                    me,
                    ring,
                    pool,
                    store,
                    inbox,
                    others,
                    held: Vec::new(),
                    finished: 0,
                };
                // Everybody starts with some of the regions.
                for number in (me..REGIONS).step_by(REACTORS) {
                    let random = 0x9e37_79b9 + number as u64;
                    player.take(Region {
                        number,
                        hops_left: HOPS,
                        random,
                        model: vec![0; REGION_BYTES],
                    });
                }
                player.play();
            });
        }
        let mut all: Vec<(usize, Sender<Message>)> = senders.iter().take(REACTORS).collect();
        all.sort_by_key(|(me, _)| *me);
        for (me, giver) in givers.drain(..).enumerate() {
            let others = all
                .iter()
                .filter(|(other, _)| *other != me)
                .map(|(_, sender)| sender.clone())
                .collect();
            giver.send(others).unwrap();
        }
    });
}

#[test]
fn regions_of_memory_travel() {
    for mask in [Features::NONE, Features::MSG_RING, Features::ALL] {
        let shared = SharedStore::open(
            &StoreSpec::Mem { bytes: 1 << 20 },
            OpenOptions::read_write(),
        )
        .unwrap();
        pass_regions_around(&shared, mask);
    }
}

#[test]
fn regions_of_a_file_travel() {
    for (mask, options) in [
        (Features::NONE, OpenOptions::read_write()),
        (Features::ALL, OpenOptions::read_write()),
        (Features::NONE, OpenOptions::read_write().page_cache()),
    ] {
        let scratch = Scratch::on_disk();
        pass_regions_around(&scratch.filled(1 << 20, options), mask);
    }
}
