//! Element steps alone, and what packing by them measures before.

use transforms::{
    Chain, Decoder, ElementType, LossMeter, OutSegments, PackedWindow, RowMaxima, TableKind,
    ViewChain,
};

use super::data::{fill, fill_groups, fill_numbers, fill_rows, scales};
use super::measure::{alternate, in_cache};
use super::{Bench, MIB, Memory};

/// Wide bytes of the runs in the cache: common requests.
const CACHED_BYTES: [usize; 2] = [16 << 10, 128 << 10];

impl Bench {
    pub(super) fn elements(&mut self) {
        use ElementType::{I16, I32, I64, U8, U16, U32, U64};
        let pairs = [
            (U32, U16),
            (U32, U8),
            (U16, U8),
            (U64, U32),
            (U64, U16),
            (U64, U8),
            (I32, I16),
            (I64, I32),
            (I64, U16),
        ];
        for (wide, narrow) in pairs {
            self.element_chain(wide, narrow.name(), ElementType::bits(narrow).min(31) - 1);
        }
        for bits in 1..=32 {
            if !self.options.quick || [1, 8, 12, 17, 18, 24, 31].contains(&bits) {
                self.element_chain(U32, &format!("bitpack:{bits}"), bits);
            }
        }
        for bits in [4, 10, 12, 15] {
            self.element_chain(U16, &format!("bitpack:{bits}"), bits);
        }
        for bits in [1, 4, 7] {
            self.element_chain(U8, &format!("bitpack:{bits}"), bits);
        }
        for bits in [17, 18, 32] {
            self.element_chain(U64, &format!("bitpack:{bits}"), bits);
        }
    }

    /// Floating point: stored narrower, and presented as it was.
    pub(super) fn floats(&mut self) {
        use ElementType::{Bf16, F16, F32, F64};
        for (wide, narrow) in [(F32, Bf16), (F32, F16), (F64, F32), (F64, Bf16), (F64, F16)] {
            self.float_chain(wide, narrow.name(), |packed| fill_numbers(packed, narrow));
        }
        for wide in [F32, Bf16] {
            self.float_chain(wide, "q8_0", fill_groups);
            self.float_chain(wide, "int8:1024", fill_rows);
            self.scales(wide);
        }
        self.loss(F32, Bf16);
        self.loss(F64, F32);
    }

    /// Encode and decode with numbers that the packed form holds, which `fill` makes.
    fn float_chain(&mut self, source: ElementType, narrow: &str, fill: impl Fn(&mut [u8])) {
        let chain = Chain::parse(narrow, source)
            .unwrap()
            .with_isa(self.options.isa);
        let elements = self.memory.wide.len() / source.bytes();
        let chain = match chain.missing_table() {
            Some(TableKind::Scales) => chain.with_table(scales(elements / 1024)).unwrap(),
            _ => chain,
        };
        let names = [
            format!("{source} -> {narrow}"),
            format!("{narrow} -> {source}"),
        ];
        if !names.iter().any(|name| self.wanted(name)) {
            return;
        }
        let Memory { wide, out, packed } = &mut self.memory;
        let wide_bytes = wide.len();
        let packed_bytes = chain.packed_bytes((wide_bytes / source.bytes()) as u64);
        let packed = &mut packed[..usize::try_from(packed_bytes).unwrap()];
        let decoder = Decoder::new(&chain, &ViewChain::identity(), None).unwrap();
        fill(packed);
        expand(&decoder, packed, wide);
        let scratch = &mut self.scratch;
        let row = alternate(self.rounds, wide_bytes, wide, out, |wide, _| {
            chain.encode_frame(wide, scratch, packed).unwrap();
        });
        let cached = CACHED_BYTES.map(|bytes| {
            in_cache(&wide[..bytes], &mut out[..bytes], |wide, _| {
                chain.encode_frame(wide, scratch, packed).unwrap();
            })
        });
        row.print(&names[0], &cached);
        let present = |_: &[u8], out: &mut [u8]| expand(&decoder, packed, out);
        let row = alternate(self.rounds, wide_bytes, wide, out, present);
        let cached = CACHED_BYTES.map(|bytes| in_cache(&wide[..bytes], &mut out[..bytes], present));
        row.print(&names[1], &cached);
        assert!(wide == out, "{narrow}: presented something else");
    }

