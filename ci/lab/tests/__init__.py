"""The lab test: a real Linux NVMe host against a target on the build machine."""
