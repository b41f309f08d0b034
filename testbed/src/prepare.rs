//! What must be there before a lab can start: QEMU, the accelerator's verdict, the guest image. Starts no lab.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::{
    accel::{self, Accel, AccelChoice},
    image::{self, Cache, GuestBinaries, Recipe, Step},
    lab::{Boot, ImageSpec, Lab},
    qemu::Qemu,
    report::progress::Progress,
    supervisor::Means,
};

/// The option's word for a choice.
pub(crate) const fn choice_name(choice: AccelChoice) -> &'static str {
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
    let wanted = lab.nodes.iter().filter_map(|node| match &node.boot {
        Boot::Recipe { image, .. } => Some(image),
        Boot::Kernel { .. } | Boot::Disk { .. } => None,
    });
    let wanted: BTreeSet<&ImageSpec> = wanted.collect();
    // The test guest for KVM boots the recipe too; who names the accelerator and brings all images needs none.
    let asked_for = match choice {
        AccelChoice::Kvm => Some(Accel::Kvm),
        AccelChoice::Tcg => Some(Accel::Tcg),
        AccelChoice::Auto => None,
    };
    if let (false, Some(accel)) = (!wanted.is_empty(), asked_for) {
        return Ok(Means {
            qemu,
            accel,
            images: BTreeMap::new(),
        });
    }
    let cache = Cache::open_default()?;
    let mut say = |step: Step| progress.say(&step.to_string());
    let binaries = GuestBinaries::locate()?;
    let image = image::build(&Recipe::minimal(), &cache, &binaries, &mut say)?;
    let mut images = BTreeMap::new();
    for spec in wanted {
        images.insert(
            spec.clone(),
            image::build(&Recipe::of(spec), &cache, &binaries, &mut say)?,
        );
    }
    progress.say("finding out what runs the guests");
    let verdict = accel::resolve(choice, &qemu, &image, &cache)?;
    tracing::info!(accel = %verdict.accel, reason = verdict.reason, "accelerator");
    Ok(Means {
        qemu,
        accel: verdict.accel,
        images,
    })
}
