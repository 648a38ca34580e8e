//! One connection of a monitor: what it says, and what becomes of it. No socket is touched here.

mod config;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use guest_memory::Loss;
use reactor::{Asked, Silent, peer_event};
use vhost_user::features::{
    F_PROTOCOL_FEATURES, PROTOCOL_F_BACKEND_REQ, PROTOCOL_F_CONFIG, PROTOCOL_F_CONFIGURE_MEM_SLOTS,
    PROTOCOL_F_INFLIGHT_SHMFD, PROTOCOL_F_MQ, PROTOCOL_F_REPLY_ACK, PROTOCOL_F_RESET_DEVICE,
};
use vhost_user::{BackendChannel, Inflight, Reply, Request, VringAddress, VringFile, VringState};
use virtio_ring::{Format, Layout, Options, Position};

use crate::device::Shown;
use crate::error::SessionError;
use crate::features::{self, F_EVENT_IDX, F_INDIRECT_DESC, F_RING_PACKED, F_VERSION_1};
use crate::inflight::{Records, Told};
use crate::limits::{CUT_REST, DRAIN_PATIENCE, MEMORY_REGIONS_MAX, QUEUES_MAX};
use crate::memory::GuestMap;
use crate::order::{Door, Ending, Order, QueueId, Start};
use config::Cache;

/// What is offered of the protocol.
const PROTOCOL_FEATURES: u64 = PROTOCOL_F_MQ
    | PROTOCOL_F_REPLY_ACK
    | PROTOCOL_F_BACKEND_REQ
    | PROTOCOL_F_CONFIG
    | PROTOCOL_F_INFLIGHT_SHMFD
    | PROTOCOL_F_RESET_DEVICE
    | PROTOCOL_F_CONFIGURE_MEM_SLOTS;

/// See the module. Dropped, its queues are cut off.
#[derive(Debug)]
pub(crate) struct Session {
    shown: Arc<Shown>,
    doors: Vec<Door>,
    features: u64,
    protocol_features: u64,
    memory: GuestMap,
    rings: Vec<RingState>,
    records: Option<Records>,
    cache: Cache,
    /// The record of what is in flight is another disk's: whoever served the driver before told it of that one.
    has_foreign_record: bool,
    /// Nothing is begun before.
    holds_until: Option<Instant>,
}

/// What becomes of a message.
#[derive(Debug)]
pub(crate) enum Handled {
    Done,
    Reply(Reply),
    /// Not done, for this reason; the connection goes on.
    Refused(&'static str),
}

/// A queue, as far as it was described.
#[derive(Debug, Default)]
struct RingState {
    size: u16,
    /// Its areas, in the guest's addresses.
    areas: Option<(u64, u64, u64)>,
    base: u32,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    enabled: bool,
    running: Option<QueueId>,
}

impl Session {
    /// `loss` is told where its guest's memory is lost.
    pub(crate) fn new(shown: Arc<Shown>, doors: Vec<Door>, loss: Arc<Loss>) -> Self {
        Self {
            shown,
            doors,
            features: 0,
            protocol_features: 0,
            memory: GuestMap::of_client(loss),
            rings: (0..QUEUES_MAX).map(|_| RingState::default()).collect(),
            records: None,
            cache: Cache::Unknown,
            has_foreign_record: false,
            holds_until: None,
        }
    }

    /// Whether a request without a reply of its own is to be acknowledged.
    pub(crate) fn acknowledges(&self) -> bool {
        self.has(PROTOCOL_F_REPLY_ACK).is_ok()
    }

