"""Debian packages without root: pick a mirror, unpack packages into a private root."""
