//! The individual set-up of a node in its recipe's user space: image, packages, files, folders of the host, commands,
//! variables and kernel settings, from the lab's defaults and the node's own keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    file::{DefaultsFile, GuestFileFile, HostFolderFile, ImageName, ModulesFile, NodeFile, SysctlFile},
    lab_folder::LabFolder,
    problems::Problems,
};

/// Number of packages, and of kernel modules, that one node may name: each brings others.
pub const PACKAGES_MAX: usize = 64;
/// Number of files, commands, variables, kernel settings and labels of one node, each: the guest gets all of them in
/// one document.
pub const ENTRIES_MAX: usize = 256;
/// Number of folders of the host in one node: each is a device, and a machine has about thirty slots.
pub const MOUNTS_MAX: usize = 8;
/// Length in bytes of a command, a variable's value or a file's text.
pub const TEXT_LEN_MAX: usize = 64 << 10;

/// The ingredients of a node's image, in addition to Weft's own programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageSpec {
    /// Name of the recipe.
    pub recipe: ImageName,
    /// Debian packages in addition to the recipe's.
    pub packages: BTreeSet<String>,
    /// Kernel of the user that replaces the recipe's.
    pub kernel: Option<OwnKernel>,
    /// Whether the node mounts folders of the host.
    pub host_folders: bool,
    /// Modules of Debian's kernel in addition to the recipe's.
    #[serde(default)]
    pub modules: BTreeSet<String>,
}

impl ImageSpec {
    /// Returns whether the guest's root file system is on a disk, because it is too large for memory.
    #[must_use]
    pub fn root_is_on_disk(&self) -> bool {
        self.recipe != ImageName::Minimal || !self.packages.is_empty()
    }

    /// Returns whether the guest needs Debian's kernel with all its modules.
    #[must_use]
    pub fn has_full_kernel(&self) -> bool {
        self.host_folders || !self.modules.is_empty()
    }

    /// Returns whether the guest and others of its lab let each other in by a key of the lab.
    #[must_use]
    pub fn has_lab_key(&self) -> bool {
        self.recipe == ImageName::Mpi
    }
}

/// A kernel of the user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnKernel {
    /// Path of the bzImage.
    pub kernel: PathBuf,
    /// Folder of the modules, like `/lib/modules/VERSION`.
    pub modules: Option<PathBuf>,
}

/// What is set up in a node's user space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Files and folders, in the order in which they are created.
    pub files: Vec<GuestFile>,
    /// Commands in the order in which they run.
    pub exec: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Kernel settings by name.
    pub sysctl: BTreeMap<String, String>,
    /// Folders of the host.
    pub mount: Vec<Mount>,
}

/// A file or folder of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFile {
    /// Source of the contents.
    pub source: Source,
    /// Absolute path in the guest.
    pub to: String,
    /// Permissions; `None` keeps those of the source.
    pub mode: Option<u32>,
}

/// The sources of a guest's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A file or folder of this machine.
    From(PathBuf),
    /// A text in the lab file.
    Text(String),
}

/// A folder of the host in a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path of the folder.
    pub from: PathBuf,
    /// Absolute path in the guest.
    pub to: String,
    /// Whether the guest may only read.
    pub readonly: bool,
}

/// Returns whether Debian could have a package of this name.
pub(crate) fn is_package_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()) && name.chars().all(plain)
}

/// Makes the image of a node that boots a recipe.
pub(super) fn image(
    defaults: &DefaultsFile,
    node: &NodeFile,
    kernel: Option<OwnKernel>,
    problems: &mut Problems,
) -> ImageSpec {
    let named = [&defaults.packages, &node.packages].into_iter().flatten().flatten();
    let mut packages = BTreeSet::new();
    for name in named {
        if is_package_name(name.get_ref()) {
            packages.insert(name.get_ref().clone());
        } else {
            let message = format!("\"{}\" is not the name of a Debian package", name.get_ref());
            problems.add(
                name.span(),
                message,
                "as `apt-cache search` shows it, such as \"tcpdump\"",
            );
        }
    }
    if packages.len() > PACKAGES_MAX {
        let message = format!("node {} has {} packages", node.name.get_ref(), packages.len());
        problems.add(node.name.span(), message, format!("at most {PACKAGES_MAX}"));
    }
    let modules = match &kernel {
        Some(_) => BTreeSet::new(),
        None => module_names(defaults, node, problems),
    };
    let recipe = node.image.as_ref().or(defaults.image.as_ref());
    ImageSpec {
        recipe: recipe.map_or_else(ImageName::default, |name| *name.get_ref()),
        packages,
        kernel,
        host_folders: [&defaults.mount, &node.mount]
            .into_iter()
            .flatten()
            .any(|list| !list.is_empty()),
        modules,
    }
}

