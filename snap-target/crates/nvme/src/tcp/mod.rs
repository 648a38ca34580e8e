//! NVMe/TCP: framing that both ends share ([`pdu`]), and either end of one connection ([`target`], [`host`]).

pub mod batch;
pub mod host;
pub mod pdu;
pub mod target;
