//! What is said of sources that are volumes or namespaces.

use std::path::PathBuf;

use clap::Args;
use initiator::Nqn;

/// How a source is opened.
#[derive(Debug, Default, Args)]
pub struct Opening {
    /// Also open what a volume maps in this directory; its own directory is always allowed
    #[arg(long, value_name = "DIR")]
    pub allow_sources: Vec<PathBuf>,

    /// Connect as this host [default: this machine's, of /etc/nvme/hostnqn; where there is none, a new one each time]
    #[arg(long, value_name = "NQN", value_parser = Nqn::parse)]
    pub hostnqn: Option<Nqn>,
}
