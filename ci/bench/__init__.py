"""Benchmarks; a package so that the tests of their parts are found."""
