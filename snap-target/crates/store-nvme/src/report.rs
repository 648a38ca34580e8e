//! How the paths of a remote store stand, for people and metrics.

use std::net::SocketAddr;

use nvme::initiator::AnaState;

/// One path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// Where it leads.
    pub address: SocketAddr,
    /// Whether it does.
    pub state: PathState,
    /// Queues that handles have on it, or are about to.
    pub queues: usize,
    /// Reactors that have none there: the controller refused it, or has no more.
    pub reactors_without: usize,
    /// How often it was lost after it had stood.
    pub losses: u64,
    /// Reactors that have waited for an answer there for so long that another path would have been asked, and had none since.
    pub reactors_unanswered: usize,
    /// It leads to something that is not the store.
    pub is_foreign: bool,
    /// Why it was lost, or could not be connected; while it is up, why a reactor has no queue.
    pub failure: Option<String>,
}

/// Whether a path stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// It is being connected, or waits to be.
    Down,
    /// It stands, and the namespace is reached like this.
    Up(AnaState),
}
