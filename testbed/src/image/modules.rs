//! The kernel modules of an image, with their dependencies, and the files by which `modprobe` finds them: those that
//! `depmod` would write for these modules, so that `depmod` is not needed. This module reads a folder like
//! `/lib/modules/VERSION` and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::elf;

/// Largest module that is unpacked, in bytes: the largest in Debian's kernels is a tenth of it.
const MODULE_LEN_MAX: u64 = 128 << 20;

/// The modules that are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// Modules to load at boot.
    pub load: &'a [String],
    /// Modules that are only present, for `modprobe` and for requests of the kernel.
    pub carry: &'a [String],
    /// Whether the modules to carry may be absent.
    pub carry_may_miss: bool,
}

/// The modules of one kernel.
#[derive(Debug)]
pub(super) struct Modules {
    /// Modules in the order of the kernel's `modules.order`.
    list: Vec<Module>,
    /// Positions in `list`, each behind those of the modules whose symbols it uses.
    load_order: Vec<usize>,
    /// Positions in `list`, each also behind those of the modules that it wants to find loaded.
    boot_order: Vec<usize>,
    /// Contents of the kernel's `modules.builtin`.
    builtin: String,
}

/// A kernel module.
#[derive(Debug)]
struct Module {
    name: String,
    /// Path below the directory of modules, without a compression suffix.
    path: String,
    /// Names of the modules whose symbols it uses, in its own order.
    needs: Vec<String>,
    /// Names of the modules that have to be loaded before it for another reason.
    before: Vec<String>,
    aliases: Vec<String>,
    contents: Vec<u8>,
    /// Whether it is loaded at boot.
    load: bool,
}

/// A file below `lib/modules/VERSION`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModuleFile {
    pub path: String,
    pub contents: Vec<u8>,
}

impl Modules {
    /// Makes the modules of a kernel that has everything built in.
    pub(super) fn none() -> Self {
        Self {
            list: Vec::new(),
            load_order: Vec::new(),
            boot_order: Vec::new(),
            builtin: String::new(),
        }
    }

    /// Collects the modules in `folder` that are wanted, and all that they need.
    ///
    /// # Errors
    /// Fails with one clause about what is missing or broken.
    pub(super) fn collect(folder: &Path, wanted: &Wanted<'_>) -> Result<Self, String> {
        let builtin = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let mut collector = Collector {
            folder,
            files: module_files(folder),
            builtin: builtin_names(&builtin),
            found: BTreeMap::new(),
        };
        for name in wanted.load {
            collector.collect(name, true)?;
        }
        for name in wanted.carry {
            let exists = collector.files.contains_key(&canonical(name));
            if exists || !wanted.carry_may_miss {
                collector.collect(name, false)?;
            }
        }
        let mut list: Vec<Module> = collector.found.into_values().collect();
        let order = fs::read_to_string(folder.join("modules.order")).unwrap_or_default();
        let position: BTreeMap<&str, usize> = order.lines().zip(0..).collect();
        list.sort_by_key(|module| position.get(module.path.as_str()).copied().unwrap_or(usize::MAX));
        Self::ordered(list, builtin)
    }

    fn ordered(list: Vec<Module>, builtin: String) -> Result<Self, String> {
        let load_order = order(&list, |module| module.needs.iter().collect())?;
        let boot_order = order(&list, |module| module.needs.iter().chain(&module.before).collect())?;
        Ok(Self {
            list,
            load_order,
            boot_order,
            builtin,
        })
    }

    /// Returns the paths of the modules to load at boot, each behind those it needs.
    pub(super) fn to_load(&self) -> impl Iterator<Item = &str> {
        let modules = self.boot_order.iter().map(|&index| &self.list[index]);
        modules.filter(|module| module.load).map(|module| module.path.as_str())
    }

