//! A store that does not answer reads from a byte on, until they are cancelled.

use reactor::Ring;
use reactor::buf::IoBuf;
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

pub fn mute(inner: SharedStore, from: u64) -> SharedStore {
    SharedStore::new(MuteBackend { inner, from })
}

#[derive(Debug)]
struct MuteBackend {
    inner: SharedStore,
    from: u64,
}

impl Backend for MuteBackend {
    fn name(&self) -> &str {
        "mute"
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Mute {
            inner: self.inner.open_handle(ring)?,
            from: self.from,
            held: Vec::new(),
            cancelled: Vec::new(),
        }))
    }
}

struct Mute {
    inner: Box<dyn Store>,
    from: u64,
    held: Vec<(Token, Option<IoBuf>)>,
    cancelled: Vec<Token>,
}

impl Store for Mute {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected> {
        // The end is told, as the beginning is.
        let is_end = op.offset() + 4096 >= self.inner.limits().bytes;
        if op.offset() < self.from || is_end {
            return self.inner.submit(op, buf, token, terms);
        }
        self.held.push((token, buf));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let is_over = |(token, _): &mut (Token, _)| self.cancelled.contains(token);
        let ended = self.held.extract_if(.., is_over);
        completions.extend(ended.map(|(token, buf)| Completion {
            token,
            buf,
            result: Err(StoreError::Cancelled {
                store: "mute".to_owned(),
                offset: 0,
            }),
        }));
        self.cancelled.clear();
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        self.cancelled
            .extend(self.held.iter().map(|(token, _)| *token));
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed() && self.held.is_empty()
    }

    fn cancel(&mut self, token: Token) {
        self.cancelled.push(token);
        self.inner.cancel(token);
    }

    fn hurry(&mut self, token: Token) {
        self.inner.hurry(token);
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}
