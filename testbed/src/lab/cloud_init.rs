//! How cloud-init sets up a node that boots an image of the user.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    Boot,
    file::{CloudInitFile, CloudInitKey, NodeFile},
    lab_folder::LabFolder,
    problems::Problems,
};

/// Longest name of a user that Debian's tools accept.
const USER_NAME_LEN_MAX: usize = 32;

/// The settings for cloud-init in addition to name and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudInit {
    /// User to create.
    pub user: Option<String>,
    /// Password of that user, or of the image's own.
    pub password: Option<String>,
    /// Files with public ssh keys.
    pub ssh_keys: Vec<PathBuf>,
    /// Whether Weft's agent is put into the guest.
    pub agent: bool,
}

/// Checks what the file says about cloud-init in a node.
pub(super) fn check(folder: LabFolder<'_>, node: &NodeFile, boot: &Boot, problems: &mut Problems) -> Option<CloudInit> {
    let key = node.cloud_init.as_ref()?;
    let written = match key.get_ref() {
        CloudInitKey::Flag(false) => return None,
        CloudInitKey::Flag(true) => CloudInitFile::default(),
        CloudInitKey::Table(table) => table.clone(),
    };
    if matches!(boot, Boot::Recipe { .. }) {
        let help = "it is for images of your own: name one with `disk` or `initramfs`, or leave `cloud_init` out";
        problems.add(
            key.span(),
            "`cloud_init` has no effect without `disk` or `initramfs`",
            help,
        );
    }
    let name_is_plain = |name: &String| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() <= USER_NAME_LEN_MAX
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    if let Some(name) = written.user.as_ref().filter(|name| !name_is_plain(name)) {
        let help =
            format!("up to {USER_NAME_LEN_MAX} lower-case letters, digits, dashes and underscores, a letter first");
        problems.add(key.span(), format!("\"{name}\" cannot be the name of a user"), help);
    }
    let mut ssh_keys = Vec::new();
    for path in &written.ssh_keys {
        let full = folder.join(path);
        if !folder.has_file(&full) {
            let help = "a path to a public key, such as id_ed25519.pub, relative to the lab file";
            problems.add(key.span(), format!("there is no ssh key {}", full.display()), help);
        }
        ssh_keys.push(full);
    }
    Some(CloudInit {
        user: written.user,
        password: written.password,
        ssh_keys,
        agent: written.agent.unwrap_or(true),
    })
}
