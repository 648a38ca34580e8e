//! Which commands a reservation lets through.

use super::{HostId, Table};
use nvme_spec::IoOpcode;
use nvme_spec::reservation::ReservationType;

/// What a host may do with a namespace's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Commands of the read group.
    pub read: bool,
    /// Commands of the write group.
    pub write: bool,
}

impl Rights {
    /// No reservation stands in the way.
    pub const ALL: Rights = Rights {
        read: true,
        write: true,
    };

    /// Whether this I/O command goes through. A Copy needs both of its destination; its
    /// sources' namespaces are asked as for reads. Reservation commands always do: the table judges them.
    /// (Base, "Command Behavior in the Presence of a Reservation"; NVM, the same.)
    pub fn allow(self, opcode: IoOpcode) -> bool {
        match opcode {
            IoOpcode::READ | IoOpcode::COMPARE | IoOpcode::VERIFY => self.read,
            IoOpcode::COPY => self.read && self.write,
            IoOpcode::WRITE
            | IoOpcode::WRITE_UNCORRECTABLE
            | IoOpcode::WRITE_ZEROES
            | IoOpcode::DATASET_MANAGEMENT
            | IoOpcode::FLUSH => self.write,
            _ => true,
        }
    }
}

impl Table {
    /// What this host may do.
    pub fn rights(&self, host: HostId) -> Rights {
        let Some(rtype) = self.reservation_type() else {
            return Rights::ALL;
        };
        let registered = self.key_of(host).is_some();
        let inside = match rtype {
            ReservationType::WRITE_EXCLUSIVE | ReservationType::EXCLUSIVE_ACCESS => {
                self.is_holder(host)
            }
            _ => registered,
        };
        let others_read = matches!(
            rtype,
            ReservationType::WRITE_EXCLUSIVE
                | ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY
                | ReservationType::WRITE_EXCLUSIVE_ALL_REGISTRANTS
        );
        Rights {
            read: inside || others_read,
            write: inside,
        }
    }
}
