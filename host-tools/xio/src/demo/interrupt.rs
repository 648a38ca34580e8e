//! SIGINT and SIGTERM end the demo in order: its target is stopped, its volumes are removed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Knows whether the demo was told to end.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. A second signal ends the program at once.
    pub fn listen() -> Result<Interrupt, Failure> {
        let told = Arc::new(AtomicBool::new(false));
        let register = || -> io::Result<()> {
            for signal in [SIGINT, SIGTERM] {
                flag::register_conditional_shutdown(signal, 1, told.clone())?;
                flag::register(signal, told.clone())?;
            }
            Ok(())
        };
        register().map_err(|error| Failure::system(anyhow!("listening to signals: {error}")))?;
        Ok(Interrupt(told))
    }

    /// Fails once the demo was told to end.
    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::system(anyhow!(
                "interrupted; the target was stopped and the volumes removed"
            )));
        }
        Ok(())
    }
}