    /// Makes everything below `lib/modules/VERSION`. Modules that are loaded at boot are uncompressed, the others
    /// compressed: they may never be read, and take a guest's memory.
    ///
    /// # Errors
    /// Fails when a module cannot be compressed.
    pub(super) fn files(&self) -> std::io::Result<Vec<ModuleFile>> {
        let file = |path: &str, text: String| ModuleFile {
            path: path.to_owned(),
            contents: text.into_bytes(),
        };
        let lines = |line: &dyn Fn(usize) -> String| (0..self.list.len()).map(line).collect::<String>();
        let mut files = vec![
            file("modules.builtin", self.builtin.clone()),
            file("modules.order", lines(&|index| format!("{}\n", self.list[index].path))),
            file("modules.dep", lines(&|index| self.dependencies(index))),
            file("modules.softdep", lines(&|index| self.list[index].softdep_line())),
            file("modules.alias", lines(&|index| self.list[index].alias_lines())),
        ];
        for module in &self.list {
            files.push(ModuleFile {
                path: module.file_path(),
                contents: if module.load {
                    module.contents.clone()
                } else {
                    compressed(&module.contents)?
                },
            });
        }
        Ok(files)
    }

    /// Renders the line of `modules.dep`: `modprobe` loads from its end.
    fn dependencies(&self, index: usize) -> String {
        let mut needed = BTreeSet::new();
        let mut open = vec![&self.list[index]];
        while let Some(module) = open.pop() {
            for need in &module.needs {
                if needed.insert(need.as_str()) {
                    open.extend(self.list.iter().find(|other| other.name == *need));
                }
            }
        }
        let behind = self.load_order.iter().rev().map(|&index| &self.list[index]);
        let paths = behind.filter(|module| needed.contains(module.name.as_str()));
        let paths: String = paths.map(|module| format!(" {}", module.file_path())).collect();
        format!("{}:{paths}\n", self.list[index].file_path())
    }
}

impl Module {
    fn file_path(&self) -> String {
        format!("{}{}", self.path, if self.load { "" } else { ".xz" })
    }

    fn softdep_line(&self) -> String {
        if self.before.is_empty() {
            return String::new();
        }
        format!("softdep {} pre: {}\n", self.name, self.before.join(" "))
    }

    fn alias_lines(&self) -> String {
        let line = |alias: &String| format!("alias {alias} {}\n", self.name);
        self.aliases.iter().map(line).collect()
    }
}

/// A collector of modules with what they need.
struct Collector<'a> {
    folder: &'a Path,
    /// Path of each module by its name.
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
    found: BTreeMap<String, Module>,
}

impl Collector<'_> {
    fn collect(&mut self, name: &str, load: bool) -> Result<(), String> {
        let mut open = vec![canonical(name)];
        while let Some(name) = open.pop() {
            if self.builtin.contains(&name) {
                continue;
            }
            if let Some(module) = self.found.get_mut(&name) {
                if load && !module.load {
                    module.load = true;
                    open.extend(module.needs.iter().chain(&module.before).cloned());
                }
                continue;
            }
            let module = self.read(&name, load)?;
            open.extend(module.needs.iter().chain(&module.before).cloned());
            self.found.insert(name, module);
        }
        Ok(())
    }

    fn read(&self, name: &str, load: bool) -> Result<Module, String> {
        let file = self.files.get(name).ok_or_else(|| format!("it has no module {name}"))?;
        let contents = read_module(file)?;
        let info = elf::module_info(&contents).ok_or_else(|| format!("{} is no module", file.display()))?;
        let path = file.strip_prefix(self.folder).unwrap_or(file).to_string_lossy();
        let (path, _) = without_compression(&path);
        let needs = info.depends.iter().map(|need| canonical(need));
        Ok(Module {
            name: name.to_owned(),
            path: path.to_owned(),
            needs: needs.filter(|need| !self.builtin.contains(need)).collect(),
            before: info.before.iter().filter_map(|want| self.provider(want)).collect(),
            aliases: info.aliases,
            contents,
            load,
        })
    }
}

