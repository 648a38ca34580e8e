//! One reactor's way to its namespaces: requests in, answers out.

use std::collections::VecDeque;
use std::sync::Arc;

use reactor::Ring;
use reactor::buf::{IoBuf, Pool, PoolConfig};
use store::{Completion, Op, Rejected, Store, StoreError, Token};
use transforms::Scratch;
use volume::{Cache, ReadOp};

use crate::shared::Backing;
use crate::view::ViewRead;
use crate::{Done, Io, Namespace, NamespaceError, NamespaceSet};

/// Requests in flight on one engine; more are parked by the frontends' queue depths, which sum up to less by configuration.
const REQUESTS_MAX: usize = 1 << 16;
/// Fetches of one request: the low bits of a store token.
pub(crate) const FETCHES_MAX: usize = 1 << 8;

const _: () = assert!(
    (REQUESTS_MAX as u64) < 1 << 32 && FETCHES_MAX as u64 <= 1 << 32,
    "both fit a store token"
);

/// Memory of one engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Buffers that answers travel in, and staging for what stores deliver. Two pools of this shape: a request that holds an answer buffer
    /// waits for staging only, and staging is always given back, so no two requests wait for each other.
    pub pool: PoolConfig,
    /// Budget of the frame cache and the table cache.
    pub cache_bytes: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            pool: PoolConfig::default(),
            cache_bytes: 64 << 20,
        }
    }
}

/// What went through an engine since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Bytes fetched from stores.
    pub stored_bytes: u64,
    /// Bytes handed to frontends.
    pub delivered_bytes: u64,
    /// Bytes copied on the way: staging to answer. Leases and direct reads copy none.
    pub copied_bytes: u64,
    /// Bytes written to stores.
    pub written_bytes: u64,
    /// Requests that waited for memory or a store's queue.
    pub parked: u64,
}

/// See the crate's documentation.
pub struct Engine {
    attached: Vec<Attached>,
    parts: Parts,
    requests: Vec<Request>,
    free: Vec<usize>,
    parked: VecDeque<usize>,
    done: Vec<Done>,
    completions: Vec<Completion>,
}

/// A namespace and this reactor's handles to its stores, by source.
pub(crate) struct Attached {
    pub(crate) shared: Arc<Namespace>,
    pub(crate) stores: Vec<Box<dyn Store>>,
    in_flight: usize,
}

/// What requests work with.
pub(crate) struct Parts {
    pub(crate) answers: Pool,
    pub(crate) staging: Pool,
    pub(crate) cache: Cache,
    pub(crate) scratch: Scratch,
    pub(crate) counters: EngineCounters,
}

struct Request {
    attached: usize,
    token: u64,
    work: Work,
    /// Recycled: a request makes no allocation after its slot's first.
    op: Option<Box<ReadOp>>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "lives in the request table, which is made once; a box would be an allocation a request"
)]
enum Work {
    Free,
    /// Waits for memory or a store's queue; retried whenever something was given back.
    Raw {
        op: Op,
        buf: Option<IoBuf>,
        read_bytes: u32,
    },
    /// The store has it.
    Submitted,
    View(ViewRead),
}

/// How far a request came.
pub(crate) enum Step {
    /// Answered.
    Done(Result<Option<IoBuf>, NamespaceError>),
    /// The store has it.
    Waiting,
    /// It waits for memory or a place in a store's queue.
    Parked,
}

impl Engine {
    /// An engine on this thread's ring, with handles to every namespace of the set.
    ///
    /// # Errors
    /// A store that gives no handle, or memory that cannot be had.
    pub fn new(
        ring: &Ring,
        set: &NamespaceSet,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        let mut attached = Vec::with_capacity(set.all().len());
        for namespace in set.all() {
            let stores = namespace
                .stores()
                .iter()
                .map(|store| store.open_handle(ring))
                .collect::<Result<_, _>>()?;
            attached.push(Attached {
                shared: namespace.clone(),
                stores,
                in_flight: 0,
            });
        }
        let parts = Parts {
            answers: Pool::new(ring, &config.pool)?,
            staging: Pool::new(
                ring,
                &PoolConfig {
                    register: false,
                    ..config.pool.clone()
                },
            )?,
            cache: Cache::new(config.cache_bytes),
            scratch: Scratch::new(),
            counters: EngineCounters::default(),
        };
        Ok(Self {
            attached,
            parts,
            requests: Vec::new(),
            free: Vec::new(),
            parked: VecDeque::new(),
            done: Vec::new(),
            completions: Vec::new(),
        })
    }

