//! Reusable work memory. One `Scratch` per thread that encodes or decodes; nothing is allocated per frame after warm-up.

use std::any::Any;

/// Work memory of block steps: two buffers for the forms between steps, and the codecs' contexts. It keeps the largest frame's
/// size; a fresh one allocates on first use.
#[derive(Default)]
pub struct Scratch {
    /// The packed form, between element steps and block steps.
    pub(crate) packed: Vec<u8>,
    /// The reordered form, between a shuffle, or a rank, and a compressor.
    pub(crate) reordered: Vec<u8>,
    /// The codecs' contexts.
    pub(crate) contexts: Contexts,
    /// Of the last frame that was undone.
    pub(crate) times: BlockTimes,
}

/// How long the block steps of a frame took to undo, in nanoseconds; 0 of a step that its chain has not, or that it was stored without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockTimes {
    /// The compressor.
    pub compress_ns: u64,
    /// The shuffle, or the rank.
    pub reorder_ns: u64,
}

impl Scratch {
    /// What the last [`Chain::unblock`](crate::Chain::unblock) took.
    #[must_use]
    pub fn times(&self) -> BlockTimes {
        self.times
    }

    /// Empty work memory.
    #[must_use]
    pub fn new() -> Scratch {
        Scratch::default()
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch")
            .field("packed_bytes", &self.packed.capacity())
            .field("reordered_bytes", &self.reordered.capacity())
            .field("contexts", &self.contexts.slots.len())
            .finish()
    }
}

/// The contexts of the codecs: one of each type, made when first asked for.
#[derive(Default)]
pub struct Contexts {
    slots: Vec<Box<dyn Any + Send>>,
}

impl Contexts {
    /// The context of type `T`, made by `make` if there is none yet. `None` when `make` had no memory.
    pub fn get<T: Any + Send>(&mut self, make: impl FnOnce() -> Option<T>) -> Option<&mut T> {
        let found = self.slots.iter().position(|slot| slot.is::<T>());
        let index = match found {
            Some(index) => index,
            None => {
                self.slots.push(Box::new(make()?));
                self.slots.len() - 1
            }
        };
        self.slots[index].downcast_mut()
    }
}

/// The first `len` bytes of `buffer`, grown if need be. What they hold is left over from earlier use.
pub(crate) fn sized(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}
