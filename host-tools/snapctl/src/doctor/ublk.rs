//! ublk: whether this machine can have block devices of its own.

use ublk::{Control, Features, UblkError};

use super::finding::Finding;

/// Asks the driver.
pub fn probe() -> Result<Features, UblkError> {
    Control::open()?.features()
}

/// What `--ublk` of the daemon needs. Nothing else does: where nobody asks for it, nothing is missing.
pub fn ublk(probed: &Result<Features, UblkError>, is_wanted: bool) -> Finding {
    let check = "ublk";
    match probed {
        Ok(features) if features.has(Features::UPDATE_SIZE) => Finding::ok(
            check,
            "the driver is there; disks can be resized while they are there",
        ),
        Ok(_) => Finding::ok(
            check,
            "the driver is there; disks cannot be resized while they are there (Linux 6.16)",
        ),
        Err(_) if !is_wanted => {
            Finding::ok(check, "not to be had; only --ublk of snap-target needs it")
        }
        Err(UblkError::NoDriver { path, source }) => Finding::fail(
            check,
            format!("no driver ({path}: {source})"),
            "no block devices of this machine (--ublk)",
            "modprobe ublk_drv   (Linux 6.5 or later; in a container the device must be handed in)",
        ),
        Err(error) => Finding::fail(
            check,
            error.to_string(),
            "no block devices of this machine (--ublk)",
            "run this, and the daemon, as root",
        ),
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn what_is_missing_is_missed_by_who_wants_it() {
        let none = || {
            Err(UblkError::NoDriver {
                path: "/dev/ublk-control".to_owned(),
                source: Errno::ENOENT,
            })
        };
        let finding = ublk(&none(), true);
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(
            finding
                .mend
                .unwrap_or_default()
                .contains("modprobe ublk_drv")
        );
        assert_eq!(ublk(&none(), false).verdict, Verdict::Ok);
        let refused = Err(UblkError::NotPermitted {
            what: "/dev/ublk-control".to_owned(),
            source: Errno::EACCES,
        });
        let finding = ublk(&refused, true);
        assert!(finding.mend.unwrap_or_default().contains("root"));
        for (features, says) in [
            (Features(0), "cannot"),
            (Features::UPDATE_SIZE, "can be resized"),
        ] {
            let finding = ublk(&Ok(features), true);
            assert_eq!(finding.verdict, Verdict::Ok);
            assert!(finding.found.contains(says), "{}", finding.found);
        }
    }
}
