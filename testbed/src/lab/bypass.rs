//! Cards that programs of a guest drive themselves, without the guest's kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Boot,
    file::{NicFile, NodeFile},
    problems::Problems,
};

/// How programs in a guest reach a card that they drive themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bypass {
    /// By uio_pci_generic and physical addresses: for root.
    Uio,
    /// By vfio-pci and an IOMMU.
    Vfio,
}

impl Bypass {
    /// Queue pairs of such a card by default: one for `omxd`, and four for endpoints.
    pub(super) const QUEUE_PAIRS: u16 = 5;

    /// Returns the name, as lab files and `nicctl bind` have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uio => "uio",
            Self::Vfio => "vfio",
        }
    }

    /// Returns whether the card must be behind an IOMMU of its guest, both in QEMU and in `vnicd`.
    #[must_use]
    pub const fn needs_iommu(self) -> bool {
        matches!(self, Self::Vfio)
    }
}

/// Notes a mistake where a guest has such a card and boots what Weft does not know: only its own images have the tools
/// that give cards to programs at boot.
pub(super) fn check(node: &NodeFile, boot: &Boot, problems: &mut Problems) {
    let own_image = matches!(boot, Boot::Recipe { .. });
    let wanted = |nic: &NicFile| nic.bypass.as_ref().filter(|_| !own_image).map(|bypass| bypass.span());
    for span in node.nic.iter().flatten().filter_map(wanted) {
        let message = "`bypass` needs one of Weft's images, which give the card to programs at boot".to_owned();
        problems.add(
            span,
            message,
            "leave bypass out and run `nicctl bind` in the guest, or take an `image`",
        );
    }
}

/// Whether a NIC has offloads, on by default. Notes a mistake where the file asks for some of a card that no kernel drives: programs use none.
pub(super) fn offloads(nic: &NicFile, by_default: Option<bool>, problems: &mut Problems) -> bool {
    if let (Some(bypass), Some(true)) = (&nic.bypass, nic.offloads) {
        let message = "a NIC that programs drive themselves has no offloads".to_owned();
        problems.add(bypass.span(), message, "leave out offloads, or bypass");
    }
    nic.offloads.or(by_default).unwrap_or(true)
}
