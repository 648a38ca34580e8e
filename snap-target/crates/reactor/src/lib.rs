//! One io_uring loop per core: buffers, timers, messages.
