//! Listening ends, whatever carries connections there.

use std::net::SocketAddr;

use admin_proto::v1::{ObjectKind, Reason};
use frontend_nvme::link::Bound;
use frontend_nvme_tcp::SuccessFlag;

use crate::manage::ManageError;

/// Opens them.
#[derive(Debug)]
pub struct Ports {
    /// When the data of a read stand for its response.
    pub success_flag: SuccessFlag,
}

impl Ports {
    /// Listens, or says why not.
    ///
    /// # Errors
    /// What the system says of the address.
    pub fn open(&self, address: SocketAddr) -> Result<Box<dyn Bound>, ManageError> {
        match frontend_nvme_tcp::bind(address, self.success_flag) {
            Ok(port) => Ok(Box::new(port)),
            Err(error) => {
                let text = format!(
                    "cannot listen on {address}: {error}; take an address of this machine and a free port"
                );
                let refused = ManageError::new(Reason::AddressRefused, text);
                Err(refused.about(ObjectKind::Listener, address))
            }
        }
    }
}
