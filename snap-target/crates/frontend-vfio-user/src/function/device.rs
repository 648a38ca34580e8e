//! What the function says of itself to its client.

use vfio_user::{Device, Region};

use crate::doorbells::MAPPABLE;
use crate::interrupts;
use crate::limits::{BAR0_BYTES, CONFIG_BYTES};

/// Regions by index (linux/vfio.h, VFIO_PCI_*_REGION_INDEX).
pub(super) const BAR0: u32 = 0;
pub(super) const CONFIG: u32 = 7;
/// BAR0 to BAR5, ROM, configuration space, VGA.
const REGIONS: u32 = 9;

/// BAR0 and configuration space, both trapped, but for doorbells that are polled.
pub(super) fn description(polls: bool) -> Device {
    let of_bytes = |size, areas| Region {
        size,
        readable: true,
        writable: true,
        areas,
    };
    let mappable = if polls { vec![MAPPABLE] } else { Vec::new() };
    let regions = (0..REGIONS).map(|index| match index {
        BAR0 => of_bytes(BAR0_BYTES, mappable.clone()),
        CONFIG => of_bytes(CONFIG_BYTES, Vec::new()),
        _ => Region::default(),
    });
    Device {
        regions: regions.collect(),
        interrupts: interrupts::kinds(),
    }
}
