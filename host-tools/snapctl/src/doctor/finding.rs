//! What a check came to.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, at a cost.
    Warn,
    /// It does not work.
    Fail,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: "memlock", "/srv: direct I/O".
    pub check: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What it costs, where it is not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// The line that mends it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding {
            check: check.into(),
            verdict: Verdict::Ok,
            found: found.into(),
            costs: None,
            mend: None,
        }
    }

    /// It works, at a cost.
    pub fn warn(
        check: impl Into<String>,
        found: impl Into<String>,
        costs: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding {
            verdict: Verdict::Warn,
            costs: Some(costs.into()),
            mend: Some(mend.into()),
            ..Finding::ok(check, found)
        }
    }

    /// It does not work.
    pub fn fail(
        check: impl Into<String>,
        found: impl Into<String>,
        costs: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding {
            verdict: Verdict::Fail,
            ..Finding::warn(check, found, costs, mend)
        }
    }
}
