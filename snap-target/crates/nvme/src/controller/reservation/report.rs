//! Reservation Report: the Extended Reservation Status data structure.

use super::Table;
use nvme_spec::reservation::{
    RCSTS_HOLDS, REGISTRANT_CNTLID_DYNAMIC, RegisteredController, ReservationStatus,
};
use nvme_spec::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

impl Table {
    /// The structure's first `bytes` bytes; zeros behind its end. REGCTL counts all registrants, however many fit.
    pub fn report(&self, bytes: usize) -> Vec<u8> {
        let mut status = ReservationStatus::new_zeroed();
        status.generation = U32::new(self.generation);
        status.rtype = self.reservation_type().map_or(0, |rtype| rtype.0);
        status.registrants = U16::new(u16::try_from(self.registrants.len()).unwrap_or(u16::MAX));
        status.ptpls = u8::from(self.persistent);
        let mut report = status.as_bytes().to_vec();
        for registrant in &self.registrants {
            let mut entry = RegisteredController::new_zeroed();
            entry.cntlid = U16::new(REGISTRANT_CNTLID_DYNAMIC);
            entry.rcsts = if self.is_holder(registrant.host) {
                RCSTS_HOLDS
            } else {
                0
            };
            entry.key = U64::new(registrant.key.0);
            entry.host_id = registrant.host.0;
            report.extend_from_slice(entry.as_bytes());
        }
        report.resize(bytes, 0);
        report
    }
}
