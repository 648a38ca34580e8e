//! How the files of a disk are stored: what the command line says, run by run; and what is chosen where it says nothing.

use anyhow::anyhow;
use dataset::choose::{self, Choices, Said, Wish};
use dataset::{FileId, Names, Run, Scan, Stored};
use transforms::{Chain, ElementType, Packing};
use volume::write::{FRAME_BYTES_DEFAULT, StreamSpec};

use super::rule::Rule;
use crate::cli;
use crate::failure::Failure;
use crate::progress::Progress;

/// What stands for a chain that is chosen.
pub const AUTO: &str = "auto:lossless";

/// What the command line says.
pub struct Storing<'a> {
    /// The first that fits one of a file's names decides.
    pub rules: &'a [Rule],
    /// For what no rule fits.
    chain: &'a str,
    /// Of chains that are named.
    frame_bytes: u64,
    /// For those that are not.
    pub wish: Wish,
}

impl<'a> Storing<'a> {
    /// What the command line says; where it says nothing, chains are chosen.
    ///
    /// # Errors
    /// A frame that no stream has.
    pub fn new(arguments: &'a cli::Storing) -> Result<Storing<'a>, Failure> {
        let wish = arguments.wish();
        let storing = Storing {
            rules: &arguments.rules,
            chain: arguments.store_as.as_deref().unwrap_or(AUTO),
            frame_bytes: wish.frame_bytes.unwrap_or(FRAME_BYTES_DEFAULT),
            wish,
        };
        // The widest elements, so that it is a frame of any type.
        let chain = Chain::parse("lz4", ElementType::U64).map_err(Failure::usage)?;
        let widest = StreamSpec {
            frame_bytes: storing.frame_bytes,
            ..StreamSpec::new(chain)
        };
        widest.check()?;
        Ok(storing)
    }

    /// Nothing is done to the bytes.
    pub fn as_it_is() -> Storing<'static> {
        Storing {
            rules: &[],
            chain: "none",
            frame_bytes: FRAME_BYTES_DEFAULT,
            wish: Wish::default(),
        }
    }

    /// Chooses for the runs that nothing is said of. `with_said`: tries also the chains that are named, to know what they make.
    pub fn choose(
        &self,
        dataset: choose::Dataset<'_>,
        with_said: bool,
        threads: usize,
    ) -> Result<Choices, Failure> {
        let names = Names::new(dataset.scan);
        let said = |id, run: &Run| {
            let said = self.said((dataset.scan, &names), id, run)?;
            Ok(match said {
                None => Said::Nothing,
                Some(stored) if with_said => Said::Stored(stored),
                Some(_) => Said::Skip,
            })
        };
        let progress = Progress::start("trying chains", Some(0));
        let on_progress = |done, total| progress.set_of(done, total);
        choose::choose(dataset, &self.wish, said, threads, &on_progress)
    }

    /// How a run of a file is stored.
    pub fn stored(
        &self,
        (scan, names): (&Scan, &Names<'_>),
        choices: &Choices,
        id: FileId,
        run: &Run,
    ) -> Result<Stored, Failure> {
        if let Some(stored) = self.said((scan, names), id, run)? {
            return Ok(stored);
        }
        choices.stored(id, run).ok_or_else(|| {
            let path = scan.file(id).map(|file| file.path.display().to_string());
            Failure::system(anyhow!("{}: no chain was chosen", path.unwrap_or_default()))
        })
    }

    /// What is said of a run of a file, if anything.
    pub fn said(
        &self,
        (scan, names): (&Scan, &Names<'_>),
        id: FileId,
        run: &Run,
    ) -> Result<Option<Stored>, Failure> {
        let fits = |rule: &&Rule| names.of(id).iter().any(|path| rule.pattern.fits(path));
        let rule = self.rules.iter().find(fits);
        let text = rule.map_or(self.chain, |rule| rule.chain.as_str());
        if text == AUTO {
            return Ok(None);
        }
        let chain = chain_for(text, run.element).map_err(|why| {
            let path = scan.file(id).map(|file| file.path.display().to_string());
            let path = path.unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            let advice = match rule {
                None => format!("say how it is stored with --store '{name}=CHAIN'"),
                // The first that fits decides: another one behind it would be for nothing.
                Some(Rule { pattern, chain }) => format!(
                    "change --store '{pattern}={chain}', or put --store '{name}=CHAIN' before it"
                ),
            };
            Failure::usage(anyhow!(
                "{path}: {} cannot be stored as {text}: {why}; {advice}",
                run.element
            ))
        })?;
        if chain.contract().is_lossy() {
            return Err(Failure::usage(anyhow!(
                "{text} rounds, and what a disk stores are the sources' exact bytes: present them rounded, with --present-as"
            )));
        }
        Ok(Some(Stored {
            chain,
            frame_bytes: self.frame_bytes,
        }))
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
