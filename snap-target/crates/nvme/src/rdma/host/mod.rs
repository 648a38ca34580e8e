//! The host's end of one NVMe/RDMA connection.
