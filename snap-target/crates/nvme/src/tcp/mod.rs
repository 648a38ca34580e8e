//! NVMe/TCP: framing that both ends share ([`pdu`]), and the target's end of one connection ([`target`]).

pub mod batch;
pub mod pdu;
pub mod target;