    /// Counters since the engine was made.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        self.parts.counters
    }

    /// A buffer for data that a host is about to send; `None`: retry when answers were given back.
    #[must_use]
    pub fn alloc(&self, len: usize) -> Option<IoBuf> {
        self.parts.answers.alloc(len)
    }

    /// Whether requests are in flight or parked.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.free.len() < self.requests.len()
    }

    /// Takes a request. The answer is returned where it is there at once (the store's bytes lie in memory, or the request cannot be), and
    /// comes from [`Engine::poll`] otherwise.
    ///
    /// `snapshot`: the reader needs bytes that do not change after this call (it sends a digest ahead of them), so memory that a writer may
    /// change is copied.
    pub fn submit(&mut self, nsid: u32, io: Io, snapshot: bool, token: u64) -> Option<Done> {
        let Some(index) = self.find(nsid) else {
            return Some(Done {
                token,
                buf: buffer_of(io),
                result: Err(NamespaceError::Detached { nsid }),
            });
        };
        let namespace = self.attached[index].shared.clone();
        if let Err(error) = check(&namespace, &io) {
            return Some(Done {
                token,
                buf: buffer_of(io),
                result: Err(error),
            });
        }
        if let (Io::Read { lba, blocks }, Backing::Raw(_)) = (&io, &namespace.backing)
            // Nobody writes to what is write-protected.
            && (!snapshot || namespace.write_protected)
            && let Some(buf) = self.lease(index, *lba, *blocks)
        {
            self.parts.counters.stored_bytes += buf.len() as u64;
            self.parts.counters.delivered_bytes += buf.len() as u64;
            return Some(Done {
                token,
                buf: Some(buf),
                result: Ok(()),
            });
        }
        if let (Io::Flush, Backing::View { .. }) = (&io, &namespace.backing) {
            // Nothing was ever written to a view.
            return Some(Done {
                token,
                buf: None,
                result: Ok(()),
            });
        }
        let slot = self.take_slot(index, token);
        self.requests[slot].work = match (&namespace.backing, io) {
            (Backing::Raw(_), io) => raw_work(&namespace, io),
            (Backing::View { volume, .. }, Io::Read { lba, blocks }) => {
                Work::View(ViewRead::new(&namespace, volume, lba, blocks))
            }
            // `check` refused writes to views.
            (Backing::View { .. }, _) => Work::Free,
        };
        self.advance(slot);
        self.take_done(token)
    }

    /// Takes what the stores completed, lets parked requests go on, and appends the answers.
    pub fn poll(&mut self, done: &mut Vec<Done>) {
        for index in 0..self.attached.len() {
            if self.attached[index].in_flight == 0 {
                continue;
            }
            let mut completions = std::mem::take(&mut self.completions);
            for source in 0..self.attached[index].stores.len() {
                self.attached[index].stores[source].poll(&mut completions);
                for completion in completions.drain(..) {
                    self.completed(index, completion);
                }
            }
            self.completions = completions;
        }
        self.retry_parked();
        done.append(&mut self.done);
    }

    fn find(&self, nsid: u32) -> Option<usize> {
        // NSIDs are handed out from 1 without gaps as a rule: the first look is a hit.
        let guess = (nsid as usize).wrapping_sub(1);
        if self
            .attached
            .get(guess)
            .is_some_and(|attached| attached.shared.nsid == nsid)
        {
            return Some(guess);
        }
        self.attached
            .binary_search_by_key(&nsid, |attached| attached.shared.nsid)
            .ok()
    }

    fn lease(&mut self, index: usize, lba: u64, blocks: u32) -> Option<IoBuf> {
        let attached = &mut self.attached[index];
        let bytes = blocks.checked_mul(attached.shared.lba_bytes)?;
        attached.lease(0, lba * u64::from(attached.shared.lba_bytes), bytes)
    }

    fn take_slot(&mut self, attached: usize, token: u64) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request {
                attached,
                token,
                work: Work::Free,
                op: None,
            });
            self.requests.len() - 1
        });
        debug_assert!(slot < REQUESTS_MAX, "queue depths bound the requests");
        self.requests[slot].attached = attached;
        self.requests[slot].token = token;
        slot
    }

    fn take_done(&mut self, token: u64) -> Option<Done> {
        (self.done.last()?.token == token).then(|| self.done.pop())?
    }

    /// Lets a request go on from where it stands.
    fn advance(&mut self, slot: usize) {
        let request = &mut self.requests[slot];
        let attached = &mut self.attached[request.attached];
        let step = match std::mem::replace(&mut request.work, Work::Submitted) {
            Work::Raw {
                op,
                buf,
                read_bytes,
            } => submit_raw(
                attached,
                &mut self.parts,
                slot,
                op,
                buf,
                read_bytes,
                &mut request.work,
            ),
            Work::View(mut read) => {
                let op = request.op.get_or_insert_with(|| Box::new(ReadOp::new()));
                let step = read.advance(op, attached, &mut self.parts, slot);
                if !matches!(step, Step::Done(_)) {
                    request.work = Work::View(read);
                }
                step
            }
            other => {
                request.work = other;
                return;
            }
        };
        self.settle(slot, step);
    }

    fn settle(&mut self, slot: usize, step: Step) {
        match step {
            Step::Done(result) => self.finish(slot, result),
            Step::Waiting => {}
            Step::Parked => {
                self.parts.counters.parked += 1;
                self.parked.push_back(slot);
            }
        }
    }

    fn finish(&mut self, slot: usize, result: Result<Option<IoBuf>, NamespaceError>) {
        let request = &mut self.requests[slot];
        request.work = Work::Free;
        let (buf, result) = match result {
            Ok(buf) => (buf, Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.done.push(Done {
            token: request.token,
            buf,
            result,
        });
        self.free.push(slot);
    }

    fn completed(&mut self, attached: usize, completion: Completion) {
        let (slot, fetch) = parts_of(completion.token);
        self.attached[attached].in_flight -= 1;
        let Some(request) = self.requests.get_mut(slot) else {
            return;
        };
        match std::mem::replace(&mut request.work, Work::Submitted) {
            Work::View(mut read) => {
                let op = request.op.get_or_insert_with(|| Box::new(ReadOp::new()));
                let step = read.completed(
                    op,
                    &mut self.attached[attached],
                    &mut self.parts,
                    slot,
                    fetch,
                    completion,
                );
                if !matches!(step, Step::Done(_)) {
                    request.work = Work::View(read);
                }
                self.settle(slot, step);
            }
            _ => {
                let nsid = self.attached[attached].shared.nsid;
                let result = whole(nsid, completion).inspect(|buf| {
                    self.parts.counters.delivered_bytes +=
                        buf.as_ref().map_or(0, IoBuf::len) as u64;
                });
                self.finish(slot, result);
            }
        }
    }

    fn retry_parked(&mut self) {
        for _ in 0..self.parked.len() {
            let Some(slot) = self.parked.pop_front() else {
                break;
            };
            let parked_before = self.parked.len();
            self.advance(slot);
            if self.parked.len() > parked_before {
                // Still no room: the others behind it wait for the same, and keep their order.
                self.parked.rotate_right(1);
                break;
            }
        }
    }
}

impl Attached {
    /// The bytes of a source where they lie, if its store keeps them in memory.
    pub(crate) fn lease(&mut self, source: usize, offset: u64, len: u32) -> Option<IoBuf> {
        self.stores.get_mut(source)?.lease(offset, len)
    }

    /// Hands an operation to the store of a source; gives it back where the store's queue is full.
    #[expect(
        clippy::result_large_err,
        reason = "it gives the buffer back, as the store's contract says"
    )]
    pub(crate) fn submit(
        &mut self,
        source: usize,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
    ) -> Result<(), Rejected> {
        let Some(store) = self.stores.get_mut(source) else {
            let what = "the volume names a source that was not opened";
            let why = StoreError::Misuse {
                store: format!("source {source}"),
                what,
            };
            return Err(Rejected { op, buf, why });
        };
        store.submit(op, buf, token)?;
        self.in_flight += 1;
        Ok(())
    }
}

