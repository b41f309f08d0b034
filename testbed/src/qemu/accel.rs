//! What runs the instructions of a guest. Which of the two is taken is decided in [`crate::accel`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// What runs a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// The host's processor.
    Kvm,
    /// QEMU's translator.
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

/// What QEMU's `-accel` wants for `accel`.
pub(super) fn accel_argument(accel: Accel) -> &'static str {
    match accel {
        Accel::Kvm => "kvm",
        Accel::Tcg => "tcg,thread=multi",
    }
}
