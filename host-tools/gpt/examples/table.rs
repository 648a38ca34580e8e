//! A partition table on a sparse file, for sgdisk and sfdisk to look at.
//!
//! ```text
//! table DISK 512|4096 NAME=BYTES...
//! ```

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use gpt::{LbaBytes, Partition, lay_out};

type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "table DISK 512|4096 NAME=BYTES...";

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, lba, given @ ..] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let lba = match lba.as_str() {
        "512" => LbaBytes::B512,
        "4096" => LbaBytes::B4096,
        _ => return Err(USAGE.into()),
    };
    let mut partitions = Vec::new();
    for (number, one) in (1u8..).zip(given) {
        let (name, bytes) = one.split_once('=').ok_or(USAGE)?;
        partitions.push(Partition {
            name: name.as_bytes(),
            uuid: [number; 16],
            bytes: bytes.parse()?,
        });
    }
    let layout = lay_out(lba, [0xD1; 16], &partitions)?;
    let mut disk = File::create(path)?;
    disk.set_len(layout.disk_bytes())?;
    disk.write_all(&layout.head())?;
    disk.seek(SeekFrom::Start(layout.tail_offset()))?;
    disk.write_all(&layout.tail())?;
    for place in layout.places() {
        println!("{} at {}", place.name, place.first_byte);
    }
    Ok(())
}
