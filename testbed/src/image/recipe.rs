//! The recipe of an image as it is written in TOML (`images/minimal.toml`), checked once. It names packages, programs
//! and files; the module `packages` finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::ImageError;
use crate::lab::{ImageName, ImageSpec, OwnKernel, is_package_name};

/// Package of Debian's kernel with all its modules.
const FULL_KERNEL: &str = "linux-image-amd64";

/// A checked recipe.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub(super) text: String,
    pub(super) name: String,
    pub(super) kernel: KernelPart,
    pub(super) own_kernel: Option<OwnKernel>,
    /// Packages that the guest contains as a whole, with all their dependencies.
    pub(super) packages: BTreeSet<String>,
    pub(super) programs: Vec<Program>,
    pub(super) libraries: Vec<Library>,
    pub(super) own: Vec<Own>,
    pub(super) files: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    kernel: KernelPart,
    #[serde(default)]
    packages: BTreeSet<String>,
    #[serde(default)]
    program: Vec<Program>,
    #[serde(default)]
    library: Vec<Library>,
    #[serde(default)]
    own: Vec<Own>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// The kernel and its modules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelPart {
    pub package: String,
    #[serde(default)]
    pub load: Vec<String>,
    #[serde(default)]
    pub carry: Vec<String>,
}

/// A program of a package.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub name: String,
    pub package: String,
    #[serde(default)]
    pub applets: bool,
}

/// A shared library of a package that no program of the recipe needs: for programs that users bring.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Library {
    pub name: String,
    pub package: String,
}

/// A program or shared library of Weft.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Own {
    pub name: String,
    pub path: String,
    /// Other names of the program; they take the place of applets.
    #[serde(default)]
    pub links: Vec<String>,
}

impl Recipe {
    /// Returns the recipe that is compiled into this program.
    ///
    /// # Panics
    /// Never panics: a test parses it.
    #[must_use]
    pub fn minimal() -> Self {
        Self::parse(include_str!("../../../images/minimal.toml"), "minimal").expect("the recipe inside is right")
    }

    /// Returns the recipe of what a lab asks for.
    ///
    /// # Panics
    /// Never panics: a test parses all recipes that are compiled in.
    #[must_use]
    pub fn of(spec: &ImageSpec) -> Self {
        let mut recipe = match spec.recipe {
            ImageName::Minimal => Self::minimal(),
            ImageName::Network => {
                let own = include_str!("../../../images/network.toml");
                let common = include_str!("../../../images/minimal.toml");
                let recipe = Self::parse(common, "minimal").expect("the recipe inside is right");
                recipe.extended(own, "network").expect("the recipe inside is right")
            }
        };
        recipe.packages.extend(spec.packages.iter().cloned());
        if recipe.root_is_on_disk() {
            recipe.kernel.load.extend(["erofs", "overlay"].map(str::to_owned));
            // Busybox' shell prefers its own programs to those of the packages with equal names.
            recipe.packages.insert("dash".to_owned());
        }
        if spec.host_folders {
            recipe.kernel.load.extend(["9pnet_virtio", "9p"].map(str::to_owned));
            // Debian's cloud kernel has no 9p.
            recipe.kernel.package = FULL_KERNEL.to_owned();
        }
        recipe.own_kernel.clone_from(&spec.kernel);
        recipe
    }

    /// Returns whether the guest's root file system is on a disk, because it is too large for memory.
    pub(super) fn root_is_on_disk(&self) -> bool {
        !self.packages.is_empty()
    }

    /// Returns a key of everything that decides which packages there are.
    pub(super) fn packages_key(&self) -> String {
        let own_kernel = self.own_kernel.is_some();
        format!(
            "{}\n{} {own_kernel} {:?}",
            self.text, self.kernel.package, self.packages
        )
    }

    /// Extends the recipe by a second text: packages, modules and files, which replace those of an equal path.
    fn extended(mut self, text: &str, whence: &str) -> Result<Self, ImageError> {
        let added = Self::parse(text, whence)?;
        self.text += text;
        self.name = added.name;
        self.kernel.load.extend(added.kernel.load);
        self.kernel.carry.extend(added.kernel.carry);
        self.packages.extend(added.packages);
        self.programs.extend(added.programs);
        self.libraries.extend(added.libraries);
        self.own.extend(added.own);
        self.files.extend(added.files);
        Ok(self)
    }

