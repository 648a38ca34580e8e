//! The way to a connection: address, route, queue pair, request, acceptance.

use std::net::SocketAddr;

use nvme::rdma::host::Connection;
use reactor::Errno;
use store_nvme::queue::{QueueError, QueueOptions};
use verbs::limits::RESOLVE_TIMEOUT_MAX;
use verbs::{
    Agreed, CmId, ConnectParameters, EventChannel, EventKind, RejectReason, Result, VerbsError,
};
use zerocopy::IntoBytes;

use crate::lane::{Lane, Size};
use crate::limits::READS_IN_PROGRESS_MAX;

/// A connection that does not stand yet.
#[derive(Debug)]
pub(crate) struct Connecting {
    // In the order in which they go.
    pub(crate) lane: Option<Lane>,
    pub(crate) id: CmId,
    size: Size,
}

/// How far an event brought it.
#[derive(Debug)]
pub(crate) enum Brought {
    /// More are to come.
    NotYet,
    /// It stands.
    Stands(Agreed),
}

impl Connecting {
    pub(crate) fn begin(
        channel: &EventChannel,
        to: SocketAddr,
        options: &QueueOptions,
        size: Size,
    ) -> Result<Self> {
        let id = channel.create_id()?;
        let timeout = options.connect_timeout.min(RESOLVE_TIMEOUT_MAX);
        id.resolve_address(None, to, timeout)?;
        let lane = None;
        Ok(Self { lane, id, size })
    }

    /// Takes in an event of the connection manager.
    pub(crate) fn take_in(
        &mut self,
        kind: EventKind,
        machine: &mut Connection,
        (to, options): (SocketAddr, &QueueOptions),
    ) -> std::result::Result<Brought, QueueError> {
        let connect_error = |source| QueueError::Connect { to, source };
        match kind {
            EventKind::AddressResolved => {
                let timeout = options.connect_timeout.min(RESOLVE_TIMEOUT_MAX);
                let asked = self.id.resolve_route(timeout);
                asked.map_err(|error| QueueError::resources(to, &error))?;
                Ok(Brought::NotYet)
            }
            EventKind::RouteResolved => {
                self.ask(machine)
                    .map_err(|why| QueueError::resources(to, &why))?;
                Ok(Brought::NotYet)
            }
            EventKind::Established(agreed) => Ok(Brought::Stands(agreed)),
            EventKind::AddressError(Errno::ENODEV) => Err(QueueError::resources(
                to,
                &"the way there leads over no RDMA device (ip route get, rdma link show)",
            )),
            EventKind::AddressError(source)
            | EventKind::RouteError(source)
            | EventKind::ConnectError(source)
            | EventKind::Unreachable(source) => Err(connect_error(source)),
            EventKind::Rejected(RejectReason::NoListener, _) => {
                Err(connect_error(Errno::ECONNREFUSED))
            }
            EventKind::Rejected(RejectReason::Consumer, private_data) => Err(QueueError::Ended {
                to,
                why: machine.rejected(private_data.as_bytes()).to_string(),
            }),
            EventKind::Rejected(RejectReason::Stale, _) => Err(QueueError::Ended {
                to,
                why: "it still has an earlier connection with the same queue pair".to_owned(),
            }),
            EventKind::Rejected(RejectReason::Other(reason), _) => Err(QueueError::Ended {
                to,
                why: format!(
                    "it rejected the connection (reason {reason} of the connection manager)"
                ),
            }),
            EventKind::Disconnected => Err(QueueError::Ended {
                to,
                why: "it disconnected".to_owned(),
            }),
            EventKind::DeviceRemoval | EventKind::AddressChange => Err(device_gone(to)),
            EventKind::ConnectRequest(_) | EventKind::TimewaitExit | EventKind::Other(_) => {
                Ok(Brought::NotYet)
            }
        }
    }

    /// Makes the queue pair and asks for the connection.
    fn ask(&mut self, machine: &Connection) -> std::result::Result<(), String> {
        let words = |error: VerbsError| error.to_string();
        let device = self.id.device().map_err(words)?;
        let device = device.ok_or("the address leads to no device")?;
        self.lane = Some(Lane::new(&device, &self.id, &self.size)?);
        let reads_max = device.attributes().qp_rd_atom_max;
        let request = machine.request();
        let parameters = ConnectParameters {
            private_data: request.as_bytes(),
            // The controller reads what is written; this end reads nothing.
            responder_resources: reads_max.min(READS_IN_PROGRESS_MAX),
            initiator_depth: 0,
            ..ConnectParameters::default()
        };
        self.id.connect(&parameters).map_err(words)
    }
}

/// The device under a connection, or its address, went away.
pub(crate) fn device_gone(to: SocketAddr) -> QueueError {
    QueueError::resources(to, &"the RDMA device, or its address, is gone")
}
