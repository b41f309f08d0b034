//! The accelerators that run the instructions of a guest. [`crate::accel`] chooses one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An accelerator runs a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The host's processor runs them.
    Kvm,
    /// QEMU's translator runs them.
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// Returns the value of QEMU's `-accel` for `accel`.
pub(super) fn accel_argument(accel: Accel) -> &'static str {
    match accel {
        Accel::Kvm => "kvm",
        Accel::Tcg => "tcg,thread=multi",
    }
}
