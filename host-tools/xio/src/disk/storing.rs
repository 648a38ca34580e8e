//! How the files of a disk are stored: what the command line says, run by run; and what is chosen where it says nothing.

use std::collections::BTreeMap;

use anyhow::anyhow;
use dataset::choose::{self, Choices, Said, Wish};
use dataset::{Catalogue, FileId, Names, Run, Scan, Stored};
use formats::Format;
use transforms::{Chain, ElementType, Packing, TransformError};
use volume::write::{FRAME_BYTES_DEFAULT, StreamSpec};

use super::notes;
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
    /// A chain that no elements can have; a frame that no stream has.
    pub fn new(arguments: &'a cli::Storing) -> Result<Storing<'a>, Failure> {
        let wish = arguments.wish();
        let storing = Storing {
            rules: &arguments.rules,
            chain: arguments.store_as.as_deref().unwrap_or(AUTO),
            frame_bytes: wish.frame_bytes.unwrap_or(FRAME_BYTES_DEFAULT),
            wish,
        };
        if let Some(text) = &arguments.store_as {
            check(format_args!("--store-as {text}"), text)?;
        }
        for Rule { pattern, chain } in &arguments.rules {
            check(format_args!("--store '{pattern}={chain}'"), chain)?;
        }
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
        let (rule, text) = self.text_of(names, id);
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

/// Files that an option is said of, and the rule that it is.
type Untyped<'a> = (Vec<FileId>, Option<&'a Rule>);

impl Storing<'_> {
    /// The rule that fits a file, and the chain that is said of it.
    fn text_of(&self, names: &Names<'_>, id: FileId) -> (Option<&Rule>, &str) {
        let fits = |rule: &&Rule| names.of(id).iter().any(|path| rule.pattern.fits(path));
        let rule = self.rules.iter().find(fits);
        (rule, rule.map_or(self.chain, |rule| rule.chain.as_str()))
    }

    /// Files whose type nobody knows, of which a step of elements was said, a line for each option: bytes do not get it.
    pub fn untyped(&self, scan: &Scan, catalogue: &Catalogue, names: &Names<'_>) -> Vec<String> {
        let mut said: BTreeMap<(String, ElementStep), Untyped<'_>> = BTreeMap::new();
        for (id, file) in scan.files() {
            let is_untyped = catalogue.get(id).is_none_or(|it| {
                it.description.format == Format::Unknown && it.description.payloads.is_empty()
            });
            let (rule, text) = self.text_of(names, id);
            let lost = ELEMENT_STEPS
                .iter()
                .find(|(step, _)| text.split('+').any(|it| it == *step));
            if let Some(step) = lost.filter(|_| is_untyped && file.bytes > 0) {
                let option = match rule {
                    Some(Rule { pattern, chain }) => format!("--store '{pattern}={chain}'"),
                    None => format!("--store-as {text}"),
                };
                let first = || (Vec::new(), rule);
                said.entry((option, *step)).or_insert_with(first).0.push(id);
            }
        }
        let told = said.into_iter().map(|((option, (step, element)), (files, rule))| {
            let (count, named) = (notes::count(files.len()), notes::named(&files, names));
            let which = match (rule, files.as_slice()) {
                (Some(rule), [_, _, ..]) => rule.pattern.to_string(),
                (_, files) => files.first().map_or_else(String::new, |id| notes::first_name(*id, names)),
            };
            format!(
                "{option}: {count} without an element type ({named}), stored without {step}; add --as '{which}={element}'"
            )
        });
        told.collect()
    }
}

/// A block step that bytes do not get, and a type that may have been meant.
type ElementStep = (&'static str, &'static str);
const ELEMENT_STEPS: [ElementStep; 2] = [("rank", "u32"), ("floatsplit", "bf16")];

/// Refuses what is a chain of no elements at all: of what is said of bytes without a type, those steps that they do not take are left out.
fn check(option: std::fmt::Arguments<'_>, text: &str) -> Result<(), Failure> {
    if text == AUTO {
        return Ok(());
    }
    let mut refused = Vec::new();
    for element in ElementType::ALL {
        match Chain::parse(text, element) {
            Ok(_) => return Ok(()),
            Err(error) => refused.push(error),
        }
    }
    // What is wrong for every type says more than what each type is not.
    let is_of_type = |error: &TransformError| matches!(error, TransformError::Input { .. });
    let why = refused.iter().find(|error| !is_of_type(error));
    match why.or(refused.first()) {
        Some(why) => Err(Failure::usage(anyhow!("{option}: {why}"))),
        None => Ok(()),
    }
}

/// The chain for a run. Bytes that are no elements (headers, text) are not narrowed or widened: of a chain they get what is done to frames.
fn chain_for(text: &str, element: ElementType) -> Result<Chain, TransformError> {
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