    /// Does what is asked.
    ///
    /// # Errors
    /// Why not: the connection ends.
    pub(crate) fn handle(&mut self, request: Request) -> Result<Handled, SessionError> {
        let number = |value| Ok(Handled::Reply(Reply::U64(value)));
        match request {
            Request::GetFeatures => return number(self.offered()),
            Request::GetProtocolFeatures => return number(PROTOCOL_FEATURES),
            Request::GetQueueNum => return number(QUEUES_MAX.into()),
            Request::GetMaxMemSlots => return number(MEMORY_REGIONS_MAX as u64),
            Request::GetVringBase { index } => return self.vring_base(index).map(Handled::Reply),
            Request::GetConfig(area) => return Ok(Handled::Reply(self.config(area))),
            Request::GetInflightFd(asked) => return self.make_records(asked).map(Handled::Reply),
            Request::SetOwner => {}
            Request::ResetOwner | Request::ResetDevice => self.reset()?,
            Request::SetFeatures(features) => self.set_features(features)?,
            Request::SetProtocolFeatures(features) => self.set_protocol_features(features)?,
            Request::SetMemTable(regions) => self.change_memory(self.memory.of(&regions)?)?,
            Request::AddMemReg(region, file) => {
                self.has(PROTOCOL_F_CONFIGURE_MEM_SLOTS)?;
                self.change_memory(self.memory.with(region, &file)?)?;
            }
            Request::RemMemReg(region) => {
                self.has(PROTOCOL_F_CONFIGURE_MEM_SLOTS)?;
                self.change_memory(self.memory.without(&region)?)?;
            }
            Request::SetVringNum(state) => self.set_size(state)?,
            Request::SetVringAddr(address) => self.set_areas(address)?,
            Request::SetVringBase(VringState { index, value }) => {
                self.stopped(index, "its base changes")?.base = value;
            }
            Request::SetVringKick(file) => self.set_kick(file)?,
            Request::SetVringCall(file) => self.set_call(file)?,
            Request::SetVringErr(VringFile { index, file }) => {
                checked(index, file.as_ref())?;
                self.ring(index)?.error = file;
            }
            Request::SetVringEnable { index, enable } => self.enable(index, enable)?,
            Request::SetBackendReqFd(socket) => {
                self.has(PROTOCOL_F_BACKEND_REQ)?;
                self.shown.set_channel(Some(BackendChannel::new(socket)));
            }
            Request::SetConfig(area, bytes) => return self.set_config(area, &bytes),
            Request::SetInflightFd(about, file) => {
                self.has(PROTOCOL_F_INFLIGHT_SHMFD)?;
                self.none_runs()?;
                let loss = self.memory.loss();
                self.take_up(Records::take_up(about, &file, self.format(), loss)?);
            }
        }
        Ok(Handled::Done)
    }

    /// Ends all queues, however many run: each is told before the first is waited for.
    pub(crate) fn end_all(&mut self, ending: Ending) -> Result<(), SessionError> {
        let indices = 0..u32::from(QUEUES_MAX);
        let begun: Vec<Result<_, SessionError>> = indices
            .map(|index| Ok((index, self.begin_stop(index, ending)?)))
            .collect();
        let ended = begun.into_iter().map(|begun| match begun? {
            (index, Some(stopping)) => self.stopped_at(index, stopping),
            (_, None) => Ok(()),
        });
        ended.fold(Ok(()), Result::and)
    }

    fn offered(&self) -> u64 {
        features::offered(&self.shown.disk()) | F_PROTOCOL_FEATURES
    }

    fn set_features(&mut self, features: u64) -> Result<(), SessionError> {
        let unknown = features::unknown(features);
        if unknown != 0 {
            return Err(SessionError::Features(unknown));
        }
        if features != self.features {
            // QEMU sets the same again while queues run.
            self.none_runs()
                .map_err(|_| SessionError::FeaturesRunning)?;
            if (features ^ self.features) & F_RING_PACKED != 0 {
                // A record of rings of the other format.
                self.records = None;
            }
        }
        self.features = features;
        let missing = self.not_offered();
        if missing != 0 {
            self.complain_of_another_disk(&features::feature_names(missing));
        }
        Ok(())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<(), SessionError> {
        let unknown = features & !PROTOCOL_FEATURES;
        if unknown != 0 {
            return Err(SessionError::ProtocolFeatures(unknown));
        }
        self.protocol_features = features;
        Ok(())
    }

    fn has(&self, bit: u64) -> Result<(), SessionError> {
        match self.protocol_features & bit {
            0 => Err(SessionError::NotNegotiated(bit)),
            _ => Ok(()),
        }
    }

    fn format(&self) -> Format {
        match self.features & F_RING_PACKED {
            0 => Format::Split,
            _ => Format::Packed,
        }
    }

    fn reset(&mut self) -> Result<(), SessionError> {
        self.end_all(Ending::Drained)?;
        for ring in &mut self.rings {
            *ring = RingState::default();
        }
        self.features = 0;
        self.records = None;
        self.has_foreign_record = false;
        Ok(())
    }

    fn make_records(&mut self, asked: Inflight) -> Result<Reply, SessionError> {
        self.has(PROTOCOL_F_INFLIGHT_SHMFD)?;
        self.none_runs()?;
        let told = Told {
            disk: self.shown.disk().identity(),
            writeback: self.cache == Cache::WritesBack,
        };
        let (records, file) = Records::create(asked, self.format(), told, self.memory.loss())?;
        let reply = Reply::Inflight(records.about, file);
        self.records = Some(records);
        // The driver begins anew.
        self.has_foreign_record = false;
        self.holds_until = None;
        Ok(reply)
    }

    /// What the monitor kept, and what that says of the driver.
    fn take_up(&mut self, records: Records) {
        if let Some(told) = records.told() {
            if told.disk != self.shown.disk().identity() {
                self.complain_of_another_disk("the record of what is in flight");
                self.has_foreign_record = true;
            }
            self.cache = match told.writeback {
                true => Cache::WritesBack,
                false => Cache::WritesThrough,
            };
        }
        // What was in flight is done again behind itself, and what comes later does not come before it.
        let waits = records.has_in_flight(self.format());
        self.holds_until = self.shown.lingers_until().filter(|_| waits);
        if self.holds_until.is_some() {
            tracing::info!(
                disk = self.shown.disk().name,
                "writes of a daemon that ended may still land: its guest's requests wait until they cannot"
            );
        }
        self.records = Some(records);
    }

    /// What the driver uses and this disk does not offer.
    fn not_offered(&self) -> u64 {
        self.features & !self.offered()
    }

    /// Whether the driver knows another disk, whose requests it may still have in flight.
    fn is_foreign(&self) -> bool {
        self.has_foreign_record || self.not_offered() != 0
    }

    fn complain_of_another_disk(&self, says: &str) {
        tracing::error!(
            disk = self.shown.disk().name,
            says,
            "a guest's driver knows another disk than this: all its requests fail until the guest is started anew, or the disk that it knows is served here"
        );
    }
}

/// Queues.
impl Session {
    fn ring(&mut self, index: u32) -> Result<&mut RingState, SessionError> {
        let none = SessionError::NoQueue {
            index,
            queues: QUEUES_MAX,
        };
        let ring = self.rings.get_mut(index as usize);
        ring.ok_or(none)
    }