    /// Loads a recipe from a file.
    ///
    /// # Errors
    /// Fails when it cannot be read or is wrong.
    pub fn load(path: &Path) -> Result<Self, ImageError> {
        let text = std::fs::read_to_string(path).map_err(|error| ImageError::io(path, error))?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, whence: &str) -> Result<Self, ImageError> {
        let wrong = |why: String| ImageError::Recipe {
            recipe: whence.to_owned(),
            why,
        };
        let written: Written = toml::from_str(text).map_err(|error| wrong(error.to_string().trim().to_owned()))?;
        let packages = written
            .program
            .iter()
            .map(|program| &program.package)
            .chain(written.library.iter().map(|library| &library.package))
            .chain(&written.packages)
            .chain([&written.kernel.package]);
        for package in packages {
            if !is_package_name(package) {
                return Err(wrong(format!("{package:?} is not the name of a Debian package")));
            }
        }
        for name in written
            .program
            .iter()
            .map(|program| &program.name)
            .chain(written.library.iter().map(|library| &library.name))
            .chain(written.own.iter().map(|own| &own.name))
        {
            if name.is_empty() || name.contains('/') || name.starts_with('.') {
                return Err(wrong(format!("{name:?} is not the name of a program or library")));
            }
        }
        let own = written.own.iter().flat_map(|own| own.links.iter().chain([&own.path]));
        for path in own.chain(written.files.keys()) {
            let parts = path.strip_prefix('/').unwrap_or_default().split('/');
            if !path.starts_with('/') || parts.clone().any(|part| part.is_empty() || part == "." || part == "..") {
                return Err(wrong(format!("{path:?} is not a plain path from the root")));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            name: written.name,
            kernel: written.kernel,
            own_kernel: None,
            packages: written.packages,
            programs: written.program,
            libraries: written.library,
            own: written.own,
            files: written.files,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_inside_is_right_and_boots_our_agent() {
        let recipe = Recipe::minimal();
        assert!(
            recipe
                .own
                .iter()
                .any(|own| own.name == "weft-agent" && own.path == "/init")
        );
        assert!(recipe.kernel.load.iter().any(|module| module == "virtio_net"));
    }

    #[test]
    fn every_recipe_inside_is_right_and_one_with_packages_mounts_its_root() {
        let of = |recipe, packages: &[&str]| {
            Recipe::of(&ImageSpec {
                recipe,
                packages: packages.iter().map(|&name| name.to_owned()).collect(),
                ..ImageSpec::default()
            })
        };
        let network = of(ImageName::Network, &[]);
        assert!(network.root_is_on_disk() && network.name == "network");
        assert!(network.kernel.load.iter().any(|module| module == "erofs"));
        let minimal = of(ImageName::Minimal, &[]);
        assert!(!minimal.root_is_on_disk());
        let with = of(ImageName::Minimal, &["tcpdump"]);
        assert!(with.root_is_on_disk());
        assert_ne!(with.packages_key(), minimal.packages_key());
    }

    #[test]
    fn a_wrong_recipe_is_refused_with_its_place() {
        let kernel = "name = 'x'\n[kernel]\npackage = 'linux'\n";
        for (added, says) in [
            ("colour = 1", "unknown field"),
            (
                "[[program]]\nname = 'a'\npackage = 'rm -rf'",
                "not the name of a Debian package",
            ),
            (
                "[[program]]\nname = '../a'\npackage = 'a'",
                "not the name of a program or library",
            ),
            (
                "[[library]]\nname = '/a.so'\npackage = 'a'",
                "not the name of a program or library",
            ),
            (
                "[[library]]\nname = 'a.so'\npackage = 'A'",
                "not the name of a Debian package",
            ),
            ("[[own]]\nname = 'a'\npath = '/../a'", "not a plain path"),
            ("[[own]]\nname = 'a'\npath = '/a'\nlinks = ['b']", "not a plain path"),
        ] {
            let error = Recipe::parse(&format!("{kernel}{added}"), "r.toml")
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("r.toml: ") && error.contains(says), "{error}");
        }
    }
}
