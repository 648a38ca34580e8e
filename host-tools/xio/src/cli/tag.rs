//! `xio tag`.

use std::path::PathBuf;

use clap::Args;

const TAG_HELP: &str = "\
A tag names what a volume holds, as people name the versions of a dataset. Where a command takes a volume, FOLDER@NAME is the one with that tag, and an error
where its file holds something else by now. Names are 1 to 64 letters, digits, '-', '_' and '.'. Tags are kept in FOLDER/xio-tags.json; a volume is
tagged in its own folder.

Examples:
  xio tag sets/o200k.xio v1 --note 'first crawl'
  xio tag sets
  xio inspect sets@v1
  xio mount sets@v1 data
  xio tag sets/o200k-2.xio latest --move
  xio tag sets --delete v1";

/// `xio tag`.
#[derive(Debug, Args)]
#[command(after_help = TAG_HELP)]
pub struct Tag {
    /// A volume to name, or a folder whose tags are listed
    #[arg(value_name = "VOLUME|FOLDER")]
    pub place: PathBuf,

    /// The volume's tag
    pub name: Option<String>,

    /// What there is to say of it, up to 4,096 bytes
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        requires = "name"
    )]
    pub note: String,

    /// Give a tag that is there to this volume
    #[arg(long = "move", requires = "name")]
    pub moves: bool,

    /// Remove a tag of FOLDER; no volume is touched
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub delete: Option<String>,

    /// Print the list as one JSON object
    #[arg(long, conflicts_with_all = ["name", "delete"])]
    pub json: bool,
}
