//! What must be there before a lab can start: QEMU, the accelerator's verdict, the guest image. Starts no lab.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::{
    accel::{Accel, AccelChoice},
    lab::{Boot, Lab},
    qemu::Qemu,
    report::progress::Progress,
    supervisor::Means,
};

/// The option's word for a choice.
pub(super) const fn choice_name(choice: AccelChoice) -> &'static str {
    match choice {
        AccelChoice::Auto => "auto",
        AccelChoice::Kvm => "kvm",
        AccelChoice::Tcg => "tcg",
    }
}

/// Finds or makes everything that the guests of `lab` run with.
pub(crate) fn means(lab: &Lab, choice: AccelChoice, progress: &Progress) -> Result<Means> {
    progress.say("looking for QEMU");
    let qemu = Qemu::discover()?;
    let accel = match choice {
        AccelChoice::Kvm => Accel::Kvm,
        AccelChoice::Auto | AccelChoice::Tcg => Accel::Tcg,
    };
    if lab.nodes.iter().any(|node| matches!(node.boot, Boot::Recipe { .. })) {
        bail!("this build has no guest image");
    }
    Ok(Means {
        qemu,
        accel,
        recipe: None,
    })
}

/// Where built images are kept: `$XDG_CACHE_HOME/weft`, or `~/.cache/weft`.
pub(super) fn cache_folder() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let cache = match cache {
        Some(cache) => cache,
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
        }
    };
    Ok(cache.join("weft"))
}
