//! How the files of a disk are stored: what the command line says, run by run.

use anyhow::anyhow;
use dataset::{FileId, Names, Run, Scan, Stored};
use transforms::{Chain, ElementType, Packing};
use volume::write::FRAME_BYTES_DEFAULT;

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
    /// Nothing is done to the bytes.
    pub fn as_it_is() -> Storing<'static> {
        Storing {
            rules: &[],
            chain: None,
            frame_bytes: FRAME_BYTES_DEFAULT,
        }
    }

    /// How a run of a file is stored.
    pub fn stored(
        &self,
        (scan, names): (&Scan, &Names<'_>),
        id: FileId,
        run: &Run,
    ) -> Result<Stored, Failure> {
        let fits = |rule: &&Rule| names.of(id).iter().any(|path| rule.pattern.fits(path));
        let rule = self.rules.iter().find(fits);
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
        if chain.contract().is_lossy() {
            return Err(Failure::usage(anyhow!(
                "{text} rounds, and what a disk stores are the sources' exact bytes: present them rounded, with --present-as"
            )));
        }
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
