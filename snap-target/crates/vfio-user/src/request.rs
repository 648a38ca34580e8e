//! From a command's bytes to an [`Event`]. What a description or a limit forbids never becomes one.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::device::Device;
use crate::errno::Errno;
use crate::event::{Echo, Event, IrqAction, IrqData, SetIrqs, Ticket, Unmap, WriteData};
use crate::limits::DATA_BYTES_MAX;
use crate::wire::{self, dma_flags, irq_set_flags, unmap_flags};

/// Reads the fixed part of a body; what follows it is returned as well.
fn part<T: FromBytes + KnownLayout + Immutable + Unaligned + Copy>(
    body: &[u8],
) -> Result<(T, &[u8]), Errno> {
    T::read_from_prefix(body).map_err(|_| Errno::EINVAL)
}

/// The same of a body that has nothing else.
pub(crate) fn whole<T: FromBytes + KnownLayout + Immutable + Unaligned + Copy>(
    body: &[u8],
) -> Result<T, Errno> {
    match part(body)? {
        (it, []) => Ok(it),
        _ => Err(Errno::EINVAL),
    }
}

/// The same of a body that may go on with room for its reply, as SPDK's client sends it.
pub(crate) fn beginning<T: FromBytes + KnownLayout + Immutable + Unaligned + Copy>(
    body: &[u8],
) -> Result<T, Errno> {
    part(body).map(|(it, _room)| it)
}

pub(crate) fn dma_map<F>(
    ticket: Ticket,
    body: &[u8],
    fds: Vec<F>,
) -> Result<Event<F>, (Ticket, Errno)> {
    let parsed = whole::<wire::DmaMap>(body).and_then(|map| check_map(&map, fds.len()));
    match parsed {
        Ok(map) => Ok(Event::DmaMap {
            ticket,
            address: map.address.get(),
            size: map.size.get(),
            offset: map.offset.get(),
            access: (
                map.flags.get() & dma_flags::READ != 0,
                map.flags.get() & dma_flags::WRITE != 0,
            ),
            fd: fds.into_iter().next(),
        }),
        Err(errno) => Err((ticket, errno)),
    }
}

fn check_map(map: &wire::DmaMap, fds: usize) -> Result<wire::DmaMap, Errno> {
    let (address, size) = (map.address.get(), map.size.get());
    // The last byte may be the address space's last.
    let fits = size > 0 && address.checked_add(size - 1).is_some();
    let file_fits = map.offset.get().checked_add(size).is_some();
    let known = dma_flags::READ | dma_flags::WRITE;
    let flags = map.flags.get();
    let flags_fit = flags & !known == 0 && flags & known != 0;
    if !fits || !file_fits || !flags_fit || fds > 1 {
        return Err(Errno::EINVAL);
    }
    Ok(*map)
}

pub(crate) fn dma_unmap<F>(mut ticket: Ticket, body: &[u8]) -> Result<Event<F>, (Ticket, Errno)> {
    match whole::<wire::DmaUnmap>(body).and_then(|asked| Ok((asked, check_unmap(&asked)?))) {
        Ok((asked, unmap)) => {
            ticket.echo = Echo::Unmap(asked);
            Ok(Event::DmaUnmap { ticket, unmap })
        }
        Err(errno) => Err((ticket, errno)),
    }
}

