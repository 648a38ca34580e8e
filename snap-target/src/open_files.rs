//! The limit on open files: every connection and every store is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as this process may: shells give 1,024, fewer than the connections that there may be. Where that fails, what is over
/// the limit is refused when it comes.
pub fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(now, most)| {
        if now < most {
            setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        }
        Ok(())
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit on open files (ulimit -n) stays as it is");
    }
}
