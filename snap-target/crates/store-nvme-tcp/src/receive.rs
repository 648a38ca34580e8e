//! What comes in: one receive at a time, into the place of the payload that is next and, behind it, into the landing.

use nvme::queue::Slot;
use nvme::tcp::host::{Connection, Want};
use reactor::buf::IoBuf;
use reactor::{Fd, OpId, Owner, ReactorError};
use store_nvme::commands::Commands;

use crate::digest;
use crate::limits::{DIRECT_BYTES_MIN, HEADERS_ONLY_BYTES, LANDING_BYTES};

/// The receive that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    pub(crate) op: OpId,
    /// So many bytes of the slot's payload go to their place before the landing takes any.
    place: Option<(Slot, u32)>,
}

impl Armed {
    /// Whose buffer it fills.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.place.map(|(slot, _)| slot)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inflow {
    landing: IoBuf,
    /// How much of the landing the next receive may fill.
    beyond: usize,
    armed: Option<Armed>,
}

impl Inflow {
    pub(crate) fn new() -> Result<Self, ReactorError> {
        Ok(Self {
            landing: IoBuf::heap(LANDING_BYTES)?,
            beyond: LANDING_BYTES,
            armed: None,
        })
    }

    /// The receive that is under way.
    pub(crate) fn armed(&self) -> Option<Armed> {
        self.armed
    }

    /// Arms a receive of what the machine wants next, unless one is under way. False where the ring has no room for it now.
    pub(crate) fn arm(
        &mut self,
        machine: &Connection,
        commands: &Commands,
        (owner, socket, tag): (&Owner, &Fd, u64),
    ) -> bool {
        if self.armed.is_some() {
            return true;
        }
        let mut place = None;
        let mut buf = IoBuf::empty();
        let mut beyond = self.beyond;
        match machine.want() {
            Want::Closed => return true,
            Want::Header(_) => {}
            Want::Discard(_) => beyond = LANDING_BYTES,
            Want::Payload {
                slot, offset, len, ..
            } => {
                if let Some(of_command) = commands.buf(slot) {
                    let start = offset as usize;
                    buf = of_command.slice(start..start + len as usize);
                    place = Some((slot, len));
                }
            }
        }
        buf.push_slice(&self.landing, 0..beyond);
        self.armed = owner
            .recv_some(socket, buf, tag)
            .ok()
            .map(|op| Armed { op, place });
        self.armed.is_some()
    }

    /// After a PDU with `len` bytes of data more of that size are expected.
    fn expect(&mut self, len: u32) {
        self.beyond = if len >= DIRECT_BYTES_MIN {
            HEADERS_ONLY_BYTES
        } else {
            LANDING_BYTES
        };
    }

    /// The receive ended, whatever it brought: nothing fills its slot's buffer any more.
    pub(crate) fn ended(&mut self) -> Option<Armed> {
        self.armed.take()
    }

    /// Takes in `count` bytes that a receive brought.
    pub(crate) fn take(
        &mut self,
        armed: Armed,
        count: usize,
        machine: &mut Connection,
        commands: &mut Commands,
    ) {
        let in_place = armed.place.map_or(0, |(_, len)| count.min(len as usize));
        if in_place > 0 {
            arrived(machine, commands, in_place);
        }
        let Some(landing) = self.landing.exclusive() else {
            // Only a receive has another view of it, and that has ended.
            return;
        };
        let mut bytes = landing.get(..count - in_place).unwrap_or(&[]);
        let mut of_next = None;
        while !bytes.is_empty() {
            let used = match machine.want() {
                Want::Header(_) => {
                    let used = machine.headers(bytes);
                    if let Want::Payload { len, .. } | Want::Discard(len) = machine.want() {
                        of_next = Some(len);
                    }
                    used
                }
                Want::Payload {
                    slot, offset, len, ..
                } => {
                    let used = bytes.len().min(len as usize);
                    let there = commands.get_mut(slot).and_then(|it| it.buf.as_mut());
                    if let (Some(buf), Some(part)) = (there, bytes.get(..used)) {
                        buf.copy_from(offset as usize, part);
                    }
                    arrived(machine, commands, used);
                    used
                }
                Want::Discard(len) => {
                    let used = bytes.len().min(len as usize);
                    arrived(machine, commands, used);
                    used
                }
                // Nothing is interpreted after the end.
                Want::Closed => return,
            };
            bytes = bytes.get(used..).unwrap_or(&[]);
        }
        if let Some(len) = of_next {
            self.expect(len);
        }
    }
}

/// So many bytes of the payload that the machine wants are in their place, or were dropped where nobody wants them any more.
fn arrived(machine: &mut Connection, commands: &Commands, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let crc = match machine.want() {
        Want::Payload {
            slot,
            offset,
            len,
            digest_from: Some(start),
        } if count == len => commands.buf(slot).map_or(0, |buf| {
            digest::of_buf(buf, start as usize..(offset + len) as usize)
        }),
        _ => 0,
    };
    machine.payload(count, crc);
}
