//! Reservation Notifications (Base, "Reservation Notification log page"): what waits for one controller's host to read it.

use super::HostId;
use nvme_spec::reservation::{NotificationType, ReservationNotification};
use nvme_spec::{Nsid, U32, U64};
use std::collections::VecDeque;
use zerocopy::{FromZeros, IntoBytes};

/// Notifications kept for one controller; the count shows the host that older ones were dropped.
const NOTIFICATIONS_MAX: usize = 255;

/// Who is to be told of a change, on each of its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whom.
    pub host: HostId,
    /// What.
    pub what: NotificationType,
}

/// The notifications of one controller.
#[derive(Debug, Default)]
pub(in crate::controller) struct Notifications {
    waiting: VecDeque<ReservationNotification>,
    /// Log page count of the last one, lost or not.
    count: u64,
}

impl Notifications {
    /// One more. Of too many the oldest goes.
    pub fn push(&mut self, nsid: Nsid, what: NotificationType) {
        // 0 says that there is no notification: the count goes round to 1.
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.waiting.len() >= NOTIFICATIONS_MAX {
            self.waiting.pop_front();
        }
        let mut page = ReservationNotification::new_zeroed();
        page.count = U64::new(self.count);
        page.notification_type = what.0;
        page.nsid = U32::new(nsid.0);
        self.waiting.push_back(page);
    }

    /// The page as a Get Log Page returns it: the oldest notification; zeros where there is none.
    pub fn page(&self) -> Vec<u8> {
        let mut page = ReservationNotification::new_zeroed();
        if let Some(oldest) = self.waiting.front() {
            page = *oldest;
            page.available = u8::try_from(self.waiting.len() - 1).unwrap_or(u8::MAX);
        }
        page.as_bytes().to_vec()
    }

    /// The oldest notification was read.
    pub fn pop(&mut self) {
        self.waiting.pop_front();
    }

    /// Whether more wait.
    pub fn any(&self) -> bool {
        !self.waiting.is_empty()
    }
}