    /// Finding the scales of rows: what packing them reads the input for before.
    fn scales(&mut self, source: ElementType) {
        let name = format!("scales of int8:1024 of {source}");
        if !self.wanted(&name) {
            return;
        }
        let chain = Chain::parse("int8:1024", source)
            .unwrap()
            .with_isa(self.options.isa);
        fill_numbers(self.memory.wide, source);
        let Memory { wide, out, .. } = &mut self.memory;
        let find = |wide: &[u8], _: &mut [u8]| {
            let mut maxima = RowMaxima::new(&chain).unwrap();
            maxima.add(wide).unwrap();
            std::hint::black_box(maxima.scales().unwrap());
        };
        let row = alternate(self.rounds, wide.len(), wide, out, find);
        let cached = CACHED_BYTES.map(|bytes| in_cache(&wide[..bytes], &mut out[..bytes], find));
        row.print(&name, &cached);
    }

    /// Measuring what rounding does.
    fn loss(&mut self, source: ElementType, narrow: ElementType) {
        let name = format!("loss of {source} as {narrow}");
        if !self.wanted(&name) {
            return;
        }
        let chain = Chain::parse(narrow.name(), source)
            .unwrap()
            .with_isa(self.options.isa);
        fill_numbers(self.memory.wide, source);
        let Memory { wide, out, .. } = &mut self.memory;
        let (wide, out) = (&wide[..96 * MIB], &mut out[..96 * MIB]);
        let measure = |wide: &[u8], _: &mut [u8]| {
            let mut meter = LossMeter::new(&chain, &ViewChain::identity()).unwrap();
            meter.add(wide).unwrap();
            std::hint::black_box(meter.finish());
        };
        let row = alternate(self.rounds, wide.len(), wide, out, measure);
        row.print(&name, &[]);
    }

    /// Encode and decode of an unframed chain, with values of `bits` bits, the last one among them.
    fn element_chain(&mut self, source: ElementType, text: &str, bits: u32) {
        let chain = Chain::parse(text, source)
            .unwrap()
            .with_isa(self.options.isa);
        let names = [format!("{source} -> {text}"), format!("{text} -> {source}")];
        if !names.iter().any(|name| self.wanted(name)) {
            return;
        }
        fill(self.memory.wide, source.bytes(), bits);
        let Memory { wide, out, packed } = &mut self.memory;
        let wide_bytes = wide.len();
        let packed_bytes = wide_bytes / source.bytes() * chain.packed_bits() as usize / 8;
        let packed = &mut packed[..packed_bytes];
        let scratch = &mut self.scratch;
        let mut range = None;
        let row = alternate(self.rounds, wide_bytes, wide, out, |wide, _| {
            range = chain.encode_frame(wide, scratch, packed).unwrap().range;
        });
        let cached = CACHED_BYTES.map(|bytes| {
            in_cache(&wide[..bytes], &mut out[..bytes], |wide, _| {
                chain.encode_frame(wide, scratch, packed).unwrap();
            })
        });
        row.print(&names[0], &cached);
        chain.encode_frame(wide, scratch, packed).unwrap();

        let decoder = Decoder::new(&chain, &ViewChain::identity(), range).unwrap();
        let expand = |_: &[u8], out: &mut [u8]| {
            let window = PackedWindow {
                first_byte: 0,
                bytes: packed,
            };
            let presented = 0..out.len() as u64;
            let mut segments = OutSegments::from_slice(out);
            decoder.expand(window, presented, &mut segments).unwrap();
        };
        let row = alternate(self.rounds, wide_bytes, wide, out, expand);
        let cached = CACHED_BYTES.map(|bytes| in_cache(&wide[..bytes], &mut out[..bytes], expand));
        row.print(&names[1], &cached);
        assert!(wide == out, "{text}: decoded something else");
    }
}

/// Presents all of `packed`, from the first element on, as far as `out` goes.
fn expand(decoder: &Decoder, packed: &[u8], out: &mut [u8]) {
    let window = PackedWindow {
        first_byte: 0,
        bytes: packed,
    };
    let presented = 0..out.len() as u64;
    let mut segments = OutSegments::from_slice(out);
    decoder.expand(window, presented, &mut segments).unwrap();
}
