//! Asking a discovery service what there is.

use nvme::Time;
use nvme::initiator::{AttachAdmin, ReadDiscoveryLog};
use nvme_spec::DISCOVERY_NQN;

use crate::client::ADMIN_DEPTH;
use crate::queue::Queue;
use crate::{DiscoveryRecord, Error, Options, sequence};

/// The discovery log of the service at `address` ("host:port").
pub fn discover(address: &str, options: &Options) -> Result<Vec<DiscoveryRecord>, Error> {
    let host = options.queue(ADMIN_DEPTH, None);
    let mut queue = Queue::connect(address, host, options)?;
    let refused = |source| Error::Controller {
        address: address.to_owned(),
        source,
    };
    let association = options.association(DISCOVERY_NQN);
    let mut attach = AttachAdmin::new(association, ADMIN_DEPTH, options.keep_alive, 0, Time::ZERO)
        .map_err(refused)?;
    sequence::run(&mut queue, &mut attach)?;
    let transfer_bytes_max = attach
        .finish()
        .map_or(0, |attached| attached.controller.transfer_bytes_max);
    let mut log = ReadDiscoveryLog::new(transfer_bytes_max);
    sequence::run(&mut queue, &mut log)?;
    Ok(log.finish().unwrap_or_default())
}
