//! Chains: what was done to elements, and what is done to present them.

use transforms::{Chain, ElementType, Step, Table, TableKind, TransformId, ViewChain};
use zerocopy::IntoBytes;

use super::BlobIndex;
use super::blob::{Blob, BlobKind, check_blob_kind};
use super::directory::{Bounds, parse_element};
use super::field::Fields;
use super::raw::{NONE, RawChain, RawStep};
use crate::error::{Place, VolumeError};

/// A chain, by what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainUse {
    /// How a source was encoded.
    Stored(Chain),
    /// How a stream of this element type is presented.
    View(ElementType, ViewChain),
}

impl ChainUse {
    /// The chain, and the blob of each table that a step of it takes: it does nothing before it gets them.
    pub(crate) fn parse(
        raw: &RawChain,
        place: Place,
        bounds: &Bounds,
        blobs: &[Blob],
    ) -> Result<(ChainUse, Vec<(TableKind, BlobIndex)>), VolumeError> {
        let fields = Fields { place };
        let element = parse_element(fields, raw.element_type)?;
        fields.zero("reserved bytes 3 to 15", &raw.reserved_3)?;
        let count = usize::from(raw.step_count);
        let (used, unused) = raw.steps.split_at_checked(count).ok_or_else(|| {
            fields.malformed(
                "step_count",
                format_args!("0 to {}", raw.steps.len()),
                raw.step_count,
            )
        })?;
        fields.zero("unused steps", unused.as_bytes())?;
        let mut steps = Vec::with_capacity(count);
        for step in used {
            fields.equal("reserved bytes of a step", step.reserved_12.get(), 0)?;
            steps.push(Step {
                id: TransformId(step.transform.get()),
                version: step.version.get(),
                parameter: step.parameter.get(),
            });
        }
        let refused = |error| VolumeError::Transform { place, error };
        let chain = match raw.role {
            0 => ChainUse::Stored(Chain::from_steps(&steps, element).map_err(refused)?),
            1 => {
                let view = ViewChain::from_steps(&steps, element).map_err(refused)?;
                ChainUse::View(element, view)
            }
            other => return Err(fields.unsupported("use", other, "0 (stored), 1 (view)")),
        };
        // Last, so that an unknown transform which needs a blob is refused by its own name first.
        let mut tables = Vec::new();
        for step in used {
            const FIELD: &str = "blob of a step";
            let taken = TransformId(step.transform.get()).table_kind();
            match (bounds.optional_blob(fields, FIELD, step.blob.get())?, taken) {
                (Some(blob), Some(kind)) => {
                    check_blob_kind(fields, FIELD, blob, BlobKind::of_table(kind), blobs)?;
                    tables.push((kind, blob));
                }
                (None, Some(TableKind::Ranks)) => {
                    return Err(fields.malformed(FIELD, "a rank table's", "none"));
                }
                (None, Some(TableKind::Scales)) => {
                    return Err(fields.malformed(FIELD, "that of its scales", "none"));
                }
                (None, Some(TableKind::Dictionary)) => {
                    return Err(fields.malformed(FIELD, "a dictionary's", "none"));
                }
                (Some(_), None) => {
                    let known = "none: this transform takes none";
                    return Err(fields.unsupported(FIELD, step.blob, known));
                }
                (None, None) => {}
            }
        }
        Ok((chain, tables))
    }

    /// The table of this kind, where the chain has one.
    #[must_use]
    pub fn table(&self, kind: TableKind) -> Option<&Table> {
        match self {
            ChainUse::Stored(chain) => chain.table(kind),
            ChainUse::View(..) => None,
        }
    }

    /// The tables that it has, in the order of their steps.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        let stored = match self {
            ChainUse::Stored(chain) => Some(chain),
            ChainUse::View(..) => None,
        };
        stored.into_iter().flat_map(Chain::tables)
    }

    /// The entry as it is stored. `blob_of` says which blob a table of its is.
    #[must_use]
    pub fn to_raw(&self, blob_of: impl Fn(&Table) -> Option<BlobIndex>) -> RawChain {
        let (role, element, used) = match self {
            ChainUse::Stored(chain) => (0, chain.source(), chain.steps()),
            ChainUse::View(element, view) => (1, *element, view.steps()),
        };
        let mut steps = [RawStep {
            transform: 0.into(),
            version: 0.into(),
            parameter: 0.into(),
            blob: 0.into(),
            reserved_12: 0.into(),
        }; super::raw::CHAIN_STEPS_MAX];
        for (to, step) in steps.iter_mut().zip(used) {
            to.transform = step.id.0.into();
            to.version = step.version.into();
            to.parameter = step.parameter.into();
            let table = step.id.table_kind().and_then(|kind| self.table(kind));
            let blob = table.and_then(&blob_of);
            to.blob = blob.map_or(NONE, |blob| blob.0).into();
        }
        // A chain has at most CHAIN_STEPS_MAX steps: the transforms crate has the same limit, asserted below.
        #[allow(clippy::cast_possible_truncation)]
        let step_count = used.len() as u8;
        RawChain {
            element_type: element.code(),
            step_count,
            role,
            reserved_3: [0; 13],
            steps,
        }
    }
}

const _: () = assert!(transforms::CHAIN_STEPS_MAX == super::raw::CHAIN_STEPS_MAX);
