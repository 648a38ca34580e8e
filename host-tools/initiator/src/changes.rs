//! What became of a namespace behind a connection: an NSID may be given other content while it stays.

use nvme::initiator::{InitiatorError, command};
use nvme_spec::Nsid;
use nvme_spec::log::LogPageId;

use crate::{Error, Initiator, sequence};

/// The Changed Attached Namespace List: 1,024 NSIDs.
const LIST_BYTES: u32 = 4096;

impl Initiator {
    /// Whether anything that the target says of a namespace, its identity for one, has changed or may have since this was asked last, or since the
    /// connection was made: Get Log Page, Changed Attached Namespace List (04h).
    ///
    /// Bytes that were read are those of the namespace that was identified at connect where the answer is false *afterwards*: the target lists a change
    /// before it answers a read from the new content.
    ///
    /// # Errors
    /// [`Error::Controller`] where the target does not have that log page; what ends the connection.
    pub fn namespace_changed(&mut self, nsid: u32) -> Result<bool, Error> {
        let page = LogPageId::CHANGED_NAMESPACES;
        let ask = command::get_log_page(page, Nsid::BROADCAST, 0, LIST_BYTES);
        self.on_admin(|queue| {
            let (cqe, list) = sequence::one(queue, &ask)?;
            let status = cqe.status();
            if !status.is_success() {
                return Err(Error::Controller {
                    address: queue.address().to_owned(),
                    source: InitiatorError::Refused {
                        command: "Get Log Page (Changed Attached Namespace List)",
                        status,
                    },
                });
            }
            // FFFFFFFFh stands for more than the list holds.
            let listed = list.as_chunks::<4>().0.iter().copied();
            let mut listed = listed.map(u32::from_le_bytes);
            Ok(listed.any(|listed| listed == nsid || listed == Nsid::BROADCAST.0))
        })
    }
}
