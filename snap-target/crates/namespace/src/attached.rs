//! A namespace on one engine: the handles to its stores, and the requests that wait.

use std::collections::VecDeque;
use std::ops::Add;
use std::sync::Arc;

use reactor::Ring;
use reactor::buf::IoBuf;
use store::{Completion, Op, Rejected, SharedStore, Store, StoreError, Terms, Token, WireBytes};
use telemetry::{NamespaceRow, ReactorTelemetry};
use volume::StreamIndex;

use crate::ahead::{AheadOf, AheadWitness, Purpose};
use crate::chain_rows::ChainRows;
use crate::limits::READS_AGAIN_MAX;
use crate::{Backing, Namespace, NamespaceError, NamespaceKey};

/// A namespace and this reactor's handles to its stores, by source.
pub(crate) struct Attached {
    pub(crate) shared: Arc<Namespace>,
    /// What requests name: the mixed namespace that it is a part of, or itself.
    pub(crate) whole: NamespaceKey,
    /// Its first block there.
    pub(crate) first_lba: u64,
    /// Of a mixed namespace: the places of its parts, in their order.
    pub(crate) part_places: Vec<usize>,
    pub(crate) stores: Vec<Box<dyn Store>>,
    /// What of their network traffic is counted.
    wire_counted: WireBytes,
    /// Where it is counted.
    pub(crate) row: Arc<NamespaceRow>,
    /// Its place among the namespaces of this engine.
    pub(crate) place: usize,
    /// What is read ahead in it, if anything.
    pub(crate) ahead: Option<AheadOf>,
    /// Fetches ahead that are under way.
    pub(crate) fetches_ahead: usize,
    /// By stream: where what its chain does is counted.
    chains: Vec<Arc<ChainRows>>,
    pub(crate) in_flight: usize,
    /// A store has taken an operation since they were polled.
    pub(crate) is_unpolled: bool,
    /// Requests that wait. Each namespace has queues of its own: a store that does not answer must not hold up the others.
    pub(crate) parked: Parked,
    /// Bytes of the answers that its requests hold.
    pub(crate) answer_bytes: usize,
    /// A store has work of its own.
    pub(crate) polled_when_idle: bool,
    /// It is one raw store, which has read or written what it takes when it has taken it.
    pub(crate) ends_in_submit: bool,
    /// Segments of a request's data that may lie in memory which others change; 0: none may.
    pub(crate) lent_segments_max: usize,
    /// Writes that were carried out at once are inside of its gate until the next poll.
    pub(crate) is_inside: bool,
    /// Requests that have not been answered.
    pub(crate) requests: usize,
    /// It takes no more of them.
    pub(crate) retired: bool,
    /// Its handles are to close.
    pub(crate) closing: bool,
}

impl Attached {
    /// Opens a handle to every store of a namespace, or of a part of one, from its block `first_lba` on. It is counted with the whole.
    pub(crate) fn new(
        namespace: &Arc<Namespace>,
        whole: &Namespace,
        first_lba: u64,
        ring: &Ring,
        telemetry: &ReactorTelemetry,
        prefetch_bytes: usize,
    ) -> Result<Self, StoreError> {
        let stores = namespace.stores();
        let row = telemetry.namespace(whole.identity.uuid, &whole.name);
        let polled_when_idle = |store: &SharedStore| store.limits().polled_when_idle;
        Ok(Self {
            shared: namespace.clone(),
            whole: whole.key,
            first_lba,
            part_places: Vec::new(),
            place: 0,
            ahead: AheadOf::new(namespace, &row, prefetch_bytes, ring.waker()),
            fetches_ahead: 0,
            chains: chains(namespace, &row),
            row,
            polled_when_idle: stores.iter().any(polled_when_idle),
            ends_in_submit: ends_in_submit(namespace),
            lent_segments_max: lent_segments_max(namespace),
            is_inside: false,
            stores: stores
                .iter()
                .map(|store| store.open_handle(ring))
                .collect::<Result<_, _>>()?,
            wire_counted: WireBytes::default(),
            in_flight: 0,
            is_unpolled: false,
            parked: Parked::default(),
            answer_bytes: 0,
            requests: 0,
            retired: false,
            closing: false,
        })
    }

    /// Who is told what becomes of frames that were fetched ahead.
    pub(crate) fn witness(&self, purpose: Purpose) -> Option<Arc<AheadWitness>> {
        Some(self.ahead.as_ref()?.witness(purpose))
    }

    /// A store has ended an operation.
    pub(crate) fn operation_ended(&mut self, token: Token) {
        if let Some(ahead) = &mut self.ahead
            && let Some((took_ns, was_alone)) = ahead.sample.ended(token)
        {
            ahead.machine.pace.operation(took_ns, was_alone);
        }
        self.in_flight -= 1;
        self.row.store_operations.sub(1);
    }

    /// Counts what crossed the network to and from its stores since this was last done.
    pub(crate) fn count_wire(&mut self) {
        let all = self.stores.iter().map(|store| store.wire());
        let now = all.fold(WireBytes::default(), WireBytes::add);
        let before = std::mem::replace(&mut self.wire_counted, now);
        if now != before {
            let (sent, received) = (now.sent - before.sent, now.received - before.received);
            self.row.store_wire_sent_bytes.add(sent);
            self.row.store_wire_received_bytes.add(received);
        }
    }

    /// Where what the chain of a stream does is counted.
    pub(crate) fn chain(&self, stream: StreamIndex) -> Option<&Arc<ChainRows>> {
        self.chains.get(stream.0 as usize)
    }

    /// Whether a poll of its stores may bring something.
    pub(crate) fn is_to_be_polled(&self) -> bool {
        self.in_flight > 0 || self.polled_when_idle || self.closing
    }