impl Collector<'_> {
    /// Returns the module that provides what another one wants to find loaded, which may be the name of an algorithm.
    /// `None` if it is built in or absent: then the kernel does without.
    fn provider(&self, want: &str) -> Option<String> {
        let name = canonical(want);
        let names = [format!("{name}_generic"), name];
        if names.iter().any(|name| self.builtin.contains(name)) {
            return None;
        }
        names.into_iter().find(|name| self.files.contains_key(name))
    }
}

/// Orders modules so that they could be loaded one after the other; where several orders are possible, the one of
/// `depmod`, which begins with those that no other module needs.
fn order(list: &[Module], needs_of: impl Fn(&Module) -> Vec<&String>) -> Result<Vec<usize>, String> {
    let index_of: BTreeMap<&str, usize> = list.iter().map(|module| module.name.as_str()).zip(0..).collect();
    let needs = |index: usize| {
        let names = needs_of(&list[index]).into_iter();
        names.map(|need| index_of[need.as_str()])
    };
    let mut users = vec![0_usize; list.len()];
    for need in (0..list.len()).flat_map(needs) {
        users[need] += 1;
    }
    let mut unneeded: Vec<usize> = (0..list.len()).filter(|&index| users[index] == 0).collect();
    let mut order = Vec::with_capacity(list.len());
    while let Some(index) = unneeded.pop() {
        order.push(index);
        for need in needs(index) {
            users[need] -= 1;
            if users[need] == 0 {
                unneeded.push(need);
            }
        }
    }
    if let Some(index) = users.iter().position(|&users| users > 0) {
        return Err(format!("its module {} needs itself", list[index].name));
    }
    order.reverse();
    Ok(order)
}

/// Canonicalises the name of a module, in which two characters are interchangeable; the kernel itself uses this one.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// Splits a module's path from its compression suffix.
fn without_compression(path: &str) -> (&str, Option<&str>) {
    match path.rsplit_once('.') {
        Some((rest, suffix @ ("xz" | "gz" | "zst"))) => (rest, Some(suffix)),
        _ => (path, None),
    }
}

/// Finds every module below `folder` by its name.
fn module_files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.join("kernel"), folder.join("extra"), folder.join("updates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(name) = without_compression(&name).0.strip_suffix(".ko") {
                files.insert(canonical(name), path);
            }
        }
    }
    files
}

/// Parses the names of the modules that are part of the kernel.
fn builtin_names(text: &str) -> BTreeSet<String> {
    let name = |line: &str| Some(canonical(line.rsplit('/').next()?.strip_suffix(".ko")?));
    text.lines().filter_map(name).collect()
}

fn read_module(file: &Path) -> Result<Vec<u8>, String> {
    let failed = |what: &str, error: &dyn Display| format!("its {} cannot be {what}: {error}", file.display());
    let bytes = fs::read(file).map_err(|error| failed("read", &error))?;
    let unpacked = |reader: &mut dyn Read| {
        let mut contents = Vec::new();
        let read = reader.take(MODULE_LEN_MAX).read_to_end(&mut contents);
        read.map(|_| contents).map_err(|error| failed("unpacked", &error))
    };
    let packed = bytes.as_slice();
    // Debian's kernels have only the first two kinds.
    match without_compression(&file.to_string_lossy()).1 {
        None => Ok(bytes),
        Some("xz") => unpacked(&mut lzma_rust2::XzReader::new(packed, true)),
        Some("gz") => unpacked(&mut flate2::read::MultiGzDecoder::new(packed)),
        Some(_) => {
            let reader = ruzstd::decoding::StreamingDecoder::new(packed);
            unpacked(&mut reader.map_err(|error| failed("unpacked", &error))?)
        }
    }
}

