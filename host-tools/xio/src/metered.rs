//! An input on its way into a chain that rounds: what is lost of it, for the view's manifest.

use std::io::{self, Read};

use transforms::{Chain, Loss, LossMeter, TransformError, ViewChain};

/// A reader that measures what passes.
pub struct Metered<R> {
    inner: R,
    meter: LossMeter,
    /// The beginning of an element whose end was not read yet.
    begun: Vec<u8>,
    element_bytes: usize,
}

impl<R: Read> Metered<R> {
    pub fn new(inner: R, chain: &Chain) -> Result<Metered<R>, TransformError> {
        Ok(Metered {
            inner,
            meter: LossMeter::new(chain, &ViewChain::identity())?,
            begun: Vec::new(),
            element_bytes: chain.source().bytes(),
        })
    }

    /// What was lost of all that passed.
    pub fn finish(self) -> Loss {
        self.meter.finish()
    }

    /// Whole elements are measured when they are whole.
    fn measure(&mut self, mut read: &[u8]) -> Result<(), TransformError> {
        if !self.begun.is_empty() {
            let missing = (self.element_bytes - self.begun.len()).min(read.len());
            let (rest, behind) = read.split_at(missing);
            self.begun.extend_from_slice(rest);
            read = behind;
            if self.begun.len() < self.element_bytes {
                return Ok(());
            }
            self.meter.add(&self.begun)?;
            self.begun.clear();
        }
        let (whole, begun) = read.split_at(read.len() / self.element_bytes * self.element_bytes);
        self.begun.extend_from_slice(begun);
        self.meter.add(whole)
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        let passed = into.get(..read).unwrap_or_default();
        self.measure(passed).map_err(io::Error::other)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transforms::ElementType;

    /// Read byte by byte, it is what it is in one piece.
    #[test]
    fn how_it_is_read_makes_no_difference() {
        let chain = Chain::parse("f16", ElementType::F32).unwrap();
        let bytes: Vec<u8> = (0..3000u32)
            .flat_map(|n| (1.0 / (n as f32 + 0.3)).to_le_bytes())
            .collect();
        let passed = |step: usize| {
            let mut metered = Metered::new(bytes.as_slice(), &chain).unwrap();
            let mut part = vec![0; step];
            while metered.read(&mut part).unwrap() > 0 {}
            metered.finish()
        };
        let whole = passed(bytes.len());
        assert_eq!(whole.elements, 3000);
        assert!(whole.largest_error() > Some(0.0));
        for step in [1, 3, 4, 1001] {
            assert_eq!(passed(step), whole);
        }
    }
}