    /// A request has failed: counts it where damage is why.
    pub(crate) fn note_damage(&self, error: &NamespaceError) {
        if error.is_damage() {
            self.row.damaged_reads.add(1);
            self.shared.damage.note(error, self.shared.lba_bytes);
        }
    }

    /// Whether it was asked to close, and has.
    pub(crate) fn is_closed(&self) -> bool {
        self.closing
            && self.requests == 0
            && self.in_flight == 0
            && self.stores.iter().all(|store| store.is_closed())
    }

    /// The bytes of a source where they lie, if its store keeps them in memory.
    pub(crate) fn lease(&mut self, source: usize, offset: u64, len: u32) -> Option<IoBuf> {
        self.stores.get_mut(source)?.lease(offset, len)
    }

    /// Asks the store of a source to end an operation early.
    pub(crate) fn cancel(&mut self, source: usize, token: Token) {
        if let Some(store) = self.stores.get_mut(source) {
            store.cancel(token);
        }
    }

    /// What was read of a source is not what was written: whether it is to be read once more, after so many times. Bytes may have been hit on their way,
    /// so it is where there is no other copy, too; and once more than there are, since reads that go wrong together may turn to the same one.
    pub(crate) fn reads_again(&mut self, source: usize, offset: u64, len: u64, times: u32) -> bool {
        let Some(store) = self.stores.get_mut(source) else {
            return false;
        };
        let copies = store.doubt(offset, len);
        let again = times < copies.saturating_add(1).min(READS_AGAIN_MAX);
        self.row.reads_again.add(u64::from(again));
        again
    }

    /// Tells the store of a source that somebody waits for what it reads ahead.
    pub(crate) fn hurry(&mut self, source: usize, token: Token) {
        if let Some(store) = self.stores.get_mut(source) {
            store.hurry(token);
            self.is_unpolled = true;
        }
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
        terms: Terms,
    ) -> Result<(), Rejected> {
        let Some(store) = self.stores.get_mut(source) else {
            let what = "the volume names a source that was not opened";
            let why = StoreError::Misuse {
                store: format!("source {source}"),
                what,
            };
            return Err(Rejected { op, buf, why });
        };
        store.submit(op, buf, token, terms)?;
        if let Some(ahead) = &mut self.ahead {
            ahead.sample.begins(&op, token, self.in_flight == 0);
        }
        self.in_flight += 1;
        self.is_unpolled = true;
        self.row.store_operations.add(1);
        Ok(())
    }
}

/// Requests that wait, in their order: in two queues, because what those at the head of the one wait for may be what those in the other hold.
#[derive(Default)]
pub(crate) struct Parked {
    /// For a place in a store's queue, for staging, or for others to let a write pass. They need no memory of answers any more.
    held_up: VecDeque<usize>,
    /// For memory of answers.
    starved: VecDeque<usize>,
    /// Their namespace is one of those that are looked at.
    pub(crate) is_looked_at: bool,
}

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    Others,
    Memory,
}

impl Parked {
    /// In the order in which they are looked at: those who hold memory first.
    pub(crate) const BOTH: [WaitsFor; 2] = [WaitsFor::Others, WaitsFor::Memory];

    pub(crate) fn queue(&mut self, of: WaitsFor) -> &mut VecDeque<usize> {
        match of {
            WaitsFor::Others => &mut self.held_up,
            WaitsFor::Memory => &mut self.starved,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held_up.is_empty() && self.starved.is_empty()
    }

    /// Takes a request out; whether it was there.
    pub(crate) fn remove(&mut self, slot: usize) -> bool {
        Self::BOTH.into_iter().any(|of| {
            let queue = self.queue(of);
            let at = queue.iter().position(|parked| *parked == slot);
            at.and_then(|at| queue.remove(at)).is_some()
        })
    }
}

fn ends_in_submit(namespace: &Namespace) -> bool {
    matches!(&namespace.backing, Backing::Raw(store) if store.limits().ends_in_submit)
}

/// Of a raw namespace whose store has read or written what it takes when it has taken it, and so keeps nothing of a host's memory.
fn lent_segments_max(namespace: &Namespace) -> usize {
    match &namespace.backing {
        Backing::Raw(store) if ends_in_submit(namespace) && store.limits().guest_memory => {
            store.limits().segments_max as usize
        }
        _ => 0,
    }
}

fn chains(namespace: &Namespace, row: &NamespaceRow) -> Vec<Arc<ChainRows>> {
    match &namespace.backing {
        Backing::Raw(_) | Backing::Mixed(_) => Vec::new(),
        Backing::View { volume, .. } => {
            let streams = volume.streams().iter();
            streams
                .map(|stream| ChainRows::of(&stream.chain, row))
                .collect()
        }
    }
}

/// The buffer of an operation that moved every byte of it.
pub(crate) fn whole(nsid: u32, completion: Completion) -> Result<Option<IoBuf>, NamespaceError> {
    match completion.buf {
        Some(buf) => moved(nsid, buf.len(), completion.result).map(|()| Some(buf)),
        None => match completion.result {
            Ok(_) => Ok(None),
            Err(cause) => Err(NamespaceError::Store { nsid, cause }),
        },
    }
}

/// Whether an operation moved every byte that was wanted.
pub(crate) fn moved(
    nsid: u32,
    wanted: usize,
    result: Result<u32, StoreError>,
) -> Result<(), NamespaceError> {
    match result {
        Ok(got) if wanted == got as usize => Ok(()),
        Ok(got) => Err(NamespaceError::Short { nsid, wanted, got }),
        Err(cause) => Err(NamespaceError::Store { nsid, cause }),
    }
}
