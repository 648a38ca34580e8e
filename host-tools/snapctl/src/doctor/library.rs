//! Whether a shared library can be loaded: only the loader knows all the places where it may be.

#![allow(unsafe_code, reason = "loading a library runs its initializers")]

use std::error::Error;

/// Loads a library by its name and lets it go again; says why where that fails.
pub fn load(name: &'static str) -> Result<(), String> {
    // SAFETY: the names are those of the distribution's RDMA libraries, whose initializers set up tables of their own and expect nothing of us; nothing of
    // the library is called, and nothing of it is kept.
    match unsafe { libloading::Library::new(name) } {
        Ok(_) => Ok(()),
        // What the loader said is the cause; the error itself says only that it failed.
        Err(error) => Err(error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

#[cfg(test)]
mod tests {
    use super::load;

    #[test]
    fn the_c_library_loads_and_one_that_is_not_there_says_so() {
        assert_eq!(load("libc.so.6"), Ok(()));
        let error = load("libxio-is-not-there.so.1").unwrap_err();
        assert!(error.contains("libxio-is-not-there.so.1"), "{error}");
    }
}
