//! What must be there before a lab can start: QEMU, the accelerator's verdict, the guest image. Starts no lab.

use anyhow::Result;

use crate::{
    accel::{Accel, AccelChoice},
    image::{self, Cache, GuestBinaries, Recipe, Step},
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
    let recipe = if lab.nodes.iter().any(|node| matches!(node.boot, Boot::Recipe { .. })) {
        let mut say = |step: Step| progress.say(&step.to_string());
        let image = image::build(
            &Recipe::minimal(),
            &Cache::open_default()?,
            &GuestBinaries::locate()?,
            &mut say,
        )?;
        Some((image.kernel, image.initramfs))
    } else {
        None
    };
    Ok(Means { qemu, accel, recipe })
}
