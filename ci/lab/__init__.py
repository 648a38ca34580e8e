"""The guest lab: a QEMU guest whose real Linux drivers are the host that a target serves."""
