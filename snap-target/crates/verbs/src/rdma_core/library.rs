//! The two libraries, opened when they are first wanted, and never closed: their providers' threads and tables would not survive it.

use std::sync::OnceLock;

use super::sys::{CmCalls, VerbsCalls};
use crate::error::{Result, VerbsError};

pub(super) const RDMACM: &str = "librdmacm.so.1";
pub(super) const IBVERBS: &str = "libibverbs.so.1";

/// The calls of both.
pub(super) struct Calls {
    pub(super) cm: CmCalls,
    pub(super) verbs: VerbsCalls,
}

/// The libraries' calls, for the life of the process.
pub(super) fn calls() -> Result<&'static Calls> {
    static CALLS: OnceLock<Calls> = OnceLock::new();
    if let Some(calls) = CALLS.get() {
        return Ok(calls);
    }
    let calls = load(RDMACM, IBVERBS)?;
    Ok(CALLS.get_or_init(|| calls))
}

fn load(cm: &'static str, verbs: &'static str) -> Result<Calls> {
    let verbs = open(verbs)?;
    let cm = open(cm)?;
    // SAFETY: they are what their names say, and they are never closed.
    let calls = unsafe {
        CmCalls::find(&cm).and_then(|cm| {
            Ok(Calls {
                cm,
                verbs: VerbsCalls::find(&verbs)?,
            })
        })
    };
    std::mem::forget((verbs, cm));
    calls
}

fn open(library: &'static str) -> Result<libloading::Library> {
    // SAFETY: the names are those of rdma-core's libraries, whose initializers set up tables of their own and expect nothing of us.
    unsafe { libloading::Library::new(library) }.map_err(|error| VerbsError::LibraryMissing {
        library,
        // What the loader said is the cause; the error itself says only that it failed.
        cause: std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_says_what_to_install() {
        let error = load("librdmacm-is-not-there.so.1", "libc.so.6").err();
        assert!(matches!(error, Some(VerbsError::LibraryMissing { .. })));
        let text = error.unwrap().to_string();
        assert!(text.starts_with("librdmacm-is-not-there.so.1 was not found: install rdma-core (Debian and Ubuntu: apt-get install librdmacm1"), "{text}");
        assert!(text.contains("cannot open shared object file"), "{text}");
    }

    #[test]
    fn a_library_that_is_another_one_says_what_it_lacks() {
        let error = load("libc.so.6", "libc.so.6").err().unwrap();
        assert_eq!(
            error.to_string(),
            "librdmacm.so.1 has no rdma_create_event_channel: rdma-core 32 or newer is needed"
        );
    }
}
