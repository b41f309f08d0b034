//! The kernel of an image: its file, its release, and which modules are needed in which order, read from the modules
//! themselves (so that no `depmod` is needed). Compressed modules are unpacked, since not every kernel can.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::packages::Unpacked;
use super::{ImageError, Recipe, elf};

/// Largest module that is unpacked, in bytes: the largest in Debian's kernels is a tenth of it.
const MODULE_LEN_MAX: u64 = 128 << 20;

/// The kernel and the modules a recipe asks for.
#[derive(Debug)]
pub(super) struct Kernel {
    pub image: PathBuf,
    pub release: String,
    /// Every module that goes into the image, each behind those it needs.
    pub modules: Vec<Module>,
}

/// One module.
#[derive(Debug)]
pub(super) struct Module {
    /// Path below the directory of modules, without a compression suffix.
    pub path: String,
    /// Paths of what it needs, nearest first.
    pub needs: Vec<String>,
    pub contents: Vec<u8>,
    /// Whether it is loaded at boot.
    pub load: bool,
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
        let mut collector = Collector {
            files: module_files(&folder),
            builtin: builtin(&folder),
            done: BTreeMap::new(),
            open: BTreeSet::new(),
            modules: Vec::new(),
            folder,
        };
        for name in &recipe.kernel.load {
            collector.collect(name, true).map_err(wrong)?;
        }
        for name in &recipe.kernel.carry {
            collector.collect(name, false).map_err(wrong)?;
        }
        Ok(Self {
            image,
            release,
            modules: collector.modules,
        })
    }
}

/// Gathers modules with what they need.
struct Collector {
    folder: PathBuf,
    /// Path of each module by its name.
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
    /// Index of each module that was collected.
    done: BTreeMap<String, usize>,
    /// Modules whose needs are being collected: one that is met again needs itself.
    open: BTreeSet<String>,
    modules: Vec<Module>,
}

impl Collector {
    fn collect(&mut self, name: &str, load: bool) -> Result<Vec<String>, String> {
        let name = name.replace('-', "_");
        if self.builtin.contains(&name) {
            return Ok(Vec::new());
        }
        if let Some(&index) = self.done.get(&name) {
            let (path, needs) = (self.modules[index].path.clone(), self.modules[index].needs.clone());
            return Ok([vec![path], needs].concat());
        }
        if !self.open.insert(name.clone()) {
            return Err(format!("its module {name} needs itself"));
        }
        let file = self
            .files
            .get(&name)
            .ok_or_else(|| format!("it has no module {name}"))?
            .clone();
        let contents = read_module(&file)?;
        let depends = elf::module_depends(&contents).ok_or_else(|| format!("{} is no module", file.display()))?;
        let mut needs = Vec::new();
        for need in &depends {
            for path in self.collect(need, load)? {
                if !needs.contains(&path) {
                    needs.push(path);
                }
            }
        }
        let path = file
            .strip_prefix(&self.folder)
            .unwrap_or(&file)
            .to_string_lossy()
            .into_owned();
        let path = path.strip_suffix(".xz").unwrap_or(&path).to_owned();
        self.done.insert(name, self.modules.len());
        self.modules.push(Module {
            path: path.clone(),
            needs: needs.clone(),
            contents,
            load,
        });
        Ok([vec![path], needs].concat())
    }
}

/// Every module below `folder` by its name.
fn module_files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.join("kernel")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = name.strip_suffix(".xz").unwrap_or(&name);
            if let Some(name) = name.strip_suffix(".ko") {
                files.insert(name.replace('-', "_"), path);
            }
        }
    }
    files
}

/// Names of the modules that are part of the kernel.
fn builtin(folder: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let name = |line: &str| Some(line.rsplit('/').next()?.strip_suffix(".ko")?.replace('-', "_"));
    text.lines().filter_map(name).collect()
}

fn read_module(file: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("its {} cannot be read: {error}", file.display());
    let bytes = fs::read(file).map_err(failed)?;
    if file.extension().is_none_or(|extension| extension != "xz") {
        return Ok(bytes);
    }
    let mut contents = Vec::new();
    let mut reader = lzma_rust2::XzReader::new(bytes.as_slice(), true).take(MODULE_LEN_MAX);
    reader.read_to_end(&mut contents).map_err(failed)?;
    Ok(contents)
}
