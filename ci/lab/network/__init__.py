"""Networks whose faults a test sets: an Ethernet switch for guests, and a proxy for TCP connections of the build machine."""
