//! The requirements of a lab: QEMU, the accelerator's verdict, the guest images. This module starts no lab.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::{Result, ensure};

use crate::{
    accel::{self, Accel, AccelChoice},
    image::{self, Cache, GuestBinaries, Image, Recipe, Step},
    lab::{Boot, ImageSpec, Lab, Node},
    programs,
    qemu::Qemu,
    report::progress::Progress,
};

/// What every lab runs with, by the names of [`programs::provide`].
const PROGRAMS: [&str; 2] = ["qemu", "vnicd"];

/// The program inside guests that runs commands.
const AGENT: &str = "weft-agent";

/// The means that guests run with, found before a lab starts.
#[derive(Clone, Debug)]
pub struct Means {
    /// The QEMU to start.
    pub qemu: Qemu,
    /// Accelerator that runs the guests' instructions.
    pub accel: Accel,
    /// Images of the nodes that boot a recipe.
    pub images: BTreeMap<ImageSpec, Image>,
    /// Path of the agent, if a node gets it from cloud-init.
    pub agent: Option<PathBuf>,
}

/// Finds or makes everything that the guests of `lab` run with.
pub(crate) fn means(lab: &Lab, choice: AccelChoice, progress: &Progress) -> Result<Means> {
    let wanted = lab.nodes.iter().filter_map(|node| match &node.boot {
        Boot::Recipe { image, .. } => Some(image),
        Boot::Kernel { .. } | Boot::Disk { .. } => None,
    });
    let wanted: BTreeSet<&ImageSpec> = wanted.collect();
    let gets_agent = |node: &Node| node.cloud_init.as_ref().is_some_and(|cloud_init| cloud_init.agent);
    let gets_agent = lab.nodes.iter().any(gets_agent);
    // The test guest for KVM boots the recipe too; a user who names the accelerator and brings all images needs none.
    let asked_for = match choice {
        AccelChoice::Kvm => Some(Accel::Kvm),
        AccelChoice::Tcg => Some(Accel::Tcg),
        AccelChoice::Auto => None,
    };
    let decided = asked_for.filter(|_| wanted.is_empty());
    let mut recipes: Vec<Recipe> = wanted.iter().map(|spec| Recipe::of(spec)).collect();
    if decided.is_none() {
        recipes.push(Recipe::minimal());
    }
    let own = recipes.iter().flat_map(Recipe::own_names);
    let agent = gets_agent.then_some(AGENT);
    let names: BTreeSet<&str> = own.chain(agent).chain(PROGRAMS).collect();
    progress.suspend(|| programs::provide(names))?;
    progress.say("looking for QEMU");
    let qemu = Qemu::discover()?;
    let agent = match agent {
        Some(name) => Some(GuestBinaries::locate()?.find(name)?),
        None => None,
    };
    if let Some(accel) = decided {
        return Ok(Means {
            qemu,
            accel,
            images: BTreeMap::new(),
            agent,
        });
    }
    let cache = Cache::open_default()?;
    let mut say = |step: Step| progress.say(&step.to_string());
    let binaries = GuestBinaries::locate()?;
    let image = image::build(&Recipe::minimal(), &cache, &binaries, &mut say)?;
    let mut images = BTreeMap::new();
    for spec in wanted {
        let image = image::build(&Recipe::of(spec), &cache, &binaries, &mut say)?;
        check_memory(lab, spec, image.memory_mib_min()?)?;
        images.insert(spec.clone(), image);
    }
    progress.say("finding out what runs the guests");
    let verdict = accel::resolve(choice, &qemu, &image, &cache)?;
    tracing::info!(accel = %verdict.accel, reason = verdict.reason, "accelerator");
    Ok(Means {
        qemu,
        accel: verdict.accel,
        images,
        agent,
    })
}

/// Checks that the nodes that boot the image of `spec` have the memory that it needs, in MiB.
fn check_memory(lab: &Lab, spec: &ImageSpec, least: u64) -> Result<()> {
    let boots_it = |node: &&Node| matches!(&node.boot, Boot::Recipe { image, .. } if image == spec);
    for node in lab.nodes.iter().filter(boots_it) {
        ensure!(
            u64::from(node.memory_mib) >= least,
            "{}: {}M of `memory` are too little for its image, {least}M are needed",
            node.name,
            node.memory_mib
        );
    }
    Ok(())
}
