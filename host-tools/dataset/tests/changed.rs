//! Files that another process writes to while a volume is made of them, in the way that leaves no trace in their length and time.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dataset::{
    Catalogue, DatasetError, FileId, Hints, Made, Plan, Precisions, Run, Runs, Scan, Shape,
    Storage, Stored, View,
};
use sha2::{Digest, Sha256};
use transforms::Chain;
use volume::write::{FRAME_BYTES_DEFAULT, FileOutput, Integrity, Options};

const ELEMENTS: usize = 700_000;
/// Of the array's file: the 128 bytes of its header come first.
const FILE_BYTES: u64 = 128 + ELEMENTS as u64 * 4;

/// An array of NumPy's, of more than two of the parts that files are read in.
fn array(folder: &Path) -> PathBuf {
    let mut header = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({ELEMENTS},), }}");
    header.extend(shape.as_bytes());
    header.resize(127, b' ');
    header.push(b'\n');
    let elements = (0..ELEMENTS).flat_map(|n| (n as f32).to_le_bytes());
    let path = folder.join("array.npy");
    fs::write(
        &path,
        header.into_iter().chain(elements).collect::<Vec<_>>(),
    )
    .unwrap();
    path
}

/// Elements without a header, which are a stream of their own: the digest that the survey made is the stream's.
fn elements(folder: &Path) -> PathBuf {
    let path = folder.join("elements.bin");
    let elements = (0..ELEMENTS).flat_map(|n| u32::try_from(n).unwrap().to_le_bytes());
    fs::write(&path, elements.collect::<Vec<_>>()).unwrap();
    path
}

/// Changes a byte as a shared mapping does before it is written back.
fn spoil(path: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_modified(modified).unwrap();
}

/// When the byte is changed.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Never,
    /// Between the survey and the rest.
    Surveyed,
    /// When so many bytes were packed or mapped.
    Read(u64),
}

/// Makes a volume of a file, in its folder, and changes byte `at` of it meanwhile.
fn make(
    path: &Path,
    is_mapped: bool,
    types: &str,
    (when, at): (When, u64),
) -> Result<Made, DatasetError> {
    let folder = path.parent().unwrap();
    let scan = Scan::new(&[path.to_owned()])?;
    let catalogue = Catalogue::new(&scan, &Hints::default())?;
    let precisions: Precisions = types.parse().unwrap();
    let views = precisions
        .0
        .iter()
        .map(|it| View::new(&scan, &catalogue, it));
    let views: Vec<View> = views.collect::<Result<_, _>>()?;
    let runs = Runs::new(&scan, &catalogue, &views);
    let has_header = path.ends_with("array.npy");
    assert_eq!(runs.of(FileId(0)).len(), 1 + usize::from(has_header));
    let surveyed = dataset::survey::survey(&scan, &runs, &|_| true, 2, &|_| {})?;
    let plain = |_: FileId, run: &Run| {
        Ok::<_, DatasetError>(Stored {
            chain: Chain::parse("none", run.element).unwrap(),
            frame_bytes: FRAME_BYTES_DEFAULT,
        })
    };
    let storage = match is_mapped {
        true => Storage::mapped(&scan, runs, 0, plain)?,
        false => Storage::packed(&scan, runs, plain)?,
    };
    let plan = Plan {
        scan: &scan,
        catalogue: &catalogue,
        views: &views,
        storage: &storage,
        surveyed: &surveyed,
        integrity: Integrity::Crc32c,
        shape: Shape::Filesystem,
        name: "v".to_owned(),
        label: String::new(),
        with_manifest: true,
        options: Options {
            lba_bytes: 4096,
            threads: 1,
            volume_uuid: None,
            writer: "test".to_owned(),
        },
    };
    if when == When::Surveyed {
        spoil(path, at);
    }
    let output = FileOutput::create(&folder.join("v.xio"), false)?;
    let mut left = Some(at);
    plan.make(output, folder, &mut |bytes| {
        if matches!(when, When::Read(enough) if bytes >= enough)
            && let Some(at) = left.take()
        {
            spoil(path, at);
        }
    })
}

#[test]
fn bytes_that_are_not_those_that_were_read_first_are_no_volume() {
    let first = 128;
    let last = FILE_BYTES - 1;
    for (is_mapped, types, when, at) in [
        // To be stored: the header, the first part, the last.
        (false, "source", When::Surveyed, 0),
        (false, "source", When::Surveyed, first),
        (false, "source", When::Surveyed, last),
        // To be measured.
        (false, "source,f16", When::Read(FILE_BYTES), first),
        (false, "source,f16", When::Read(FILE_BYTES), last),
        (true, "source", When::Surveyed, last),
        (true, "f16", When::Surveyed, last),
        (true, "f16", When::Read(FILE_BYTES), last),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let made = make(&array(&folder), is_mapped, types, (when, at));
        let what = format!("mapped {is_mapped}, {types}, byte {at}");
        match made {
            Err(DatasetError::Changed { path, .. }) => {
                assert_eq!(path, folder.join("array.npy"), "{what}");
            }
            made => panic!("{what}: {made:?}"),
        }
        assert!(File::open(folder.join("v.xio")).is_err(), "{what}");
    }
}

#[test]
fn bytes_that_stay_are_a_volume() {
    for (is_mapped, types) in [(false, "source,f16"), (true, "source"), (true, "f16")] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let made = make(&array(&folder), is_mapped, types, (When::Never, 0)).unwrap();
        assert!(made.disk_bytes > 0);
    }
}

#[test]
fn a_digest_that_is_made_once_is_of_the_bytes_that_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = elements(&folder.path().canonicalize().unwrap());
    let made = make(&path, false, "source", (When::Never, 0)).unwrap();
    let sha256: [u8; 32] = Sha256::digest(fs::read(&path).unwrap()).into();
    assert_eq!(made.streams[0].sha256, sha256);
    assert_eq!(made.streams[0].elements_sha256, sha256);
    fs::remove_file(folder.path().join("v.xio")).unwrap();
    // Behind a header they are not the file.
    let array = array(path.parent().unwrap());
    let made = make(&array, false, "source", (When::Never, 0)).unwrap();
    let elements: [u8; 32] = Sha256::digest(&fs::read(&array).unwrap()[128..]).into();
    assert_eq!(made.streams[1].sha256, elements);
    fs::remove_file(folder.path().join("v.xio")).unwrap();
    for at in [0, 1 << 20, ELEMENTS as u64 * 4 - 1] {
        match make(&path, false, "source", (When::Surveyed, at)) {
            Err(DatasetError::Changed { path: of, .. }) => assert_eq!(of, path, "{at}"),
            made => panic!("{at}: {made:?}"),
        }
        assert!(File::open(folder.path().join("v.xio")).is_err(), "{at}");
    }
}
