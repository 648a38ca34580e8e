//! The detail of a refusal, in the status details that every gRPC library reads.

use prost::Message;
use prost_types::Any;

use crate::v1::{ErrorDetail, Reason};

/// google.rpc.Status, which `grpc-status-details-bin` holds.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

const TYPE_URL: &str = "type.googleapis.com/xio.admin.v1.ErrorDetail";

/// The code that goes with a reason.
#[must_use]
pub fn code_of(reason: Reason) -> tonic::Code {
    use tonic::Code;
    match reason {
        Reason::Unspecified => Code::Unknown,
        Reason::Field | Reason::PageToken => Code::InvalidArgument,
        Reason::NoSubsystem
        | Reason::NoNamespace
        | Reason::NoController
        | Reason::NoListener
        | Reason::NoReferral
        | Reason::NoFunction => Code::NotFound,
        Reason::SubsystemExists
        | Reason::NsidTaken
        | Reason::PortIdTaken
        | Reason::AddressTaken
        | Reason::ReferralExists
        | Reason::FunctionExists => Code::AlreadyExists,
        Reason::OtherUuid
        | Reason::SourceUnusable
        | Reason::SourceSilent
        | Reason::SourceInUse
        | Reason::SourceClosing
        | Reason::BlockSize
        | Reason::Size
        | Reason::Shrinks
        | Reason::NotServed
        | Reason::SubsystemInUse
        | Reason::LastListener
        | Reason::TransportUnavailable
        | Reason::AnyHost
        | Reason::HostList
        | Reason::AddressRefused
        | Reason::StateReadOnly
        | Reason::Target => Code::FailedPrecondition,
        Reason::Limit | Reason::Rate | Reason::StateFull => Code::ResourceExhausted,
        Reason::Peer | Reason::Role => Code::PermissionDenied,
        Reason::Ending => Code::Unavailable,
        Reason::StateFault | Reason::Fault => Code::Internal,
    }
}

/// The bytes of the status details: a google.rpc.Status with one detail.
#[must_use]
pub fn details(message: &str, detail: &ErrorDetail) -> Vec<u8> {
    let any = Any {
        type_url: TYPE_URL.to_owned(),
        value: detail.encode_to_vec(),
    };
    let status = RpcStatus {
        code: code_of(detail.reason()) as i32,
        message: message.to_owned(),
        details: vec![any],
    };
    status.encode_to_vec()
}

/// The detail in the bytes of a status' details; none where there is none that can be read.
#[must_use]
pub fn detail_of(details: &[u8]) -> Option<ErrorDetail> {
    let status = RpcStatus::decode(details).ok()?;
    let any = status.details.iter().find(|any| any.type_url == TYPE_URL)?;
    ErrorDetail::decode(&any.value[..]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::ObjectKind;

    #[test]
    fn a_detail_is_an_any_in_a_google_rpc_status() {
        let detail = ErrorDetail {
            reason: Reason::NoSubsystem.into(),
            field: String::new(),
            object_kind: ObjectKind::Subsystem.into(),
            object_key: "nqn.x:y".to_owned(),
        };
        let bytes = details("no", &detail);
        // code 5 (NOT_FOUND), message "no", then an Any: its URL, and the detail's own bytes.
        let value = [&b"\x08\x0a\x18\x01\x22\x07nqn.x:y"[..]].concat();
        let url = b"type.googleapis.com/xio.admin.v1.ErrorDetail";
        let any = [
            &[0x0A, u8::try_from(url.len()).unwrap()][..],
            url,
            &[0x12, u8::try_from(value.len()).unwrap()],
            &value,
        ]
        .concat();
        let whole = [
            &b"\x08\x05\x12\x02no\x1a"[..],
            &[u8::try_from(any.len()).unwrap()],
            &any,
        ]
        .concat();
        assert_eq!(bytes, whole);
        assert_eq!(detail_of(&bytes), Some(detail));
        assert_eq!(detail_of(b""), None);
        assert_eq!(detail_of(&[0xFF; 9]), None);
    }
}
