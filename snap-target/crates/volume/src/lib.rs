//! The volume format: reader, writer, read planner, frame cache.
