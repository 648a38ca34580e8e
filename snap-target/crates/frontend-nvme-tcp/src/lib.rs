//! The NVMe/TCP frontend: sockets around the nvme state machines.
