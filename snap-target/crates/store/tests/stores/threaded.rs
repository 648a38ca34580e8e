//! A store whose operations happen on another thread, behind a cache that power loss empties: what a remote disk or an object store is to a
//! reactor. Bytes cross between the threads as copies, as the contract says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use reactor::buf::IoBuf;
use reactor::{Receiver, Ring, channel};
use store::{
    Backend, Completion, Durability, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms,
    Token, check,
};

const DEPTH: usize = 64;
/// What power loss keeps or loses as a whole.
const BLOCK_BYTES: usize = 512;

#[derive(Clone, Debug)]
struct Medium {
    now: Vec<u8>,
    stable: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Threaded {
    medium: Arc<Mutex<Medium>>,
    limits: Limits,
    flushes: bool,
}

impl Threaded {
    pub fn holding(content: &[u8], writable: bool) -> Self {
        let mut limits = Limits::new(content.len() as u64);
        limits.transfer_bytes_max = 4 << 20;
        limits.segments_max = 1024;
        limits.queue_depth_max = u32::try_from(DEPTH).unwrap();
        limits.durability = Durability::AfterFlush;
        limits.writable = writable;
        let medium = Medium {
            now: content.to_vec(),
            stable: content.to_vec(),
        };
        Self {
            medium: Arc::new(Mutex::new(medium)),
            limits,
            flushes: true,
        }
    }

    /// The same, but a flush does nothing.
    pub fn without_flush(mut self) -> Self {
        self.flushes = false;
        self
    }

    pub fn store(&self) -> SharedStore {
        SharedStore::new(self.clone())
    }

    /// The store after power loss: of each block either the flushed content or the newest.
    pub fn after_power_loss(&self) -> SharedStore {
        let mut medium = self.medium.lock().unwrap().clone();
        let Medium { now, stable } = &mut medium;
        let blocks = now
            .chunks_mut(BLOCK_BYTES)
            .zip(stable.chunks_mut(BLOCK_BYTES));
        for (index, (now, stable)) in blocks.enumerate() {
            if index % 3 == 0 {
                stable.copy_from_slice(now);
            } else {
                now.copy_from_slice(stable);
            }
        }
        let mut after = self.clone();
        after.medium = Arc::new(Mutex::new(medium));
        after.store()
    }
}

impl Backend for Threaded {
    fn name(&self) -> &str {
        "threaded"
    }

    fn describe(&self) -> String {
        "memory behind another thread".to_owned()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (answer, answers) = channel::<Job>(ring, DEPTH);
        let (medium, flushes) = (self.medium.clone(), self.flushes);
        let thread = std::thread::spawn(move || {
            for mut job in inbox {
                carry_out(&mut medium.lock().unwrap(), &mut job, flushes);
                // A handle that is gone has dropped its receiver: nobody waits.
                let _ = answer.send(job);
            }
        });
        Ok(Box::new(Handle {
            limits: self.limits.clone(),
            jobs: Some(jobs),
            answers,
            thread: Some(thread),
            flights: HashMap::new(),
            closed: false,
        }))
    }
}

struct Job {
    token: Token,
    op: Op,
    bytes: Vec<u8>,
}

fn carry_out(medium: &mut Medium, job: &mut Job, flushes: bool) {
    let at = usize::try_from(job.op.offset()).unwrap();
    let range = match job.op {
        Op::Read { .. } | Op::Write { .. } => at..at + job.bytes.len(),
        Op::Zero { len, .. } => at..at + usize::try_from(len).unwrap(),
        _ => at..at,
    };
    match job.op {
        Op::Read { .. } => job.bytes.copy_from_slice(&medium.now[range.clone()]),
        Op::Write { .. } => medium.now[range.clone()].copy_from_slice(&job.bytes),
        Op::Zero { .. } => medium.now[range.clone()].fill(0),
        Op::Flush if flushes => medium.stable.copy_from_slice(&medium.now),
        _ => {}
    }
    if job.op.is_durable() && flushes {
        medium.stable[range.clone()].copy_from_slice(&medium.now[range]);
    }
}

struct Handle {
    limits: Limits,
    jobs: Option<mpsc::Sender<Job>>,
    answers: Receiver<Job>,
    thread: Option<JoinHandle<()>>,
    flights: HashMap<Token, Option<IoBuf>>,
    closed: bool,
}

impl Store for Handle {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        _terms: Terms,
    ) -> Result<(), Rejected> {
        let store = "threaded".to_owned();
        let why = if self.closed {
            Err(StoreError::Closed { store })
        } else if let Err(why) = check(&op, buf.as_ref(), &self.limits, &store) {
            Err(why)
        } else if self.flights.len() == DEPTH {
            Err(StoreError::Busy)
        } else {
            Ok(())
        };
        if let Err(why) = why {
            return Err(Rejected { op, buf, why });
        }
        let bytes = buf.as_ref().map(IoBuf::to_vec).unwrap_or_default();
        self.flights.insert(token, buf);
        let job = Job { token, op, bytes };
        self.jobs.as_ref().unwrap().send(job).unwrap();
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        while let Some(Job { token, op, bytes }) = self.answers.try_recv() {
            let mut buf = self.flights.remove(&token).unwrap();
            if let (Op::Read { .. }, Some(buf)) = (op, &mut buf) {
                buf.copy_from(0, &bytes);
            }
            let result = Ok(u32::try_from(bytes.len()).unwrap());
            completions.push(Completion { token, buf, result });
        }
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn is_closed(&self) -> bool {
        self.closed && self.flights.is_empty()
    }

    fn cancel(&mut self, _token: Token) {
        // What is with the other thread ends there; no bound is declared.
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.thread.take().map(JoinHandle::join);
    }
}
