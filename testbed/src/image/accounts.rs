//! The accounts of a guest: those of the recipe, those that Debian's `base-passwd` has for every system, and those that the
//! packages' installation scripts would make. The scripts do not run; this module reads them and `sysusers.d`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::packages::SCRIPTS_FOLDER;

/// First number of accounts that installation scripts make, as in Debian's policy.
const FIRST_SYSTEM_ID: u32 = 100;
/// The group of accounts that have none of their own.
const NO_GROUP: u32 = 65534;

/// Users and groups in the order of the files.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    users: Vec<User>,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct User {
    name: String,
    id: u32,
    group: u32,
    /// Comment, home and shell.
    rest: [String; 3],
}

#[derive(Debug)]
struct Group {
    name: String,
    id: u32,
    members: Vec<String>,
}

impl Accounts {
    /// Adds the accounts in the texts of `/etc/passwd` and `/etc/group`; those that exist already stay.
    pub(super) fn add_files(&mut self, passwd: &str, group: &str) {
        for line in group.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, id, members] = fields[..]
                && let Ok(id) = id.parse()
                && self.group(name).is_none()
            {
                let members = members.split(',').filter(|member| !member.is_empty());
                self.groups.push(Group {
                    name: name.to_owned(),
                    id,
                    members: members.map(str::to_owned).collect(),
                });
            }
        }
        for line in passwd.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, id, group, comment, home, shell] = fields[..]
                && let (Ok(id), Ok(group)) = (id.parse(), group.parse())
                && !self.has_user(name)
            {
                self.users.push(User {
                    name: name.to_owned(),
                    id,
                    group,
                    rest: [comment, home, shell].map(str::to_owned),
                });
            }
        }
    }

    /// Adds the accounts of an unpacked package: those it contains for every system, those of its `sysusers.d`, and those
    /// that its scripts make.
    pub(super) fn add_package(&mut self, folder: &Path) {
        let read = |path: &str| fs::read(folder.join(path)).unwrap_or_default();
        let text = |path: &str| String::from_utf8_lossy(&read(path)).into_owned();
        self.add_files(
            &text("usr/share/base-passwd/passwd.master"),
            &text("usr/share/base-passwd/group.master"),
        );
        let files = fs::read_dir(folder.join("usr/lib/sysusers.d"))
            .into_iter()
            .flatten()
            .flatten();
        let mut files: Vec<_> = files.map(|file| file.path()).collect();
        files.sort();
        for file in files {
            self.add_sysusers(&fs::read_to_string(file).unwrap_or_default());
        }
        for script in ["preinst", "postinst"] {
            self.add_script(&text(&format!("{SCRIPTS_FOLDER}/{script}")));
        }
    }

    /// Adds what lines of `sysusers.d` name: `u NAME ID "COMMENT" HOME SHELL`, `g NAME ID`, `m USER GROUP`.
    fn add_sysusers(&mut self, text: &str) {
        for words in super::shell::commands(text) {
            let word = |index: usize| words.get(index).map(String::as_str).filter(|word| *word != "-");
            let id = word(2).and_then(|id| id.split(':').next()?.parse().ok());
            match (word(0), word(1)) {
                (Some("u" | "u!"), Some(name)) => {
                    let group = self.add_group(name, id);
                    let rest = [word(3), word(4).or(Some("/")), word(5).or(Some("/usr/sbin/nologin"))];
                    self.add_user(name, id, group, rest.map(|word| word.unwrap_or_default().to_owned()));
                }
                (Some("g"), Some(name)) => _ = self.add_group(name, id),
                (Some("m"), Some(user)) => self.add_member(user, word(2).unwrap_or_default()),
                _ => {}
            }
        }
    }

    /// Adds the accounts that a script makes, wherever in it: which of its branches run does not matter for a new system.
    fn add_script(&mut self, text: &str) {
        for words in super::shell::commands(text) {
            let (options, names) = split(&words[1..]);
            match (words[0].rsplit('/').next(), &names[..]) {
                (Some("addgroup" | "groupadd"), [name]) => _ = self.add_group(name, id_of(&options, "--gid")),
                (Some("adduser"), [name]) if options.contains_key("--group") && !options.contains_key("--system") => {
                    self.add_group(name, id_of(&options, "--gid"));
                }
                (Some("adduser" | "useradd"), [name]) => self.add_user_with(name, &options),
                (Some("adduser" | "addgroup"), [user, group]) => self.add_member(user, group),
                (Some("usermod"), [user]) => {
                    let groups = ["-G", "--groups"].iter().find_map(|option| options.get(*option));
                    for group in groups.iter().flat_map(|groups| groups.split(',')) {
                        self.add_member(user, group);
                    }
                }
                _ => {}
            }
        }
    }

    fn add_user_with(&mut self, name: &str, options: &BTreeMap<&str, &str>) {
        let option = |names: &[&str]| names.iter().find_map(|option| options.get(option)).copied();
        let group = match option(&["--ingroup", "-g", "--gid"]) {
            Some(group) => match group.parse() {
                Ok(id) => id,
                Err(_) => self.add_group(group, None),
            },
            None if option(&["--group", "-U", "--user-group"]).is_some() => self.add_group(name, None),
            None => NO_GROUP,
        };
        let comment = option(&["--gecos", "--comment", "-c"]).unwrap_or_default();
        let home = option(&["--home", "--home-dir", "-d"]).unwrap_or("/nonexistent");
        let shell = option(&["--shell", "-s"]).unwrap_or("/usr/sbin/nologin");
        let rest = [comment, home, shell].map(|text| text.replace([':', '\n'], " "));
        let id = id_of(options, "--uid");
        self.add_user(name, id, group, rest);
    }

    fn add_user(&mut self, name: &str, id: Option<u32>, group: u32, rest: [String; 3]) {
        if is_account_name(name) && !self.has_user(name) {
            let free = || (FIRST_SYSTEM_ID..).find(|id| self.users.iter().all(|user| user.id != *id));
            let id = id.or_else(free).unwrap_or(NO_GROUP);
            let name = name.to_owned();
            self.users.push(User { name, id, group, rest });
        }
    }

    /// Returns the number of the group, which is made if there is none of that name.
    fn add_group(&mut self, name: &str, id: Option<u32>) -> u32 {
        if let Some(group) = self.group(name) {
            return group.id;
        }
        let free = || (FIRST_SYSTEM_ID..).find(|id| self.groups.iter().all(|group| group.id != *id));
        let id = id.or_else(free).unwrap_or(NO_GROUP);
        if is_account_name(name) {
            let (name, members) = (name.to_owned(), Vec::new());
            self.groups.push(Group { name, id, members });
        }
        id
    }

    fn add_member(&mut self, user: &str, group: &str) {
        self.add_group(group, None);
        if let Some(group) = self.groups.iter_mut().find(|one| one.name == group)
            && is_account_name(user)
            && !group.members.iter().any(|member| member == user)
        {
            group.members.push(user.to_owned());
        }
    }

    fn has_user(&self, name: &str) -> bool {
        self.users.iter().any(|user| user.name == name)
    }

    fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns the text of `/etc/passwd`.
    pub(super) fn passwd(&self) -> String {
        let mut text = String::new();
        for User { name, id, group, rest } in &self.users {
            _ = writeln!(text, "{name}:x:{id}:{group}:{}", rest.join(":"));
        }
        text
    }

    /// Returns the text of `/etc/group`.
    pub(super) fn group_file(&self) -> String {
        let mut text = String::new();
        for Group { name, id, members } in &self.groups {
            _ = writeln!(text, "{name}:x:{id}:{}", members.join(","));
        }
        text
    }

    /// Returns the text of `/etc/shadow`: no user has a password, and none expires.
    pub(super) fn shadow(&self) -> String {
        self.users
            .iter()
            .map(|user| format!("{}:*:19000:0:99999:7:::\n", user.name))
            .collect()
    }
}

