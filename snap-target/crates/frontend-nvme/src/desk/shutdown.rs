//! Shutdowns: everything that was acknowledged becomes durable before CSTS says that the shutdown is complete. What a host has not changed since it connected
//! is not flushed: a store that hangs holds up those alone that changed something of it.

use namespace::{Asked, Done, Engine, Io, NamespaceKey};
use nvme::controller::ControllerId;

use super::Desk;

/// The flushes of a controller's last shutdown.
#[derive(Debug)]
pub(super) struct Flushing {
    /// Tells this shutdown's flushes from those of one before, which a reset has overtaken.
    number: u32,
    left: usize,
    failed: bool,
}

impl Desk {
    /// Marks an engine token as a flush of the desk's. Below it lie a shutdown's number and the controller, or what `state` says.
    pub(super) const FLUSH_TOKEN: u64 = 1 << 63;

    /// Starts the flushes of controllers that are shutting down.
    pub(super) fn flush_for_shutdowns(&mut self, engine: &mut Engine) {
        for id in std::mem::take(&mut self.shutdowns) {
            self.shutdowns_begun = self.shutdowns_begun.wrapping_add(1);
            let number = self.shutdowns_begun;
            let token = Self::FLUSH_TOKEN | u64::from(number) << 16 | u64::from(id.0);
            let Some(controller) = self.registry.controller(id) else {
                continue;
            };
            let changed = self.changed.get(&id);
            let namespaces: Vec<NamespaceKey> = controller
                .namespaces()
                .iter()
                .filter(|info| changed.is_some_and(|changed| changed.has(info.nsid)))
                .map(|info| NamespaceKey::from_bits(info.handle))
                .collect();
            let flushing = Flushing {
                number,
                // One more than there are flushes, so that none of them ends the count before all have started.
                left: namespaces.len() + 1,
                failed: false,
            };
            self.flushes.insert(id, flushing);
            for key in namespaces {
                if let Some(done) = engine.submit(key, Io::Flush, Asked::with(token)) {
                    self.flushed(&done);
                }
            }
            self.flush_ended(token, true);
        }
    }

    /// The engine has answered a request of the desk's: a flush.
    pub(crate) fn flushed(&mut self, done: &Done) {
        if done.token & Self::FLUSH_TOKEN == 0 || self.protected_flushed(done) {
            return;
        }
        if let Err(error) = &done.result {
            // The token's low bits are the controller.
            let cntlid = done.token & 0xFFFF;
            tracing::error!(cntlid, %error, "a flush of a shutdown failed");
        }
        self.flush_ended(done.token, done.result.is_ok());
    }

    fn flush_ended(&mut self, token: u64, durable: bool) {
        #[expect(clippy::cast_possible_truncation, reason = "takes the parts out again")]
        let (id, number) = (ControllerId(token as u16), (token >> 16) as u32);
        let Some(flushing) = self
            .flushes
            .get_mut(&id)
            .filter(|flushing| flushing.number == number)
        else {
            return;
        };
        flushing.left -= 1;
        flushing.failed |= !durable;
        if flushing.left > 0 {
            return;
        }
        let failed = flushing.failed;
        self.flushes.remove(&id);
        if let Some(controller) = self.registry.controller_mut(id) {
            if failed {
                controller.shutdown_failed();
            } else {
                controller.shutdown_complete();
            }
            self.touch_admin_queue(id);
        }
    }
}
