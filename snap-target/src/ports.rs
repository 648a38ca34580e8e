//! Listening ends, whatever carries connections there.

use std::net::SocketAddr;
use std::sync::OnceLock;

use admin_proto::v1::{ObjectKind, Reason};
use frontend_nvme::link::Bound;
use frontend_nvme_rdma::Rdma;
use frontend_nvme_tcp::SuccessFlag;
use verbs::{ControlThread, Verbs};

use crate::config::{Config, Fabric, Place};
use crate::manage::ManageError;

/// Opens them.
#[derive(Debug)]
pub struct Ports {
    /// When the data of a read over TCP stand for its response.
    success_flag: SuccessFlag,
    /// Opened with the first listener over RDMA: a daemon without one needs no libraries.
    rdma: OnceLock<Rdma>,
}

impl Ports {
    /// None is open yet.
    pub fn new(success_flag: SuccessFlag) -> Self {
        Self {
            success_flag,
            rdma: OnceLock::new(),
        }
    }

    /// Listens, or says why not. With the place that is in force: where port 0 was asked for, it has the port that was free.
    ///
    /// # Errors
    /// What the system says of the address; what RDMA lacks on this machine.
    pub fn open(&self, place: Place) -> Result<(Place, Box<dyn Bound>), ManageError> {
        let bound = match place.fabric {
            Fabric::Tcp => self.over_tcp(place.address),
            Fabric::Rdma => self.over_rdma(place.address),
        };
        let bound = bound.map_err(|error| error.about(ObjectKind::Listener, place))?;
        let address = bound.address();
        Ok((Place { address, ..place }, bound))
    }

    fn over_tcp(&self, address: SocketAddr) -> Result<Box<dyn Bound>, ManageError> {
        match frontend_nvme_tcp::bind(address, self.success_flag) {
            Ok(port) => Ok(Box::new(port)),
            Err(error) => {
                let text = format!(
                    "cannot listen on {address}: {error}; take an address of this machine and a free port"
                );
                Err(ManageError::new(Reason::AddressRefused, text))
            }
        }
    }

    fn over_rdma(&self, address: SocketAddr) -> Result<Box<dyn Bound>, ManageError> {
        let verbs = verbs().map_err(|why| unavailable(address, &why))?;
        let rdma = self
            .rdma
            .get_or_init(|| Rdma::new(verbs, ControlThread::default()));
        match rdma.bind(address) {
            Ok(port) => Ok(Box::new(port)),
            Err(error) => {
                let text = format!("cannot listen on rdma://{address}: {error}");
                Err(ManageError::new(Reason::AddressRefused, text))
            }
        }
    }
}

/// That this machine has what the listeners of a configuration need.
///
/// # Errors
/// The first that it lacks.
pub fn check(config: &Config) -> Result<(), ManageError> {
    let mut places = config.listeners.iter().map(|listener| listener.place);
    match places.find(|place| place.fabric == Fabric::Rdma) {
        Some(place) => verbs()
            .map(drop)
            .map_err(|why| unavailable(place.address, &why)),
        None => Ok(()),
    }
}

/// The libraries, where there is a device for them.
///
/// # Errors
/// What is missing, and what to do about it.
pub fn verbs() -> Result<Verbs, String> {
    let verbs = verbs::rdma_core::open().map_err(|error| error.to_string())?;
    let devices = verbs.devices().map_err(|error| error.to_string())?;
    if devices.is_empty() {
        return Err("this machine has no RDMA device; load its driver, or make one in software: rdma link add rxe0 type rxe netdev DEVICE".to_owned());
    }
    Ok(verbs)
}

fn unavailable(address: SocketAddr, why: &str) -> ManageError {
    let text =
        format!("cannot listen on rdma://{address}: {why}. `snapctl doctor` looks at all of it");
    ManageError::new(Reason::TransportUnavailable, text)
}
