//! Files that go away with the test.

use std::fs::{File, OpenOptions as FsOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use store::{OpenOptions, SharedStore, StoreSpec};

pub struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    /// On the file system of temporary files.
    pub fn on_disk() -> Self {
        Self::in_folder(std::env::temp_dir())
    }

    /// On a tmpfs, where there is one.
    pub fn in_memory() -> Option<Self> {
        let folder = PathBuf::from("/dev/shm");
        folder.is_dir().then(|| Self::in_folder(folder))
    }

    fn in_folder(folder: PathBuf) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = folder.join(format!(
            "store-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let file = FsOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        Self { path, file }
    }

    pub fn spec(&self) -> String {
        format!("file:{}", self.path.display())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn resize(&self, bytes: u64) {
        self.file.set_len(bytes).unwrap();
    }

    /// Makes it `bytes` long and opens it.
    pub fn filled(&self, bytes: u64, options: OpenOptions) -> SharedStore {
        self.resize(bytes);
        SharedStore::open(&StoreSpec::parse(&self.spec()).unwrap(), options).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
