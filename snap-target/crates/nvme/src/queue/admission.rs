//! Which commands a queue takes at the target, and how far it is (Base, "Connect command": nothing before it).

use nvme_spec::fabrics::FabricsType;
use nvme_spec::{AdminOpcode, Sqe, Status};

/// How far a queue of a fabric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing but Connect may come.
    AwaitConnect,
    /// Connect succeeded. Nothing but authentication may come, one command at a time, until Connect's time is over.
    AwaitAuthentication,
    /// Everything else may come.
    Live,
}

/// What becomes of a command that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is the queue's Connect.
    Connect,
    /// It goes to the driver.
    Command,
    /// The machine answers it with this status.
    Refused(Status),
}

/// What becomes of a command in a queue that is so far. Whether another one that is not answered has its identifier is asked where it matters.
pub(crate) fn admit(stage: Stage, sqe: &Sqe, is_taken_twice: impl FnOnce() -> bool) -> Admission {
    let fabrics = sqe.opcode == AdminOpcode::FABRICS.0;
    let fctype = FabricsType(sqe.fctype());
    let connect = fabrics && fctype == FabricsType::CONNECT;
    let authentication = fabrics
        && matches!(
            fctype,
            FabricsType::AUTHENTICATION_SEND | FabricsType::AUTHENTICATION_RECEIVE
        );
    // SPDK's host forgets its Asynchronous Event Requests when it detaches, and shuts the controller down with their identifiers. These have no data, and nothing but
    // their answer has the identifier.
    let property = fabrics
        && matches!(
            fctype,
            FabricsType::PROPERTY_GET | FabricsType::PROPERTY_SET
        );
    match stage {
        Stage::AwaitConnect if connect => Admission::Connect,
        // The first goes on: what names the identifier, an Abort or data, means that one alone.
        Stage::Live if !property && is_taken_twice() => {
            Admission::Refused(Status::COMMAND_ID_CONFLICT.dnr())
        }
        Stage::Live if !connect => Admission::Command,
        Stage::AwaitAuthentication if authentication => Admission::Command,
        Stage::AwaitAuthentication if !connect => {
            Admission::Refused(Status::AUTHENTICATION_REQUIRED.dnr())
        }
        _ => Admission::Refused(Status::COMMAND_SEQUENCE_ERROR.dnr()),
    }
}
