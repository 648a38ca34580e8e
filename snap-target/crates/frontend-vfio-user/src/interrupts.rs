//! What a client makes of interrupts (DEVICE_SET_IRQS; linux/vfio.h, VFIO_PCI_*_IRQ_INDEX).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use reactor::peer_event::{self, signal};
use vfio_user::{Errno, Interrupt, IrqAction, IrqData, SetIrqs, irq_flags};

use crate::common::{Common, View};
use crate::limits::VECTORS;

const LINE: u32 = 0;
const MSIX: u32 = 2;

/// The kinds by index: the line, MSI, MSI-X, errors, requests. MSI and the last two are not there.
pub(crate) fn kinds() -> Vec<Interrupt> {
    let line = Interrupt {
        flags: irq_flags::EVENTFD | irq_flags::MASKABLE | irq_flags::AUTOMASKED,
        count: 1,
    };
    let msix = Interrupt {
        flags: irq_flags::EVENTFD,
        count: u32::from(VECTORS),
    };
    let none = Interrupt::default();
    vec![line, none, msix, none, none]
}

/// Carries it out. The view is to be published, and what completion queues have is to be signalled again: an interrupt may have been missed.
///
/// # Errors
/// What these kinds do not take.
pub(crate) fn apply(common: &Common, view: &mut View, set: SetIrqs<OwnedFd>) -> Result<(), Errno> {
    if let IrqData::Eventfd(fds) = &set.data {
        for fd in fds {
            peer_event::check(fd).map_err(|error| {
                tracing::warn!(%error, "a client's descriptor cannot be interrupted by");
                Errno::EINVAL
            })?;
        }
    }
    match set.index {
        LINE => apply_line(common, view, set),
        MSIX => apply_msix(view, set),
        _ => Err(Errno::EINVAL),
    }
}

fn apply_line(common: &Common, view: &mut View, set: SetIrqs<OwnedFd>) -> Result<(), Errno> {
    // One line: a boolean is for it.
    let is_meant = match &set.data {
        IrqData::Bool(bits) => bits.contains(&true),
        IrqData::None | IrqData::Eventfd(_) => true,
    };
    match (set.action, set.data) {
        (IrqAction::Trigger, IrqData::Eventfd(fds)) => {
            view.line = fds.into_iter().next().map(Arc::new);
            common.mask_line(false);
        }
        (IrqAction::Trigger, IrqData::None) if set.count == 0 => view.line = None,
        (IrqAction::Trigger, _) if is_meant => view.line.iter().for_each(signal),
        (IrqAction::Mask, IrqData::None | IrqData::Bool(_)) if is_meant => common.mask_line(true),
        (IrqAction::Unmask, IrqData::None | IrqData::Bool(_)) if is_meant => {
            common.mask_line(false);
        }
        (_, IrqData::Eventfd(_)) => return Err(Errno::ENOTSUP),
        _ => {}
    }
    Ok(())
}

fn apply_msix(view: &mut View, set: SetIrqs<OwnedFd>) -> Result<(), Errno> {
    if set.action != IrqAction::Trigger {
        return Err(Errno::EINVAL);
    }
    let start = set.start as usize;
    let meant = start..start + set.count as usize;
    if meant.end > usize::from(VECTORS) {
        return Err(Errno::EINVAL);
    }
    // The first descriptor turns MSI-X on.
    if matches!(&set.data, IrqData::Eventfd(fds) if !fds.is_empty()) {
        view.vectors.resize(usize::from(VECTORS), None);
    }
    let Some(places) = view.vectors.get_mut(meant) else {
        return Ok(());
    };
    match set.data {
        IrqData::Eventfd(fds) if fds.is_empty() => places.fill(None),
        IrqData::Eventfd(fds) => {
            for (place, fd) in places.iter_mut().zip(fds) {
                *place = Some(Arc::new(fd));
            }
        }
        // It is off.
        IrqData::None if set.count == 0 => view.vectors.clear(),
        IrqData::None => places.iter().flatten().for_each(signal),
        IrqData::Bool(bits) => {
            let meant = places.iter().zip(bits).filter(|(_, bit)| *bit);
            meant.filter_map(|(fd, _)| fd.as_ref()).for_each(signal);
        }
    }
    Ok(())
}