/// The second check: the frontend's parser did the first, with the status codes of the command set.
fn check(namespace: &Namespace, io: &Io) -> Result<(), NamespaceError> {
    let nsid = namespace.nsid;
    if io.is_write() && namespace.write_protected && !matches!(io, Io::Flush) {
        return Err(NamespaceError::WriteProtected { nsid });
    }
    let (lba, blocks) = match io {
        Io::Read { lba, blocks } => (*lba, u64::from(*blocks)),
        Io::Write { lba, data, .. } => (
            *lba,
            (data.len() as u64).div_ceil(u64::from(namespace.lba_bytes)),
        ),
        Io::Flush => return Ok(()),
    };
    match lba.checked_add(blocks) {
        Some(end) if end <= namespace.blocks && blocks > 0 => Ok(()),
        end => Err(NamespaceError::OutOfRange {
            nsid,
            lba,
            end: end.unwrap_or(u64::MAX),
            blocks: namespace.blocks,
        }),
    }
}

fn buffer_of(io: Io) -> Option<IoBuf> {
    match io {
        Io::Write { data, .. } => Some(data),
        _ => None,
    }
}

fn raw_work(namespace: &Namespace, io: Io) -> Work {
    let lba_bytes = u64::from(namespace.lba_bytes);
    match io {
        Io::Read { lba, blocks } => {
            let read_bytes = blocks.saturating_mul(namespace.lba_bytes);
            Work::Raw {
                op: Op::Read {
                    offset: lba * lba_bytes,
                },
                buf: None,
                read_bytes,
            }
        }
        Io::Write { lba, data, durable } => Work::Raw {
            op: Op::Write {
                offset: lba * lba_bytes,
                durable,
            },
            buf: Some(data),
            read_bytes: 0,
        },
        Io::Flush => Work::Raw {
            op: Op::Flush,
            buf: None,
            read_bytes: 0,
        },
    }
}

