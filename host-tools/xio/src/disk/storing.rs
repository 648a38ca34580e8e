//! How the files of a disk are stored: what the command line says, run by run.

use anyhow::anyhow;
use dataset::{Catalogue, FileId, Run, Runs, Scan, Storage, Stored};
use transforms::{Chain, ElementType, Packing};

use super::rule::Rule;
use crate::failure::Failure;

/// What the command line says.
pub struct Storing<'a> {
    /// The first that fits one of a file's names decides.
    pub rules: &'a [Rule],
    /// For what no rule fits.
    pub chain: Option<&'a str>,
    pub frame_bytes: u64,
}

impl Storing<'_> {
    /// Puts every run into a stream.
    pub fn storage(
        &self,
        scan: &Scan,
        _catalogue: &Catalogue,
        runs: Runs,
    ) -> Result<Storage, Failure> {
        Storage::packed(scan, runs, |id, run| self.stored(scan, id, run))
    }

    fn stored(&self, scan: &Scan, id: FileId, run: &Run) -> Result<Stored, Failure> {
        let rule = self.rules.iter().find(|rule| {
            let names = scan.entries.iter().filter(|entry| entry.file() == Some(id));
            names
                .into_iter()
                .any(|entry| rule.pattern.fits(&entry.path))
        });
        let text = rule.map(|rule| rule.chain.as_str()).or(self.chain);
        let text = text.unwrap_or("none");
        let chain = chain_for(text, run.element).map_err(|why| {
            let path = scan.file(id).map(|file| file.path.display().to_string());
            let path = path.unwrap_or_default();
            Failure::usage(anyhow!(
                "{path}: {} cannot be stored as {text}: {why}; say how it is stored with --store '{}=CHAIN'",
                run.element,
                path.rsplit('/').next().unwrap_or_default(),
            ))
        })?;
        Ok(Stored {
            chain,
            frame_bytes: self.frame_bytes,
        })
    }
}

/// The chain for a run. Bytes that are no elements (headers, text) are not narrowed or widened: of a chain they get what is done to frames.
fn chain_for(text: &str, element: ElementType) -> Result<Chain, transforms::TransformError> {
    if element != ElementType::U8 {
        return Chain::parse(text, element);
    }
    let plain = |chain: &Chain| chain.packing() == Packing::Whole(ElementType::U8);
    let steps = text.split('+').filter(|step| {
        Chain::parse(step, ElementType::U8).is_ok_and(|chain| chain.is_framed() && plain(&chain))
    });
    let steps: Vec<&str> = steps.collect();
    let text = if steps.is_empty() {
        "none".to_owned()
    } else {
        steps.join("+")
    };
    Chain::parse(&text, ElementType::U8)
}
