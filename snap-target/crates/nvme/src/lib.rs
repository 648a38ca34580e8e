//! NVMe controller, queues, fabrics and initiator as state machines without I/O.
