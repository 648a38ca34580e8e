//! Bits of what both sides can do.

/// Of virtio's features: GET_PROTOCOL_FEATURES may be asked.
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;

/// Several queues; GET_QUEUE_NUM.
pub const PROTOCOL_F_MQ: u64 = 1 << 0;
/// Every message can be acknowledged.
pub const PROTOCOL_F_REPLY_ACK: u64 = 1 << 3;
/// A channel for requests of the back-end.
pub const PROTOCOL_F_BACKEND_REQ: u64 = 1 << 5;
/// The device's configuration space.
pub const PROTOCOL_F_CONFIG: u64 = 1 << 9;
/// Memory for what is in flight.
pub const PROTOCOL_F_INFLIGHT_SHMFD: u64 = 1 << 12;
/// RESET_DEVICE.
pub const PROTOCOL_F_RESET_DEVICE: u64 = 1 << 13;
/// Memory regions one by one.
pub const PROTOCOL_F_CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
