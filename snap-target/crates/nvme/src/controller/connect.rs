//! Connect, parsed once (Base, "Connect command and response").

use super::ControllerId;
use crate::nqn::Nqn;
use crate::queue::{Completion, QueueId};
use nvme_spec::fabrics::{CATTR_DISABLE_SQ_FLOW_CONTROL, ConnectData, ConnectSqe, connect_offset};
use nvme_spec::{Sqe, Status};
use zerocopy::FromBytes;

/// What a Connect asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// QID.
    pub queue: QueueId,
    /// SQSIZE, zero-based.
    pub sqsize_z: u16,
    /// False where the host asks for a queue without flow control.
    pub flow_control: bool,
    /// KATO.
    pub kato_ms: u32,
    /// CNTLID.
    pub cntlid: u16,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// SUBNQN.
    pub subsystem: Nqn,
    /// HOSTNQN.
    pub host: Nqn,
}

impl ConnectRequest {
    /// Reads the entry and its 1024 bytes of data; the completion is the refusal.
    pub fn parse(sqe: &Sqe, data: &[u8]) -> Result<ConnectRequest, Completion> {
        let connect = ConnectSqe::of(sqe);
        if connect.recfmt.get() != 0 {
            return Err(Completion::of(Status::CONNECT_INCOMPATIBLE_FORMAT.dnr()));
        }
        let data = ConnectData::ref_from_bytes(data)
            .map_err(|_| Completion::of(Status::DATA_SGL_LENGTH_INVALID.dnr()))?;
        let subsystem = Nqn::from_field(&data.subnqn)
            .map_err(|_| invalid(Invalid::Data(connect_offset::data::SUBNQN)))?;
        let host = match data.hostnqn {
            [0, ..] => Nqn::unnamed_host(),
            ref named => Nqn::from_field(named)
                .map_err(|_| invalid(Invalid::Data(connect_offset::data::HOSTNQN)))?,
        };
        Ok(ConnectRequest {
            queue: QueueId(connect.qid.get()),
            sqsize_z: connect.sqsize_z.get(),
            flow_control: connect.cattr & CATTR_DISABLE_SQ_FLOW_CONTROL == 0,
            kato_ms: connect.kato_ms.get(),
            cntlid: data.cntlid.get(),
            host_id: data.host_id,
            subsystem,
            host,
        })
    }
}

/// A queue that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its controller.
    pub controller: ControllerId,
    /// Its identifier.
    pub queue: QueueId,
    /// Its entries (SQSIZE + 1), for [`crate::tcp::target::Connection::established`].
    pub entries: u16,
    /// For the same.
    pub flow_control: bool,
    /// The answer.
    pub completion: Completion,
}

/// Where the parameter at fault is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Invalid {
    /// Byte offset in the submission queue entry.
    Sqe(u16),
    /// Byte offset in the data.
    Data(u16),
}

/// Connect Invalid Parameters: IPO in DW0 15:0, IATTR in 23:16 (Base, "Connect Response").
pub(super) fn invalid(parameter: Invalid) -> Completion {
    refusal(Status::CONNECT_INVALID_PARAMETERS.dnr(), parameter)
}

/// A host that may not connect.
pub(super) fn invalid_host() -> Completion {
    let parameter = Invalid::Data(connect_offset::data::HOSTNQN);
    refusal(Status::CONNECT_INVALID_HOST.dnr(), parameter)
}

/// The same result fields with another status.
fn refusal(status: Status, parameter: Invalid) -> Completion {
    let dw0 = match parameter {
        Invalid::Sqe(offset) => u32::from(offset),
        Invalid::Data(offset) => u32::from(offset) | 1 << 16,
    };
    Completion {
        status,
        dw0,
        dw1: 0,
    }
}
