//! One store over several: [`stripe`] spreads its bytes over them, [`replicas`] reads the same bytes from whichever answers.
//!
//! **What it is.** Members are [`store::SharedStore`]s of any kind, opened by the caller. What comes out is a `SharedStore` again, so a volume, a plain disk
//! or a part of a mixed one may stand on it.
//!
//! **Its contract** is [`store::Store`]'s. A stripe names itself on each member ([`stripe::Label`]): another set, another order, another unit or a member too few is refused when
//! it is opened, never read as wrong bytes. It is there as long as all of its members are. Replicas are read-only; a read that one does not answer is
//! answered by another, and a member whose size, beginning or end are not those of the first is refused.
//!
//! **What it does not do.** No parity, no mirroring of writes, no rebuilding, no growing, no arrays of arrays. It does not look at content: checksums are the volume's.

#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a rejection gives the buffer back by value: boxing it would allocate"
)]

mod error;
pub mod limits;
pub mod replicas;
pub mod stripe;

pub use error::ArrayError;
