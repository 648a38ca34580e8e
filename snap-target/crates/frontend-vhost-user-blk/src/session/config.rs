//! The configuration space, and what is written there.

use vhost_user::features::PROTOCOL_F_CONFIG;
use vhost_user::{CONFIG_BYTES_MAX, ConfigArea, Reply};

use super::{Handled, Session};
use crate::config_space;
use crate::error::SessionError;
use crate::features::{BLK_F_CONFIG_WCE, BLK_F_FLUSH};
use crate::order::Order;

/// How the driver's cache works, as its monitor was told. It says nothing of that when it comes back after a restart, and remembers what it was told at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// Nobody knows: each write is durable before it is answered, which is right whatever the driver thinks.
    Unknown,
    WritesBack,
    WritesThrough,
}

impl Session {
    pub(super) fn config(&mut self, area: ConfigArea) -> Reply {
        // A monitor that asks before it knows its driver's features begins, and remembers the answer; one that comes back remembers the last one's.
        if self.cache == Cache::Unknown && self.features == 0 {
            self.cache = Cache::WritesBack;
        }
        let range = area.offset as usize..(area.offset + area.bytes) as usize;
        let space = self.config_space();
        // No bytes: it cannot be had.
        let can_be_had = self.has(PROTOCOL_F_CONFIG).is_ok();
        let part = space.get(range).filter(|_| can_be_had);
        Reply::Config(area, part.unwrap_or_default().to_vec())
    }

    fn config_space(&self) -> [u8; CONFIG_BYTES_MAX as usize] {
        config_space::of(&self.shown.disk(), self.cache == Cache::WritesBack)
    }

    /// The driver may write one byte: whether its cache writes back. Others may be written with what they are.
    pub(super) fn set_config(
        &mut self,
        area: ConfigArea,
        bytes: &[u8],
    ) -> Result<Handled, SessionError> {
        self.has(PROTOCOL_F_CONFIG)?;
        let space = self.config_space();
        let mut writeback = None;
        for (at, byte) in (area.offset as usize..).zip(bytes) {
            match (at, byte) {
                (config_space::AT_WRITEBACK, 0 | 1) if self.features & BLK_F_CONFIG_WCE != 0 => {
                    writeback = Some(*byte == 1);
                }
                _ if space.get(at) == Some(byte) => {}
                _ => {
                    return Ok(Handled::Refused(
                        "only `writeback` can be written, with 0 or 1",
                    ));
                }
            }
        }
        if let Some(writeback) = writeback {
            self.set_writeback(writeback)?;
        }
        Ok(Handled::Done)
    }

    /// In force at every queue when this returns: what the driver asks from then on is durable before it is answered, or no longer.
    fn set_writeback(&mut self, writeback: bool) -> Result<(), SessionError> {
        self.cache = match writeback {
            true => Cache::WritesBack,
            false => Cache::WritesThrough,
        };
        if let Some(records) = &self.records {
            records.set_writeback(writeback);
        }
        let writes_back = self.writes_back();
        for (index, ring) in (0..).zip(&self.rings) {
            if let Some(id) = ring.running {
                let order = |answer| Order::Writeback(id, writes_back, answer);
                self.door(index)?.0.ask(order)?;
            }
        }
        tracing::info!(writeback, "a guest has changed how its disk's cache works");
        Ok(())
    }

    /// Whether writes may sit in a cache until the driver flushes (virtio 1.3, 5.2.5.2 and 5.2.6.2).
    pub(super) fn writes_back(&self) -> bool {
        let is_chosen = self.features & BLK_F_CONFIG_WCE != 0;
        self.features & BLK_F_FLUSH != 0 && (!is_chosen || self.cache == Cache::WritesBack)
    }
}
