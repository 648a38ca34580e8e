//! Reservations of one namespace (Base, "Reservations"): a table, and what each command makes of it.
//!
//! ```text
//!  command, its data --Request::parse--> Request --Table::carry_out--> Change { next table, who hears of it, whose commands end }
//! ```
//! Nothing here does I/O or changes anything in place: whoever owns a namespace's table carries a request out, has [`Table::to_record`] of the
//! next table put on stable storage where it differs from the last, and only then puts the next table in force.

mod access;
mod command;
mod notification;
mod record;
mod report;
mod table;

pub use access::Rights;
pub use command::{Persistence, Request, ReservationCommand};
pub use notification::Notice;
pub(super) use notification::Notifications;
pub use record::RecordError;
pub use table::{Change, HostId, Key, Registrant, Table};

/// Registrants of one namespace: as many hosts as a target has admin queues, so that each that is connected can register (Base, "Reservations": a
/// Register never lacks resources). With more, of which some are gone, it fails with Internal Error.
pub const REGISTRANTS_MAX: usize = 1536;

#[cfg(test)]
mod tests;
