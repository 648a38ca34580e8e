//! NVMe wire structures and registers, no_std.
