"""Builds for aarch64 on an x86-64 machine and runs the result under qemu-user, without root."""
