//! The target's end of one NVMe/RDMA connection.
