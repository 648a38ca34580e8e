//! A blocking and polled NVMe/TCP initiator over std sockets.
