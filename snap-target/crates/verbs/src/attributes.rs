//! What a device can do, and the addresses it has.

use crate::key::Gid;

/// A device's limits: those of `ibv_query_device(3)` that a user of this crate needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// The kernel's name of it: rxe0, mlx5_0.
    pub name: String,
    /// Ports.
    pub ports: u8,
    /// Queue pairs.
    pub qp_max: u32,
    /// Work requests of one queue of a queue pair.
    pub qp_wr_max: u32,
    /// Scatter entries of a work request other than an RDMA Read.
    pub sge_max: u32,
    /// Scatter entries of an RDMA Read; 0 where the device does not say.
    pub sge_rd_max: u32,
    /// Completion queues.
    pub cq_max: u32,
    /// Entries of a completion queue.
    pub cqe_max: u32,
    /// Registrations.
    pub mr_max: u32,
    /// Bytes of one registration.
    pub mr_bytes_max: u64,
    /// Memory windows.
    pub mw_max: u32,
    /// RDMA Reads of a peer that a queue pair can have in progress: the most for `responder_resources`.
    pub qp_rd_atom_max: u8,
    /// RDMA Reads of our own that a queue pair can have in progress: the most for `initiator_depth`.
    pub qp_init_rd_atom_max: u8,
    /// Memory windows of type 2B: bound by a work request, valid on one queue pair.
    pub mw_type_2b: bool,
    /// Send with invalidate and local invalidate (the memory management extensions).
    pub invalidate: bool,
}

/// What kind of network an entry of the GID table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    Ib,
    /// RoCE on Ethernet frames.
    RoceV1,
    /// RoCE on UDP.
    RoceV2,
    /// A kind that this crate does not know.
    Other(u32),
}

/// An entry of a device's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Where it is in the port's table.
    pub index_z: u32,
    /// The port, from 1 on as the kernel counts.
    pub port: u32,
    /// Its kind.
    pub kind: GidKind,
}
