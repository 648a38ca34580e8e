//! How large a volume will be, before anything is packed: all of it is laid out but the streams, which are taken for as long as the caller says.

use std::collections::BTreeMap;

use formats::Part;
use sha2::{Digest, Sha256};
use transforms::{Loss, Worst};
use volume::write::{Nowhere, Writer};

use crate::DatasetError;
use crate::make::{Changed, Plan};
use crate::measure::{self, Losses, Measured};
use crate::scan::{FileId, SourceFile};
use crate::storage::StreamPlan;

/// A digest that is not known yet is taken for one that compresses as little.
fn some_digest(of: impl std::fmt::Debug) -> [u8; 32] {
    Sha256::digest(format!("{of:?}")).into()
}

impl Plan<'_> {
    /// The length of the volume that [`make`](Plan::make) writes: `stored_bytes` says what each stream takes of it. Where that is right, it differs by the
    /// digits of a manifest and what compressing them makes of that: some hundred bytes for each stream and each file that a view changes.
    ///
    /// # Errors
    /// What no disk or volume can be, as [`make`](Plan::make) says it.
    pub fn volume_bytes(
        &self,
        stored_bytes: &dyn Fn(&StreamPlan) -> u64,
    ) -> Result<u64, DatasetError> {
        let mut writer = Writer::new(Nowhere, self.options.clone())?;
        let mut streams = Vec::with_capacity(self.storage.streams.len());
        for plan in &self.storage.streams {
            let spec = self.spec(plan);
            let mut stream = writer.assume_stream(&spec, plan.bytes, stored_bytes(plan))?;
            stream.proven = spec.chain.source().range();
            streams.push(stream);
        }
        for &id in self.storage.mapped_files() {
            let Some(file) = self.scan.file(id) else {
                continue;
            };
            let locator = locator(file);
            let regions = self.regions(id);
            let mapped = writer.assume_file(&locator, file.bytes, &regions)?;
            let types = regions.iter().map(|region| region.element.range());
            streams.extend(mapped.into_iter().zip(types).map(|(mut stream, range)| {
                stream.proven = range;
                stream
            }));
        }
        let digest = |(id, _): (FileId, &SourceFile)| {
            let surveyed = self.surveyed.get(id.0 as usize).and_then(Option::as_ref);
            surveyed.map_or_else(|| some_digest(id), |surveyed| surveyed.sha256)
        };
        let digests: Vec<[u8; 32]> = self.scan.files().map(digest).collect();
        self.present(&mut writer, &streams, &digests, &self.assume_changed()?)?;
        Ok(writer.volume_bytes())
    }

    /// What will be measured of the files that views change.
    fn assume_changed(&self) -> Result<Vec<Changed>, DatasetError> {
        measure::each_changed(
            self.scan,
            self.views,
            1,
            |(view, entry), _, presentation| {
                Ok(Changed {
                    view,
                    entry,
                    bytes: presentation.bytes(),
                    measured: Measured {
                        sha256: some_digest((view, entry)),
                        losses: assume_losses(presentation.parts()),
                    },
                })
            },
        )
    }
}

/// Numbers of as many digits as those of real losses.
fn assume_losses(parts: &[Part]) -> Losses {
    let mut losses = BTreeMap::new();
    for part in parts {
        let Part::Converted {
            elements,
            stored,
            presented,
            ..
        } = part
        else {
            continue;
        };
        if stored.is_integer() {
            continue;
        }
        let loss: &mut Loss = losses.entry((*stored, *presented)).or_default();
        loss.elements += elements;
        loss.worst = Some(Worst {
            index: 0,
            source: std::f64::consts::PI,
            presented: std::f64::consts::E,
        });
    }
    losses
}

/// Where the volume will lie is not asked: the path from its folder on is shorter, by some bytes for each file.
fn locator(file: &SourceFile) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    file.path.as_os_str().as_bytes().to_vec()
}