    /// A queue that does not run.
    fn stopped(&mut self, index: u32, what: &'static str) -> Result<&mut RingState, SessionError> {
        let ring = self.ring(index)?;
        match ring.running {
            None => Ok(ring),
            Some(_) => Err(SessionError::Running { index, what }),
        }
    }

    fn none_runs(&self) -> Result<(), SessionError> {
        let running = self.rings.iter().position(|ring| ring.running.is_some());
        let what = "records of what is in flight change";
        match running.and_then(|index| u32::try_from(index).ok()) {
            Some(index) => Err(SessionError::Running { index, what }),
            None => Ok(()),
        }
    }

    fn set_size(&mut self, VringState { index, value }: VringState) -> Result<(), SessionError> {
        let size = self.format().check_size(value);
        let size = size.map_err(|source| SessionError::Ring { index, source })?;
        self.stopped(index, "its size changes")?.size = size;
        Ok(())
    }

    fn set_areas(&mut self, address: VringAddress) -> Result<(), SessionError> {
        let VringAddress { index, flags, .. } = address;
        if flags != 0 {
            return Err(SessionError::Log { index });
        }
        let of = |area, address| {
            let found = self.memory.guest_address(address);
            found.ok_or(SessionError::NoArea {
                index,
                area,
                address,
            })
        };
        let areas = (
            of("descriptor", address.descriptors)?,
            of("driver", address.driver)?,
            of("device", address.device)?,
        );
        self.stopped(index, "its addresses change")?.areas = Some(areas);
        Ok(())
    }

    fn set_kick(&mut self, VringFile { index, file }: VringFile) -> Result<(), SessionError> {
        let file = file.ok_or(SessionError::NoEvent { index })?;
        checked(index, Some(&file))?;
        self.stopped(index, "its kick changes")?.kick = Some(file);
        self.start_if_ready(index)
    }

    fn set_call(&mut self, VringFile { index, file }: VringFile) -> Result<(), SessionError> {
        checked(index, file.as_ref())?;
        let for_queue = file.as_ref().map(duplicate).transpose()?;
        let ring = self.ring(index)?;
        ring.call = file;
        match ring.running {
            Some(id) => Ok(self.door(index)?.0.send(Order::Call(id, for_queue))?),
            None => Ok(()),
        }
    }

    fn enable(&mut self, index: u32, enable: bool) -> Result<(), SessionError> {
        if self.features & F_PROTOCOL_FEATURES == 0 {
            return Err(SessionError::NotNegotiated(F_PROTOCOL_FEATURES));
        }
        self.ring(index)?.enabled = enable;
        match enable {
            true => self.start_if_ready(index),
            false => self.stop(index, Ending::Drained),
        }
    }

    /// Stops a queue, and says where it would go on.
    fn vring_base(&mut self, index: u32) -> Result<Reply, SessionError> {
        self.stop(index, Ending::Drained)?;
        let ring = self.ring(index)?;
        ring.kick = None;
        let value = ring.base;
        Ok(Reply::Vring(VringState { index, value }))
    }

