//! `[[ublk]]`: block devices of this machine.

use frontend_ublk::DEVICES_MAX;
use nvme::nqn::Nqn;

use super::check::Seen;
use super::error::ConfigError;
use super::section::Section;
use super::subsystem::subsystem_of;
use crate::locals::{LocalConfig, NUMBERS};

const UBLK: &[&str] = &["number", "subsystem", "nsid"];

/// Those that the file names, each with its subsystem.
pub fn locals(top: &Section<'_>) -> Result<Vec<(Nqn, LocalConfig)>, ConfigError> {
    let mut all = Vec::new();
    let mut numbers = Seen::new();
    for section in top.tables("ublk", DEVICES_MAX, UBLK)? {
        let number = section.number("number", 0..=NUMBERS - 1)?;
        let number = section.required(number, "number", "for example number = 0: /dev/ublkb0")?;
        let what = number.value.to_string();
        numbers.add(&section, number.value, &what, number.span, "number")?;
        let subsystem = subsystem_of(&section)?;
        let nsid = section.number("nsid", 1..=u32::MAX - 1)?;
        let local = LocalConfig {
            number: number.value,
            nsid: nsid.map_or(1, |nsid| nsid.value),
        };
        all.push((subsystem.value, local));
    }
    Ok(all)
}