fn check_unmap(asked: &wire::DmaUnmap) -> Result<Unmap, Errno> {
    let (address, size) = (asked.address.get(), asked.size.get());
    match asked.flags.get() {
        0 => Ok(Unmap::Window { address, size }),
        unmap_flags::ALL if address == 0 && size == 0 => Ok(Unmap::All),
        unmap_flags::GET_DIRTY_BITMAP => Err(Errno::ENOTSUP),
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) fn set_irqs<F>(
    ticket: Ticket,
    body: &[u8],
    fds: Vec<F>,
    device: &Device,
) -> Result<Event<F>, (Ticket, Errno)> {
    match parse_irqs(body, fds, device) {
        Ok(set) => Ok(Event::SetIrqs { ticket, set }),
        Err(errno) => Err((ticket, errno)),
    }
}

fn parse_irqs<F>(body: &[u8], fds: Vec<F>, device: &Device) -> Result<SetIrqs<F>, Errno> {
    let (asked, bytes) = part::<wire::SetIrqs>(body)?;
    let (index, start, count) = (asked.index.get(), asked.start.get(), asked.count.get());
    let interrupt = device.interrupt(index)?;
    let flags = asked.flags.get();
    let end = start.checked_add(count);
    if flags & !irq_set_flags::ALL != 0 || end.is_none_or(|end| end > interrupt.count) {
        return Err(Errno::EINVAL);
    }
    let action = match flags
        & (irq_set_flags::ACTION_MASK
            | irq_set_flags::ACTION_UNMASK
            | irq_set_flags::ACTION_TRIGGER)
    {
        irq_set_flags::ACTION_MASK => IrqAction::Mask,
        irq_set_flags::ACTION_UNMASK => IrqAction::Unmask,
        irq_set_flags::ACTION_TRIGGER => IrqAction::Trigger,
        _ => return Err(Errno::EINVAL),
    };
    let kinds =
        flags & (irq_set_flags::DATA_NONE | irq_set_flags::DATA_BOOL | irq_set_flags::DATA_EVENTFD);
    let data = match (kinds, fds.len()) {
        (irq_set_flags::DATA_NONE, 0) if bytes.is_empty() => {
            // linux/vfio.h: a count of 0 turns a whole kind off, and means nothing else.
            if count == 0 && (start != 0 || action != IrqAction::Trigger) {
                return Err(Errno::EINVAL);
            }
            IrqData::None
        }
        (irq_set_flags::DATA_BOOL, 0) if bytes.len() == count as usize && count > 0 => {
            IrqData::Bool(bytes.iter().map(|byte| *byte != 0).collect())
        }
        // The descriptors come beside the message; clients may repeat their numbers in it, which mean nothing here.
        (irq_set_flags::DATA_EVENTFD, given)
            if (given == 0 || given == count as usize) && count > 0 =>
        {
            IrqData::Eventfd(fds)
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(SetIrqs {
        index,
        start,
        count,
        action,
        data,
    })
}

pub(crate) fn region_read<F>(
    mut ticket: Ticket,
    body: &[u8],
    device: &Device,
) -> Result<Event<F>, (Ticket, Errno)> {
    let parsed = whole::<wire::RegionAccess>(body)
        .and_then(|asked| check_access(&asked, device, |region| region.readable));
    match parsed {
        Ok(asked) => {
            ticket.echo = Echo::Region(asked);
            Ok(Event::RegionRead {
                ticket,
                region: asked.region.get(),
                offset: asked.offset.get(),
                count: asked.count.get(),
            })
        }
        Err(errno) => Err((ticket, errno)),
    }
}

pub(crate) fn region_write<F>(
    mut ticket: Ticket,
    body: &[u8],
    device: &Device,
) -> Result<Event<F>, (Ticket, Errno)> {
    let parsed = part::<wire::RegionAccess>(body).and_then(|(asked, data)| {
        let asked = check_access(&asked, device, |region| region.writable)?;
        match data.len() == asked.count.get() as usize {
            true => Ok((asked, data)),
            false => Err(Errno::EINVAL),
        }
    });
    match parsed {
        Ok((asked, data)) => {
            ticket.echo = Echo::Region(asked);
            Ok(Event::RegionWrite {
                ticket,
                region: asked.region.get(),
                offset: asked.offset.get(),
                data: WriteData::from_slice(data),
            })
        }
        Err(errno) => Err((ticket, errno)),
    }
}

fn check_access(
    asked: &wire::RegionAccess,
    device: &Device,
    allows: impl Fn(&crate::Region) -> bool,
) -> Result<wire::RegionAccess, Errno> {
    let count = asked.count.get();
    if count > DATA_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let region = device.region(asked.region.get())?;
    if !allows(region) || !region.has(asked.offset.get(), count) {
        return Err(Errno::EINVAL);
    }
    Ok(*asked)
}