    fn start_if_ready(&mut self, index: u32) -> Result<(), SessionError> {
        let (format, features) = (self.format(), self.features);
        let without_enabling = features & F_PROTOCOL_FEATURES == 0;
        let ring = self.ring(index)?;
        if ring.running.is_some() || !(ring.enabled || without_enabling) {
            return Ok(());
        }
        let (size, base) = (ring.size, ring.base);
        let (Some((descriptors, driver, device)), Some(kick)) = (ring.areas, &ring.kick) else {
            return Ok(());
        };
        let id = QueueId::next();
        let (kick, call, error) = (
            duplicate(kick)?,
            ring.call.as_ref().map(duplicate).transpose()?,
            ring.error.as_ref().map(duplicate).transpose()?,
        );
        if features & F_VERSION_1 == 0 {
            tracing::debug!(queue = index, "the driver is older than virtio 1.0");
        }
        let records = self.records.as_ref();
        let record = records
            .map(|records| records.of(index, format, size))
            .transpose()?;
        let disk = self.shown.disk();
        let start = Start {
            id,
            name: format!("{}/{index}", disk.name),
            layout: Layout {
                format,
                size,
                descriptors,
                driver,
                device,
            },
            options: Options {
                indirect: features & F_INDIRECT_DESC != 0,
                event_index: features & F_EVENT_IDX != 0,
            },
            position: Position(base),
            record,
            windows: self.memory.windows.clone(),
            kick,
            call,
            error,
            writeback: self.writes_back(),
            is_foreign: self.is_foreign(),
            holds_until: self.holds_until,
            disk,
            counters: self.shown.counters.clone(),
        };
        let door = self.door(index)?.clone();
        self.ring(index)?.running = Some(id);
        let started = door.0.ask(|answer| Order::Start(Box::new(start), answer))?;
        started.map_err(|why| SessionError::Event { index, why })?;
        self.shown.add_queue(door, id);
        tracing::info!(queue = index, size, "a queue of a guest runs");
        Ok(())
    }

    /// Stops a queue that runs, when what it has taken has ended.
    fn stop(&mut self, index: u32, ending: Ending) -> Result<(), SessionError> {
        match self.begin_stop(index, ending)? {
            Some(stopping) => self.stopped_at(index, stopping),
            None => Ok(()),
        }
    }

    /// Has a queue stop; none: it does not run.
    fn begin_stop(
        &mut self,
        index: u32,
        ending: Ending,
    ) -> Result<Option<Asked<Option<Position>>>, SessionError> {
        let Some(id) = self.ring(index)?.running else {
            return Ok(None);
        };
        let order = |answer| Order::Stop(id, ending, answer);
        Ok(Some(self.door(index)?.0.begin(order)?))
    }

    /// Waits until it has stopped. One that does not is still known as running, and is cut off with its connection: it tells its guest nothing any more.
    fn stopped_at(
        &mut self,
        index: u32,
        stopping: Asked<Option<Position>>,
    ) -> Result<(), SessionError> {
        let position = stopping.wait()?;
        let ring = self.ring(index)?;
        let ended = ring.running.take();
        if let Some(Position(base)) = position {
            ring.base = base;
        }
        if let Some(id) = ended {
            self.shown.remove_queue(id);
        }
        tracing::info!(queue = index, "a queue of a guest has stopped");
        Ok(())
    }

    /// The reactor of a queue.
    fn door(&self, index: u32) -> Result<&Door, SessionError> {
        let place = index as usize % self.doors.len().max(1);
        self.doors.get(place).ok_or(Silent { seconds: 0 }.into())
    }
}

/// Memory.
impl Session {
    /// Puts a table in force at every queue, and waits until nothing touches what is no longer in it.
    fn change_memory(&mut self, next: GuestMap) -> Result<(), SessionError> {
        let going = self.memory.going(&next);
        self.memory = next;
        for (index, ring) in (0..).zip(&self.rings) {
            let Some(id) = ring.running else {
                continue;
            };
            let windows = self.memory.windows.clone();
            let changed = self
                .door(index)?
                .0
                .ask(|answer| Order::Windows(id, windows, answer))?;
            changed.map_err(|why| SessionError::Event { index, why })?;
        }
        match going.wait(DRAIN_PATIENCE) {
            true => Ok(()),
            false => Err(SessionError::MemoryInUse(DRAIN_PATIENCE.as_secs())),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shown.set_channel(None);
        // Whoever connects next does again what is in flight, behind it, however long that takes.
        while let Err(error) = self.end_all(Ending::Cut) {
            tracing::error!(%error, "a connection has ended, and requests of its guest are still under way: the next one waits for them");
            if self.shown.is_ending() {
                break;
            }
            // It may have failed at once.
            std::thread::sleep(CUT_REST);
        }
        for id in self.rings.iter().filter_map(|ring| ring.running) {
            self.shown.remove_queue(id);
        }
    }
}

fn checked(index: u32, file: Option<&OwnedFd>) -> Result<(), SessionError> {
    let checked = file.map_or(Ok(()), peer_event::check);
    checked.map_err(|why| SessionError::Event {
        index,
        why: why.to_string(),
    })
}

fn duplicate(file: &OwnedFd) -> Result<OwnedFd, SessionError> {
    file.try_clone().map_err(|source| SessionError::System {
        what: "duplicating a file descriptor",
        source,
    })
}