/// Returns the modules of Debian's kernel that a node names.
fn module_names(defaults: &DefaultsFile, node: &NodeFile, problems: &mut Problems) -> BTreeSet<String> {
    let own = node.modules.as_ref().map(Spanned::get_ref);
    let own = own.and_then(|modules| match modules {
        ModulesFile::Names(names) => Some(names),
        ModulesFile::Folder(_) => None,
    });
    let mut modules = BTreeSet::new();
    for name in [defaults.modules.as_ref(), own].into_iter().flatten().flatten() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.get_ref().is_empty() || !name.get_ref().chars().all(plain) {
            let message = format!("\"{}\" is not the name of a kernel module", name.get_ref());
            problems.add(name.span(), message, "as `modprobe` takes it, such as \"nfs\"");
        }
        modules.insert(name.get_ref().replace('-', "_"));
    }
    if modules.len() > PACKAGES_MAX {
        let message = format!("node {} has {} modules", node.name.get_ref(), modules.len());
        problems.add(node.name.span(), message, format!("at most {PACKAGES_MAX}"));
    }
    modules
}

/// Makes the set-up of a node that boots a recipe.
pub(super) fn setup(defaults: &DefaultsFile, node: &NodeFile, folder: LabFolder<'_>, problems: &mut Problems) -> Setup {
    let lists = [&defaults.files, &node.files].into_iter().flatten().flatten();
    let files = lists.filter_map(|file| guest_file(file, folder, problems)).collect();
    let mut mounted = BTreeSet::new();
    let lists = [&defaults.mount, &node.mount].into_iter().flatten().flatten();
    let mount = lists
        .filter_map(|entry| host_folder(entry, folder, &mut mounted, problems))
        .collect();
    let exec: Vec<String> = [&defaults.exec, &node.exec]
        .into_iter()
        .flatten()
        .flatten()
        .cloned()
        .collect();
    let mut sysctl = BTreeMap::new();
    for layer in [&defaults.sysctl, &node.sysctl].into_iter().flatten() {
        for (name, value) in layer.get_ref() {
            flatten(name.clone(), value, &mut sysctl);
        }
        if let Some(name) = sysctl.keys().find(|name| !is_sysctl_name(name)) {
            let message = format!("\"{name}\" is not the name of a kernel setting");
            problems.add(
                layer.span(),
                message,
                "as `sysctl -a` shows it, such as \"net.ipv4.ip_forward\"",
            );
        }
    }
    let env = merged(&defaults.env, &node.env);
    for layer in [&defaults.env, &node.env].into_iter().flatten() {
        if let Some(name) = layer.get_ref().keys().find(|name| !is_variable(name)) {
            let message = format!("\"{name}\" is not the name of an environment variable");
            problems.add(layer.span(), message, "letters, digits and underscores, no digit first");
        }
    }
    let setup = Setup {
        files,
        exec,
        env,
        sysctl,
        mount,
    };
    check_sizes(node, &setup, problems);
    setup
}

fn check_sizes(node: &NodeFile, setup: &Setup, problems: &mut Problems) {
    let name = node.name.get_ref();
    for (what, count, max) in [
        ("files", setup.files.len(), ENTRIES_MAX),
        ("commands", setup.exec.len(), ENTRIES_MAX),
        ("environment variables", setup.env.len(), ENTRIES_MAX),
        ("kernel settings", setup.sysctl.len(), ENTRIES_MAX),
        ("folders of the host", setup.mount.len(), MOUNTS_MAX),
    ] {
        if count > max {
            problems.add(
                node.name.span(),
                format!("node {name} has {count} {what}"),
                format!("at most {max}"),
            );
        }
    }
    let texts = setup.exec.iter().chain(setup.env.values()).chain(setup.sysctl.values());
    for text in texts {
        if text.len() > TEXT_LEN_MAX || text.contains('\0') {
            let message = format!("a command, variable or setting of node {name} is too long or has a zero byte");
            problems.add(
                node.name.span(),
                message,
                format!("at most {TEXT_LEN_MAX} bytes of text"),
            );
        }
    }
}

/// Returns the labels of a node.
pub(super) fn labels(defaults: &DefaultsFile, node: &NodeFile, problems: &mut Problems) -> BTreeMap<String, String> {
    let labels = merged(&defaults.labels, &node.labels);
    if labels.len() > ENTRIES_MAX {
        let message = format!("node {} has {} labels", node.name.get_ref(), labels.len());
        problems.add(node.name.span(), message, format!("at most {ENTRIES_MAX}"));
    }
    labels
}