/// Compresses with the format that both busybox and kmod unpack.
fn compressed(contents: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut options = lzma_rust2::XzOptions::with_preset(6);
    options.set_check_sum_type(lzma_rust2::CheckType::Crc32);
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options)?;
    writer.write_all(contents)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, needs: &[&str]) -> Module {
        Module {
            name: name.into(),
            path: format!("kernel/{name}.ko"),
            needs: needs.iter().map(|&need| need.to_owned()).collect(),
            before: Vec::new(),
            aliases: vec![format!("rtnl-link-{name}")],
            contents: vec![1; 100],
            load: name.starts_with("virtio"),
        }
    }

    fn text(files: &[ModuleFile], path: &str) -> String {
        let file = files.iter().find(|file| file.path == path).unwrap();
        String::from_utf8(file.contents.clone()).unwrap()
    }

    #[test]
    fn what_is_needed_stands_behind_whoever_needs_it() {
        let list = vec![
            module("virtio_ring", &[]),
            module("virtio", &["virtio_ring"]),
            module("virtio_pci", &["virtio_ring", "virtio"]),
            module("llc", &[]),
            module("stp", &["llc"]),
            module("bridge", &["llc", "stp"]),
        ];
        let modules = Modules::ordered(list, "kernel/fs/ext4/ext4.ko\n".to_owned()).unwrap();
        let files = modules.files().unwrap();
        let dep = text(&files, "modules.dep");
        assert!(
            dep.contains("kernel/virtio_pci.ko: kernel/virtio.ko kernel/virtio_ring.ko\n"),
            "{dep}"
        );
        assert!(
            dep.contains("kernel/bridge.ko.xz: kernel/stp.ko.xz kernel/llc.ko.xz\n"),
            "{dep}"
        );
        assert!(text(&files, "modules.alias").contains("alias rtnl-link-bridge bridge\n"));
        assert!(
            modules
                .to_load()
                .eq(["kernel/virtio_ring.ko", "kernel/virtio.ko", "kernel/virtio_pci.ko"])
        );
        let packed = files.iter().find(|file| file.path == "kernel/bridge.ko.xz").unwrap();
        let mut unpacked = Vec::new();
        let mut reader = lzma_rust2::XzReader::new(packed.contents.as_slice(), true);
        reader.read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, [1; 100]);
    }

    #[test]
    fn a_module_that_needs_itself_is_refused() {
        let list = vec![module("a", &["b"]), module("b", &["a"]), module("c", &[])];
        let refused = Modules::ordered(list, String::new()).unwrap_err();
        assert_eq!(refused, "its module a needs itself");
    }

    #[test]
    fn what_a_module_wants_to_find_is_loaded_before_it_and_no_symbol_dependency() {
        let mut library = module("virtio_library", &[]);
        library.before = vec!["virtio_algorithm".into()];
        let list = vec![
            library,
            module("virtio_user", &["virtio_library"]),
            module("virtio_algorithm", &[]),
        ];
        let modules = Modules::ordered(list, String::new()).unwrap();
        let order: Vec<&str> = modules.to_load().collect();
        let at = |name: &str| order.iter().position(|path| path.contains(name)).unwrap();
        assert!(
            at("algorithm") < at("library") && at("library") < at("user"),
            "{order:?}"
        );
        let files = modules.files().unwrap();
        assert!(!text(&files, "modules.dep").contains("library.ko: kernel"));
        assert_eq!(
            text(&files, "modules.softdep"),
            "softdep virtio_library pre: virtio_algorithm\n"
        );
    }

    #[test]
    fn a_module_that_is_nowhere_is_named_and_one_that_is_built_in_is_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("modules.builtin"),
            "kernel/drivers/char/virtio_console.ko\n",
        )
        .unwrap();
        let (load, carry) = (["virtio-console".to_owned()], ["no-such".to_owned()]);
        let wanted = |carry| Wanted {
            load: &load,
            carry,
            carry_may_miss: false,
        };
        let modules = Modules::collect(dir.path(), &wanted(&[])).unwrap();
        assert_eq!(modules.to_load().count(), 0);
        let error = Modules::collect(dir.path(), &wanted(&carry)).unwrap_err();
        assert_eq!(error, "it has no module no_such");
        let may_miss = Wanted {
            carry_may_miss: true,
            ..wanted(&carry)
        };
        assert!(Modules::collect(dir.path(), &may_miss).is_ok());
    }
}
