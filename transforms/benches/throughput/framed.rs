//! Chains whose frames are compressed, on real data.

use std::sync::Arc;

use transforms::{
    Chain, Decoder, ElementType, Encoded, IdCounts, OutSegments, PackedWindow, RankTable, ViewChain,
};

use super::data::{fixture, weights};
use super::measure::{alternate, in_cache};
use super::{Bench, MIB, Memory, Weights};

const R50K_CHAINS: &[&str] = &[
    "none",
    "u16",
    "shuffle",
    "u16+shuffle",
    "lz4",
    "u16+lz4",
    "u16+shuffle+lz4",
    "u16+lz4hc:9",
    "zstd:3",
    "u16+zstd:1",
    "u16+zstd:3",
    "u16+zstd:9",
    "u16+shuffle+zstd:3",
    "rank",
    "rank+lz4",
    "rank+lz4hc:9",
    "rank+zstd:1",
    "rank+zstd:3",
    "rank+zstd:9",
];

const O200K_CHAINS: &[&str] = &[
    "bitpack:18",
    "lz4",
    "bitpack:18+lz4",
    "zstd:3",
    "bitpack:18+zstd:3",
    "shuffle+zstd:3",
    "rank",
    "rank+lz4",
    "rank+lz4hc:9",
    "rank+zstd:1",
    "rank+zstd:3",
    "rank+zstd:9",
];

/// Of weights, in each type.
const FLOAT_CHAINS: &[&str] = &[
    "none",
    "lz4",
    "shuffle+lz4",
    "zstd:3",
    "shuffle+zstd:3",
    "shuffle+zstd:9",
    "floatsplit",
];

impl Bench {
    pub(super) fn codecs(&mut self) {
        for (data, chains) in [
            ("r50k-u32.bin", R50K_CHAINS),
            ("o200k-u32.bin", O200K_CHAINS),
        ] {
            let tokens = std::fs::read(fixture(data)).unwrap();
            self.framed_chains(data, &tokens, ElementType::U32, chains);
        }
        let Weights { path, element } = &self.options.weights;
        let (name, element) = (path.display().to_string(), *element);
        let weights = weights(path);
        self.framed_chains(&name, &weights, element, FLOAT_CHAINS);
        if element == ElementType::F32 {
            for narrow in [ElementType::Bf16, ElementType::F16] {
                let rounding = Chain::parse(narrow.name(), element).unwrap();
                let mut rounded = vec![0; weights.len() / 4 * 2];
                rounding
                    .encode_frame(&weights, &mut self.scratch, &mut rounded)
                    .unwrap();
                let name = format!("{name}, rounded to {narrow}");
                self.framed_chains(&name, &rounded, narrow, FLOAT_CHAINS);
            }
        }
    }

    /// A table of chains, on elements that come again and again.
    fn framed_chains(&mut self, name: &str, elements: &[u8], source: ElementType, chains: &[&str]) {
        if !chains
            .iter()
            .any(|text| self.wanted(&format!("{text} of {source}")))
        {
            return;
        }
        let len = if self.options.quick {
            8 * MIB
        } else {
            64 * MIB
        };
        println!(
            "\n{name}, again and again to {} MiB, in frames of {} KiB of source; decode = unblock + expand",
            len / MIB,
            self.options.frame_bytes >> 10
        );
        println!(
            "{:<34} {:>7} {:>7} {:>8} {:>7} {:>6} {:>8} {:>5}",
            "chain", "GB/s", "spread", "memcpy", "spread", "ratio", "a frame", "x"
        );
        for (to, from) in self.memory.wide[..len]
            .iter_mut()
            .zip(elements.iter().cycle())
        {
            *to = *from;
        }
        let table = chains.iter().any(|text| text.starts_with("rank")).then(|| {
            let mut counts = IdCounts::new();
            counts.add(source, elements).unwrap();
            Arc::new(counts.table().unwrap())
        });
        if let Some(table) = &table {
            println!(
                "{table:?}: {} bytes beside the frames",
                table.stored_bytes()
            );
        }
        for text in chains {
            if self.wanted(&format!("{text} of {source}")) {
                self.framed_chain(text, source, len, table.as_ref());
            }
        }
    }

    /// Encode and decode frame by frame.
    fn framed_chain(
        &mut self,
        text: &str,
        source: ElementType,
        len: usize,
        table: Option<&Arc<RankTable>>,
    ) {
        let frame_bytes = self.options.frame_bytes;
        let mut chain = Chain::parse(text, source)
            .unwrap()
            .with_isa(self.options.isa);
        if chain.needs_table() {
            chain = chain.with_table(table.unwrap().clone()).unwrap();
        }
        let Memory {
            wide,
            out,
            packed: stored,
        } = &mut self.memory;
        let (wide, out) = (&mut wide[..len], &mut out[..len]);
        let scratch = &mut self.scratch;
        let frame_elements = (frame_bytes / source.bytes()) as u64;
        let bound = usize::try_from(chain.stored_bytes_max(frame_elements)).unwrap();
        let mut frames = Vec::new();
        let slow = text.contains("hc") || text.contains("zstd:9");
        let rounds = if slow { 3 } else { self.rounds };
        let row = alternate(rounds, len, wide, out, |wide, _| {
            frames.clear();
            let mut at = 0;
            for frame in wide.chunks(frame_bytes) {
                let to = &mut stored[at..at + bound];
                let encoded = chain.encode_frame(frame, scratch, to).unwrap();
                frames.push((at, encoded));
                at += encoded.stored_bytes;
            }
        });
        let stored_bytes: usize = frames.iter().map(|(_, e)| e.stored_bytes).sum();
        #[allow(clippy::cast_precision_loss)]
        let ratio = len as f64 / stored_bytes as f64;
        let mut one = vec![0; bound];
        let (frame, out_frame) = (&wide[..frame_bytes], &mut out[..frame_bytes]);
        let cached = in_cache(frame, out_frame, |frame, _| {
            chain.encode_frame(frame, scratch, &mut one).unwrap();
        });
        row.print(&format!("{text} encode ({ratio:.2}x)"), &[cached]);

        let mut packed = vec![0; bound];
        let mut decode = |out: &mut [u8], (at, encoded): &(usize, Encoded)| {
            let stored = &stored[*at..*at + encoded.stored_bytes];
            // What has no block step is expanded from where it lies.
            let packed = if chain.is_framed() {
                chain.unblock(stored, scratch, &mut packed).unwrap();
                &packed
            } else {
                stored
            };
            let decoder = Decoder::new(&chain, &ViewChain::identity(), encoded.range).unwrap();
            let window = PackedWindow {
                first_byte: 0,
                bytes: packed,
            };
            let presented = 0..out.len() as u64;
            let mut segments = OutSegments::from_slice(out);
            decoder.expand(window, presented, &mut segments).unwrap();
        };
        let row = alternate(self.rounds, len, wide, out, |_, out| {
            for (out, frame) in out.chunks_mut(frame_bytes).zip(&frames) {
                decode(out, frame);
            }
        });
        let (frame, out_frame) = (&wide[..frame_bytes], &mut out[..frame_bytes]);
        let cached = in_cache(frame, out_frame, |_, out| decode(out, &frames[0]));
        row.print(&format!("{text} decode"), &[cached]);
        assert!(wide == out, "{text}: decoded something else");
    }
}
