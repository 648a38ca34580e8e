//! The share of frames that compression was of no use for.

use serde_json::{Value, json};
use volume::StreamIndex;
use volume::blocking::RawFrames;
use volume::format::Layout;

use crate::failure::Failure;
use crate::figures::share;
use crate::local::LocalVolume;

/// Blocks of a stream's frame table that are looked at: 409,600 frames, 25 GiB in frames of 64 KiB. Of longer ones, so many, spread over all.
const BLOCKS_MAX: u64 = 4096;

/// Of each stream; `None` where its chain has no frames, or none that may shrink.
pub struct RawShares(Vec<Result<Option<(RawFrames, bool)>, Failure>>);

impl RawShares {
    pub fn of(local: &LocalVolume) -> RawShares {
        let reader = local.reader();
        let streams = (0..).zip(local.volume.streams());
        let shares = streams.map(|(index, stream)| {
            let counted = reader.raw_frames(StreamIndex(index), BLOCKS_MAX)?;
            let frames = match stream.layout {
                Layout::Framed { frames, .. } => frames.entry_count(),
                Layout::Unframed { .. } => 0,
            };
            Ok(counted.map(|it| (it, it.looked_at == frames)))
        });
        RawShares(shares.collect())
    }

    /// `3.1 %`; `~` where not all frames were looked at.
    pub fn text(&self, stream: usize) -> String {
        match self.0.get(stream) {
            Some(Ok(Some((frames, is_all)))) if frames.looked_at > 0 => {
                let mark = if *is_all { "" } else { "~" };
                format!("{mark}{}", share(frames.raw, frames.looked_at))
            }
            Some(Err(_)) => "damaged".to_owned(),
            _ => "-".to_owned(),
        }
    }

    pub fn json(&self, stream: usize) -> Value {
        match self.0.get(stream) {
            Some(Ok(Some((frames, _)))) => {
                json!({ "raw": frames.raw, "looked_at": frames.looked_at })
            }
            _ => Value::Null,
        }
    }

    /// The first table that could not be read: the rest is shown.
    pub fn into_damage(self) -> Option<Failure> {
        self.0.into_iter().find_map(Result::err)
    }
}
