//! `--store-as auto:lossless` of elements without a header: one chain for all inputs.

use dataset::choose::{self, Group, Wish};
use transforms::Chain;
use volume::write::FRAME_BYTES_DEFAULT;

use crate::disk::AUTO;
use crate::failure::Failure;
use crate::pack::Plan;
use crate::progress::Progress;

/// Chooses how the inputs of a plan are stored, and says what was tried.
pub fn choose(plan: &mut Plan, wish: &Wish) -> Result<Group, Failure> {
    let element = plan.spec.chain.source();
    let files = plan.files_read_twice(&format!(
        "{AUTO} reads its input twice, first to try chains on it; write it to a file, and pack that, or name a chain"
    ))?;
    let progress = Progress::start("trying chains", plan.total_bytes());
    let on_progress = |bytes| progress.set(bytes);
    let group = choose::choose_elements(files, element, wish, plan.threads, &on_progress)?;
    if let Some(chosen) = group.chosen() {
        // Without the table of the sample.
        let chain = Chain::from_steps(chosen.chain.steps(), element);
        plan.spec.chain = chain.map_err(Failure::usage)?;
        plan.spec.frame_bytes = match chosen.frame_bytes {
            0 => FRAME_BYTES_DEFAULT,
            frame_bytes => frame_bytes,
        };
        plan.spec.check()?;
    }
    Ok(group)
}