/// Splits words into options, each with its value or an empty one, and the others.
fn split(words: &[String]) -> (BTreeMap<&str, &str>, Vec<&str>) {
    /// Options of the programs that make accounts that have no value; all others have one.
    const FLAGS: [&str; 20] = [
        "--system",
        "--group",
        "--quiet",
        "--no-create-home",
        "--disabled-login",
        "--disabled-password",
        "--force-badname",
        "--allow-bad-names",
        "--user-group",
        "--no-user-group",
        "--append",
        "--create-home",
        "--non-unique",
        "--force",
        "-a",
        "-r",
        "-q",
        "-M",
        "-U",
        "-N",
    ];
    let (mut options, mut names) = (BTreeMap::new(), Vec::new());
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => _ = options.insert(option, value),
            // `usermod -aG`.
            _ if word == "-aG" => _ = options.insert("-G", words.next().unwrap_or_default()),
            _ if FLAGS.contains(&word) => _ = options.insert(word, ""),
            _ if word.starts_with('-') => _ = options.insert(word, words.next().unwrap_or_default()),
            _ => names.push(word),
        }
    }
    (options, names)
}

fn id_of(options: &BTreeMap<&str, &str>, option: &str) -> Option<u32> {
    options.get(option)?.parse().ok()
}

/// Returns whether an account may have this name: nothing else gets into the files.
fn is_account_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && !name.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_scripts_and_of_sysusers_are_added_to_those_there_are() {
        let mut accounts = Accounts::default();
        accounts.add_files(
            "root:x:0:0:root:/root:/bin/sh\nold:x:100:100::/:/bin/sh\n",
            "root:x:0:\nold:x:100:\n",
        );
        // As frr, tcpdump, openssh-server and bird2 do it in Debian 12.
        accounts.add_script(
            "addgroup --system frrvty\naddgroup --system frr\nadduser \\\n\t--system \\\n\t--ingroup frr \\\n\t--home /nonexistent \\\n\
             \t--gecos \"Frr routing suite\" \\\n\t--no-create-home \\\n\tfrr\nusermod -a -G frrvty frr\n",
        );
        accounts.add_script("if ! getent passwd sshd >/dev/null; then\n\tadduser --quiet --system --no-create-home --home /run/sshd sshd\nfi\n");
        accounts.add_script("U=_chrony\nif true; then adduser --system --group --shell=/bin/false \"$U\" 2>/dev/null || true; fi # adduser x\n");
        accounts.add_script("adduser --system $UNKNOWN; groupadd -r -g 7 seven; adduser ../etc; echo 'adduser y'\n");
        accounts.add_sysusers("u dbus 81 \"System bus\"\ng wheel -\nm dbus wheel\n");
        assert_eq!(
            accounts.passwd(),
            "root:x:0:0:root:/root:/bin/sh\nold:x:100:100::/:/bin/sh\n\
             frr:x:101:102:Frr routing suite:/nonexistent:/usr/sbin/nologin\n\
             sshd:x:102:65534::/run/sshd:/usr/sbin/nologin\n_chrony:x:103:103::/nonexistent:/bin/false\n\
             dbus:x:81:81:System bus:/:/usr/sbin/nologin\n"
        );
        assert_eq!(
            accounts.group_file(),
            "root:x:0:\nold:x:100:\nfrrvty:x:101:frr\nfrr:x:102:\n_chrony:x:103:\nseven:x:104:\ndbus:x:81:\nwheel:x:105:dbus\n"
        );
        assert!(accounts.shadow().contains("frr:*:"), "{}", accounts.shadow());
    }
}
