//! What files are taken for, and which types are presented of them: what `xio pack`, `xio map` and `xio plan` are told.

use anyhow::anyhow;
use clap::Args;
use dataset::{Hints, Pattern, Precisions};

use crate::disk::rule::Typed;
use crate::failure::Failure;

/// What a PATTERN is, for the help of commands that have one.
pub const PATTERN_HELP: &str = "\
PATTERN: '*' is any run of characters. With a '/' in it, it is held against the path from the root of the disk ('train/*.bin'), otherwise against the
name ('*.bin'). Where several options of a kind fit a file, the first decides. An option whose pattern fits nothing is named, and nothing else happens.";

/// What is presented of which files.
#[derive(Debug, Args)]
pub struct Presenting {
    /// Types that are presented: 'source', element types, or rules, as the help of 'xio pack' explains them
    #[arg(long, value_name = "T[,T...]")]
    pub present_as: Vec<Precisions>,

    /// Files without a header are elements of this type, where their content says none; may be given again
    #[arg(long = "as", value_name = "PATTERN=TYPE")]
    pub types: Vec<Typed>,

    /// Files that are not looked into and stay as they are; may be given again
    #[arg(long, value_name = "PATTERN")]
    pub keep: Vec<Pattern>,

    /// Files and folders that are left out; may be given again
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<Pattern>,
}

impl Presenting {
    /// What is presented.
    pub fn precisions(&self) -> Result<Precisions, Failure> {
        Precisions::joined(&self.present_as)
            .map_err(|why| Failure::usage(anyhow!("--present-as: {why}")))
    }

    /// What files are taken for.
    pub fn hints(&self) -> Hints {
        let types = self.types.iter();
        Hints {
            types: types.map(|it| (it.pattern.clone(), it.element)).collect(),
            keep: self.keep.clone(),
        }
    }
}
