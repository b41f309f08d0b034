//! The kernel of an image: its file, its release, and which of its modules go into the image. What modules need of each
//! other is `modules`' business.

use std::fs;
use std::path::PathBuf;

use super::modules::{Modules, Wanted};
use super::packages::Unpacked;
use super::{ImageError, Recipe};

/// The kernel and the modules a recipe asks for.
#[derive(Debug)]
pub(super) struct Kernel {
    pub image: PathBuf,
    pub release: String,
    pub modules: Modules,
}

impl Kernel {
    pub(super) fn find(recipe: &Recipe, unpacked: &Unpacked) -> Result<Self, ImageError> {
        let package = unpacked.kernel();
        let wrong = |why: String| ImageError::Package {
            package: recipe.kernel.package.clone(),
            why,
        };
        let modules = ["lib/modules", "usr/lib/modules"].map(|path| package.join(path));
        let modules = modules.iter().find(|path| path.is_dir());
        let modules = modules.ok_or_else(|| wrong("there are no modules in it".into()))?;
        let mut releases = fs::read_dir(modules)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let folder = releases
            .next()
            .ok_or_else(|| wrong("there are no modules in it".into()))?;
        let release = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = package.join("boot").join(format!("vmlinuz-{release}"));
        if !image.is_file() {
            return Err(wrong(format!("there is no boot/vmlinuz-{release} in it")));
        }
        let wanted = Wanted {
            load: &recipe.kernel.load,
            carry: &recipe.kernel.carry,
        };
        let modules = Modules::collect(&folder, &wanted).map_err(wrong)?;
        Ok(Self {
            image,
            release,
            modules,
        })
    }
}
