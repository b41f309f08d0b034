//! What a node boots: a recipe, a kernel of the user, or a disk image.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    ImageSpec, OwnKernel,
    file::{DefaultsFile, ModulesFile, NodeFile},
    lab_folder::LabFolder,
    problems::Problems,
    setup,
};

/// What a guest boots. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Boot {
    /// The guest boots the user space of a recipe.
    Recipe {
        /// Ingredients of the image.
        image: ImageSpec,
        /// Words added to the kernel's command line.
        append: String,
    },
    /// The guest boots kernel and initramfs of the user.
    Kernel {
        /// Path of the bzImage.
        kernel: PathBuf,
        /// Path of the initramfs.
        initramfs: PathBuf,
        /// Words added to the kernel's command line.
        append: String,
    },
    /// The guest boots a disk image.
    Disk {
        /// Path of the qcow2 or raw image.
        image: PathBuf,
        /// Whether the guest's writes are kept.
        writable: bool,
    },
}

/// Checks what the file says that a node boots.
pub(super) fn check(defaults: &DefaultsFile, folder: LabFolder<'_>, node: &NodeFile, problems: &mut Problems) -> Boot {
    let append = node
        .append
        .as_ref()
        .map(|text| text.get_ref().clone())
        .unwrap_or_default();
    let mut file =
        |path: &Option<Spanned<PathBuf>>, what| path.as_ref().map(|path| named_file(folder, path, what, problems));
    let disk = file(&node.disk, "disk image");
    let kernel = file(&node.kernel, "kernel");
    let initramfs = file(&node.initramfs, "initramfs");
    if let (None, Some(writable)) = (&disk, &node.disk_writable) {
        problems.add(
            writable.span(),
            "`disk_writable` without a `disk`",
            "name the image: disk = \"image.qcow2\"",
        );
    }
    let modules = modules(folder, node, problems);
    match (disk, kernel, initramfs) {
        (Some(image), None, None) => {
            if let Some(append) = &node.append {
                let help = "a disk image boots with its own command line: leave `append` out";
                problems.add(append.span(), "`append` has no effect with `disk`", help);
            }
            let writable = node.disk_writable.as_ref().is_some_and(|writable| *writable.get_ref());
            Boot::Disk { image, writable }
        }
        (None, Some(kernel), Some(initramfs)) => Boot::Kernel {
            kernel,
            initramfs,
            append,
        },
        (None, kernel, None) => {
            let kernel = kernel.map(|kernel| OwnKernel { kernel, modules });
            let image = setup::image(defaults, node, kernel, problems);
            Boot::Recipe { image, append }
        }
        (disk, ..) => {
            contradiction(node, disk.is_some(), problems);
            Boot::Recipe {
                image: ImageSpec::default(),
                append,
            }
        }
    }
}

fn named_file(folder: LabFolder<'_>, path: &Spanned<PathBuf>, what: &str, problems: &mut Problems) -> PathBuf {
    let full = folder.join(path.get_ref());
    if !folder.has_file(&full) {
        let message = format!("there is no {what} {}", full.display());
        problems.add(path.span(), message, "a path to a file, relative to the lab file");
    }
    full
}

/// Checks the modules of a user's kernel.
fn modules(folder: LabFolder<'_>, node: &NodeFile, problems: &mut Problems) -> Option<PathBuf> {
    let modules = node.modules.as_ref()?;
    let path = match (modules.get_ref(), &node.kernel) {
        (ModulesFile::Folder(path), _) => path,
        (ModulesFile::Names(_), None) => return None,
        (ModulesFile::Names(_), Some(_)) => {
            let message = "modules of Debian's kernel are of no use to another `kernel`";
            problems.add(
                modules.span(),
                message,
                "the folder of its own, such as \"/lib/modules/VERSION\"",
            );
            return None;
        }
    };
    let full = folder.join(path);
    if !folder.has_folder(&full) {
        let message = format!("there is no folder {}", full.display());
        problems.add(modules.span(), message, "a folder like /lib/modules/VERSION");
    }
    if node.kernel.is_none() {
        let help = "name both, or a list of modules of the recipe's kernel, such as [\"nfs\"]";
        problems.add(modules.span(), "a folder of `modules` without a `kernel`", help);
    }
    Some(full)
}

/// Notes that a node names things to boot that exclude each other.
fn contradiction(node: &NodeFile, has_disk: bool, problems: &mut Problems) {
    let keys = [&node.kernel, &node.initramfs];
    let span = keys.into_iter().flatten().next().map_or(0..0, Spanned::span);
    let message = if has_disk {
        "a node boots either from `disk` or from `kernel`"
    } else {
        "`initramfs` needs its `kernel`"
    };
    let help = "name `kernel` with or without `initramfs`, or only `disk`, or nothing for our recipe";
    problems.add(span, message, help);
}