/// Notes the keys that have no effect on a node that boots an image of the user.
pub(super) fn refuse(node: &NodeFile, problems: &mut Problems) {
    let given = [
        ("image", node.image.is_some()),
        ("packages", node.packages.is_some()),
        ("files", node.files.is_some()),
        ("exec", node.exec.is_some()),
        ("env", node.env.is_some()),
        ("sysctl", node.sysctl.is_some()),
        ("mount", node.mount.is_some()),
        ("modules", node.modules.is_some()),
    ];
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        let message = format!("`{key}` has no effect with `disk` or `initramfs`");
        let help = format!("leave `{key}` out, or boot our recipe: then the guest does what the lab file says");
        problems.add(node.name.span(), message, help);
    }
}

type Words = Option<Spanned<BTreeMap<String, String>>>;

/// Merges the words of the lab and of the node; those of the node take precedence.
fn merged(defaults: &Words, node: &Words) -> BTreeMap<String, String> {
    let layers = [defaults, node].into_iter().flatten();
    let all = layers.flat_map(|layer| layer.get_ref().iter());
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn flatten(name: String, value: &SysctlFile, all: &mut BTreeMap<String, String>) {
    match value {
        SysctlFile::Number(number) => _ = all.insert(name, number.to_string()),
        SysctlFile::Text(text) => _ = all.insert(name, text.clone()),
        SysctlFile::Below(below) => {
            for (part, value) in below {
                flatten(format!("{name}.{part}"), value, all);
            }
        }
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    name.contains(['.', '/'])
        && name.len() < 256
        && name.chars().all(plain)
        && name.split(['.', '/']).all(|part| !part.is_empty())
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn guest_file(file: &GuestFileFile, folder: LabFolder<'_>, problems: &mut Problems) -> Option<GuestFile> {
    let to = guest_path(&file.to, problems)?;
    let source = match (&file.from, &file.text) {
        (Some(from), None) => {
            let full = folder.join(from.get_ref());
            if !folder.has_anything(&full) {
                let message = format!("there is no file or folder {}", full.display());
                problems.add(from.span(), message, "a path relative to the lab file");
            }
            Source::From(full)
        }
        (None, Some(text)) => Source::Text(text.clone()),
        _ => {
            let message = format!("the file {to} needs either `from` or `text`");
            problems.add(
                file.to.span(),
                message,
                "from = \"server.conf\", or text = \"listen 80\\n\"",
            );
            return None;
        }
    };
    let mode = file.mode.as_ref().and_then(|text| {
        let mode = u32::from_str_radix(text.get_ref().trim_start_matches("0o"), 8).ok();
        let mode = mode.filter(|mode| *mode <= 0o7777);
        if mode.is_none() {
            let message = format!("\"{}\" are no permissions", text.get_ref());
            problems.add(text.span(), message, "an octal number, such as \"0755\"");
        }
        mode
    });
    Some(GuestFile { source, to, mode })
}

fn host_folder(
    entry: &HostFolderFile,
    folder: LabFolder<'_>,
    mounted: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> Option<Mount> {
    let to = guest_path(&entry.to, problems)?;
    let from = folder.join(entry.from.get_ref());
    if !folder.has_folder(&from) {
        let message = format!("there is no folder {}", from.display());
        problems.add(entry.from.span(), message, "a path relative to the lab file");
    }
    let taken = [
        "bin", "dev", "etc", "init", "lib", "lib64", "proc", "run", "sbin", "sys", "usr",
    ];
    if taken.contains(&to.trim_start_matches('/')) || ["/proc/", "/sys/", "/dev/"].iter().any(|top| to.starts_with(top))
    {
        let message = format!("{to} is a folder that the guest needs itself");
        problems.add(entry.to.span(), message, "another one, such as \"/data\"");
    }
    if !mounted.insert(to.clone()) {
        problems.add(
            entry.to.span(),
            format!("two folders cannot both be {to}"),
            "a place for each",
        );
    }
    Some(Mount {
        from,
        to,
        readonly: entry.readonly.unwrap_or(false),
    })
}

/// Checks that a path in the guest is absolute and plain.
fn guest_path(path: &Spanned<String>, problems: &mut Problems) -> Option<String> {
    let text = path.get_ref();
    let mut parts = text.strip_prefix('/').unwrap_or_default().split('/');
    let plain = text.starts_with('/')
        && text.len() < 256
        && parts.all(|part| !part.is_empty() && part != "." && part != "..")
        && !text.contains(char::is_control);
    if !plain {
        let message = format!("{text:?} is not a plain path in the guest");
        problems.add(
            path.span(),
            message,
            "an absolute one without `.` and `..`, such as \"/etc/server.conf\"",
        );
    }
    plain.then(|| text.clone())
}
