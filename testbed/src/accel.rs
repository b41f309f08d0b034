//! Which accelerator runs the guests. A `/dev/kvm` that opens proves nothing (kernels that hang under it exist), so
//! KVM is taken only after a guest really booted under it; the verdict is kept until the host boots again.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
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

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccelChoice {
    /// KVM if a guest boots under it, else TCG.
    #[default]
    Auto,
    /// KVM, untested.
    Kvm,
    /// TCG.
    Tcg,
}

impl FromStr for AccelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            other => Err(format!("unknown accelerator {other:?}: auto, kvm and tcg are known")),
        }
    }
}
