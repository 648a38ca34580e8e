//! The data of a queue's commands: where they are in guest memory, and how they get there.

use guest_memory::{Fault, Way, from_guest, to_guest};
use nvme::queue::{Completion, Slot};
use nvme_spec::{Sqe, Status};
use reactor::buf::IoBuf;

use super::Queue;
use super::moves::Move;
use crate::walk::{PART_BYTES_MAX, Walk};

/// Why bytes are not moved at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The command ends so.
    Failed(Status),
    /// Some of them, or some of what says where they are, go by messages.
    Apart,
}

impl From<Status> for Why {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

impl From<Fault> for Why {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotShared { .. } => Self::Apart,
            _ => Self::Failed(unreachable_data(fault)),
        }
    }
}

impl Queue {
    /// Checks where the guest wants a read's data.
    pub(crate) fn place(&mut self, slot: Slot, bytes: u32) -> Result<(), Status> {
        self.refresh();
        match self.find_place(slot, bytes) {
            Ok(()) => {
                self.placed = Some(slot);
                Ok(())
            }
            // What goes by messages is looked at when the data are there.
            Err(Why::Apart) => Ok(()),
            Err(Why::Failed(status)) => Err(status),
        }
    }

    fn find_place(&mut self, slot: Slot, bytes: u32) -> Result<(), Why> {
        self.forget_place();
        self.gather(slot, bytes)?;
        let (place, pieces) = (&mut self.place, &self.pieces);
        Ok(self.sight.append(place, pieces, Way::ToGuest)?)
    }

    /// Nothing of the guest's memory is kept for a read any more.
    pub(super) fn forget_place(&mut self) {
        self.placed = None;
        self.place.clear();
    }

    /// Copies a read's data to where it was placed, where that was in this turn and windows are the same: a store that answers at once has it looked up once.
    pub(crate) fn deliver(&mut self, slot: Slot, data: &IoBuf) -> bool {
        self.refresh();
        let is_placed = self.placed.take() == Some(slot) && self.place.len() == data.len();
        let is_there = is_placed && to_guest(&self.place, data) == data.len();
        if is_there {
            self.count_sent(data.len());
        }
        is_there
    }

    /// Where a read's data are wanted, from when it was placed until anything else is done with the queue.
    pub(crate) fn placed(&self, slot: Slot) -> Option<&IoBuf> {
        (self.placed == Some(slot)).then_some(&self.place)
    }

    /// They are there.
    pub(crate) fn delivered(&mut self, bytes: u32) {
        self.placed = None;
        self.moved_bytes += u64::from(bytes);
        self.wire.sent += u64::from(bytes);
    }

    /// A write's data where they lie.
    pub(crate) fn lend(&mut self, slot: Slot, bytes: u32, into: &mut IoBuf) -> bool {
        self.refresh();
        let gathered = self.gather(slot, bytes).is_ok();
        let way = Way::FromGuest;
        let is_lent = gathered && self.sight.append(into, &self.pieces, way).is_ok();
        if is_lent {
            self.wire.received += u64::from(bytes);
            self.moved_bytes += u64::from(bytes);
        }
        is_lent
    }

    /// Copies a command's data out of guest memory, into the slot's buffer; or begins to, where it takes messages.
    pub(crate) fn request_data(&mut self, slot: Slot) -> Result<(), Status> {
        self.refresh();
        let Some(buffer) = self.take_buffer(slot) else {
            return Err(Status::INTERNAL_ERROR);
        };
        let bytes = u32::try_from(buffer.len()).map_err(|_| Status::INTERNAL_ERROR)?;
        match self.view(slot, bytes, Way::FromGuest) {
            Ok(view) if from_guest(&buffer, &view) == buffer.len() => {}
            Ok(_) => return Err(Status::INTERNAL_ERROR),
            Err(Why::Failed(status)) => return Err(status),
            Err(Why::Apart) => return self.begin_move(slot, Way::FromGuest, buffer, None),
        }
        // What lay in a page that could not be had is not what the guest wrote.
        if self.sight.windows().loss().has_happened() {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        self.received(slot, buffer);
        Ok(())
    }

    /// The data are in the buffer.
    pub(super) fn received(&mut self, slot: Slot, buffer: IoBuf) {
        self.wire.received += buffer.len() as u64;
        self.wire.copied += buffer.len() as u64;
        self.moved_bytes += buffer.len() as u64;
        self.set_buffer(slot, buffer);
        self.events
            .push_back(frontend_nvme::link::LinkEvent::DataReady { slot });
    }

    /// Copies a command's data into guest memory; none where it takes messages, and has begun.
    pub(super) fn hand_over(
        &mut self,
        slot: Slot,
        data: IoBuf,
        completion: Completion,
    ) -> Option<Completion> {
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match self.view(slot, bytes, Way::ToGuest) {
            Ok(view) if to_guest(&view, &data) == data.len() => {
                self.count_sent(data.len());
                Some(completion)
            }
            Ok(_) => Some(Completion::of(Status::INTERNAL_ERROR)),
            Err(Why::Failed(status)) => Some(Completion::of(status)),
            Err(Why::Apart) => {
                let begun = self.begin_move(slot, Way::ToGuest, data, Some(completion));
                begun.err().map(Completion::of)
            }
        }
    }

    pub(super) fn count_sent(&mut self, bytes: usize) {
        self.moved_bytes += bytes as u64;
        self.wire.sent += bytes as u64;
        self.wire.copied += bytes as u64;
    }

    fn begin_move(
        &mut self,
        slot: Slot,
        way: Way,
        buffer: IoBuf,
        completion: Option<Completion>,
    ) -> Result<(), Status> {
        let moving = Move::new(self.command(slot), way, buffer, completion)?;
        self.moves.insert(slot, moving);
        self.advance(slot);
        Ok(())
    }

    /// The guest memory that a command's PRPs or its SGL name.
    fn view(&mut self, slot: Slot, bytes: u32, way: Way) -> Result<IoBuf, Why> {
        let mut view = IoBuf::empty();
        self.gather(slot, bytes)?;
        self.sight.append(&mut view, &self.pieces, way)?;
        Ok(view)
    }

    /// Walks a command's PRPs or its SGL.
    fn gather(&mut self, slot: Slot, bytes: u32) -> Result<(), Why> {
        let entry = self.entries.get(slot.index());
        let sqe = entry.map_or(&Sqe::ZERO, |entry| &entry.sqe);
        let walk = Walk::new(sqe, bytes, &mut self.pieces)?;
        match walk.wants() {
            Some(_) => self.follow(walk),
            None => Ok(()),
        }
    }

    /// Lists and segments are copied out once. Apart, so that a command without them clears no room for them.
    #[inline(never)]
    fn follow(&mut self, mut walk: Walk) -> Result<(), Why> {
        let mut page = [0; PART_BYTES_MAX];
        while let Some((address, bytes)) = walk.wants() {
            let part = page.get_mut(..bytes).ok_or(Status::INTERNAL_ERROR)?;
            self.sight.windows().read(address, part)?;
            walk.take(part, &mut self.pieces)?;
        }
        Ok(())
    }
}

/// Base, "Data Transfer Error": the place that a command names cannot be reached.
pub(super) fn unreachable_data(fault: Fault) -> Status {
    tracing::debug!(%fault, "the data of a command cannot be reached");
    Status::DATA_TRANSFER_ERROR
}
