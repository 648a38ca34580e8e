//! NVMe/RDMA: either end of one queue, which is one reliable connection ([`target`], [`host`]). Wire layouts are in [`nvme_spec::rdma`].

pub mod host;
pub mod target;
