//! Where what the chain of a stream does is counted: as a whole, and by transform.

use std::sync::Arc;

use telemetry::{DecodeRow, NamespaceRow, TransformRow};
use transforms::{BlockTimes, Chain, codecs};

/// What conversions of a stream without element steps are called: its views'.
const VIEW: &str = "view";
/// The number of the first block step that is a compressor; below it is the shuffle, and below that are element steps (docs/format.md, \"Transforms\").
const FIRST_COMPRESSOR: u16 = 0x0101;
const FIRST_BLOCK_STEP: u16 = 0x0100;
/// It stands where a shuffle may.
const RANK: u16 = codecs::rank::ID.0;

/// The rows of a stream.
#[derive(Debug)]
pub(crate) struct ChainRows {
    frames: Arc<DecodeRow>,
    /// Undone as a read is answered, with what the view converts.
    elements: Arc<TransformRow>,
    reorder: Option<Arc<TransformRow>>,
    compress: Option<Arc<TransformRow>>,
}

impl ChainRows {
    /// Those of a chain.
    pub(crate) fn of(chain: &Chain, row: &NamespaceRow) -> Arc<Self> {
        let text = chain.to_string();
        let (mut elements, mut reorder, mut compress) = (Vec::new(), None, None);
        for (step, name) in chain.steps().iter().zip(text.split('+')) {
            match step.id.0 {
                ..FIRST_BLOCK_STEP => elements.push(name),
                FIRST_BLOCK_STEP..FIRST_COMPRESSOR | RANK => reorder = Some(row.transform(name)),
                FIRST_COMPRESSOR.. => compress = Some(row.transform(name)),
            }
        }
        let elements = match elements.as_slice() {
            [] => VIEW.to_owned(),
            steps => steps.join("+"),
        };
        Arc::new(Self {
            frames: row.decoder(&text),
            elements: row.transform(&elements),
            reorder,
            compress,
        })
    }

    /// A frame was checked and its block steps undone, in `ns` all together.
    pub(crate) fn decoded(&self, packed_bytes: u32, ns: u64, times: BlockTimes) {
        let packed_bytes = u64::from(packed_bytes);
        self.frames.decoded(packed_bytes, ns);
        for (row, ns) in [
            (&self.compress, times.compress_ns),
            (&self.reorder, times.reorder_ns),
        ] {
            if let Some(row) = row
                && ns > 0
            {
                row.undone(packed_bytes, ns);
            }
        }
    }

    /// Elements were made for a read.
    pub(crate) fn expanded(&self, bytes: u64, ns: u64) {
        self.elements.undone(bytes, ns);
    }
}

#[cfg(test)]
mod tests {
    use telemetry::{Telemetry, TelemetryConfig};
    use transforms::ElementType;

    use super::*;

    #[test]
    fn each_step_has_a_row_and_one_that_was_left_out_counts_nothing() {
        let telemetry = Telemetry::new(&TelemetryConfig::default());
        let row = telemetry.reactor(0).unwrap().namespace([1; 16], "file:/a");
        let rows = |text: &str| {
            let chain = Chain::parse(text, ElementType::U32).unwrap();
            ChainRows::of(&chain, &row)
        };
        let (both, raw) = (rows("u16+shuffle+zstd:3"), rows("none"));
        let ranked = rows("rank+lz4");
        let times = BlockTimes {
            compress_ns: 30,
            reorder_ns: 10,
        };
        both.decoded(100, 50, times);
        both.decoded(100, 7, BlockTimes::default());
        both.expanded(400, 5);
        raw.expanded(64, 2);
        ranked.decoded(10, 9, times);
        let namespaces = telemetry.snapshot().namespaces;
        let transforms = namespaces[0].transforms.iter();
        let told: Vec<_> = transforms
            .map(|it| (&it.transform[..], it.bytes, it.busy_ns))
            .collect();
        let expected = [
            ("lz4", 10, 30),
            ("rank", 10, 10),
            ("shuffle", 100, 10),
            ("u16", 400, 5),
            ("view", 64, 2),
            ("zstd:3", 100, 30),
        ];
        assert_eq!(told, expected);
        let decoders = &namespaces[0].decoders;
        let decoder = decoders.iter().find(|it| it.frames > 1).unwrap();
        assert_eq!((decoder.frames, decoder.busy_ns), (2, 57));
    }
}