fn submit_raw(
    attached: &mut Attached,
    parts: &mut Parts,
    slot: usize,
    op: Op,
    buf: Option<IoBuf>,
    read_bytes: u32,
    work: &mut Work,
) -> Step {
    let buf = if read_bytes > 0 && buf.is_none() {
        let Some(buf) = parts.answers.alloc(read_bytes as usize) else {
            *work = Work::Raw {
                op,
                buf: None,
                read_bytes,
            };
            return Step::Parked;
        };
        Some(buf)
    } else {
        buf
    };
    let bytes = buf.as_ref().map_or(0, IoBuf::len) as u64;
    match attached.submit(0, op, buf, token_of(slot, 0)) {
        Ok(()) => {
            match op {
                Op::Read { .. } => parts.counters.stored_bytes += bytes,
                _ => parts.counters.written_bytes += bytes,
            }
            Step::Waiting
        }
        Err(Rejected {
            op,
            buf,
            why: StoreError::Busy,
        }) => {
            *work = Work::Raw {
                op,
                buf,
                read_bytes,
            };
            Step::Parked
        }
        Err(Rejected { why, .. }) => Step::Done(Err(NamespaceError::Store {
            nsid: attached.shared.nsid,
            cause: why,
        })),
    }
}

/// The buffer of an operation that moved every byte of it.
pub(crate) fn whole(nsid: u32, completion: Completion) -> Result<Option<IoBuf>, NamespaceError> {
    let got = completion
        .result
        .map_err(|cause| NamespaceError::Store { nsid, cause })?;
    match completion.buf {
        Some(buf) if buf.len() != got as usize => Err(NamespaceError::Short {
            nsid,
            wanted: buf.len(),
            got,
        }),
        buf => Ok(buf),
    }
}

/// A store token names the request and the fetch.
pub(crate) fn token_of(slot: usize, fetch: usize) -> Token {
    debug_assert!(fetch < FETCHES_MAX);
    Token((slot * FETCHES_MAX + fetch) as u64)
}

fn parts_of(token: Token) -> (usize, usize) {
    let value = usize::try_from(token.0).unwrap_or(usize::MAX);
    (value / FETCHES_MAX, value % FETCHES_MAX)
}

/// Why an engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A store gave no handle.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No memory for the pools.
    #[error(transparent)]
    Reactor(#[from] reactor::ReactorError),
}
