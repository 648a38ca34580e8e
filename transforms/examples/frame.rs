//! One frame through a chain, from standard input to standard output: for scripts and for looking at what a chain makes.
//!
//! `cargo run -p transforms --example frame -- encode u16+lz4 u32 < values.bin > frame.bin`
//! `cargo run -p transforms --example frame -- decode u16+lz4 u32 1000 < frame.bin > values.bin` (1000 elements)
//!
//! Behind these come the tables of the chain, a file for each step that takes one.

use std::io::{Read, Write};

use transforms::{
    Chain, Decoder, OutSegments, PackedWindow, Scratch, Table, TransformError, ViewChain,
};

const USAGE: &str =
    "usage: frame encode CHAIN TYPE [TABLE...] | frame decode CHAIN TYPE ELEMENTS [TABLE...]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut input = Vec::new();
    let output = match arguments[..] {
        ["encode", chain, source, ref tables @ ..] => {
            std::io::stdin().read_to_end(&mut input)?;
            encode(&given(chain, source, tables)?, &input)?
        }
        ["decode", chain, source, elements, ref tables @ ..] => {
            std::io::stdin().read_to_end(&mut input)?;
            decode(&given(chain, source, tables)?, &input, elements.parse()?)?
        }
        _ => return Err(USAGE.into()),
    };
    std::io::stdout().write_all(&output)?;
    Ok(())
}

/// The chain with its tables.
fn given(text: &str, source: &str, tables: &[&str]) -> Result<Chain, Box<dyn std::error::Error>> {
    let mut chain = Chain::parse(text, source.parse()?)?;
    for path in tables {
        let kind = chain.missing_table().ok_or(USAGE)?;
        chain = chain.with_table(Table::parse(kind, &std::fs::read(path)?)?)?;
    }
    Ok(chain)
}

fn encode(chain: &Chain, source: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let elements = (source.len() / chain.source().bytes()) as u64;
    let mut stored = vec![0; usize::try_from(chain.stored_bytes_max(elements))?];
    let encoded = chain.encode_frame(source, &mut Scratch::new(), &mut stored)?;
    stored.truncate(encoded.stored_bytes);
    Ok(stored)
}

fn decode(chain: &Chain, stored: &[u8], elements: usize) -> Result<Vec<u8>, TransformError> {
    let packed_bytes = chain.packed_bytes(elements as u64);
    let mut packed = vec![0; usize::try_from(packed_bytes).unwrap_or(usize::MAX)];
    chain.unblock(stored, &mut Scratch::new(), &mut packed)?;
    let mut out = vec![0; elements * chain.source().bytes()];
    let window = PackedWindow {
        first_byte: 0,
        bytes: &packed,
    };
    let presented = 0..out.len() as u64;
    let decoder = Decoder::new(chain, &ViewChain::identity(), None)?;
    decoder.expand(window, presented, &mut OutSegments::from_slice(&mut out))?;
    Ok(out)
}
