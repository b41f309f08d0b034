//! The settings of this host: variables in the environment or in a file, which systemd reads for `omxd@INTERFACE`
//! (`EnvironmentFile=`), and all other programs read as systemd does.

use std::{env, fs, io, iter::Peekable, path::PathBuf, str::Chars};

use crate::OmxdError;

/// The file, unless `OMX_CONFIG` names another one.
const CONFIG_FILE: &str = "/etc/open-mx/open-mx.conf";

/// What `omxd` takes from its environment, but for the interface. A test of `omxd` compares it with the command line.
pub const OMXD_VARIABLES: [&str; 14] = [
    "OMX_PRESET",
    "OMX_BOARD_NAME",
    "OMX_GROUP",
    "OMX_ENDPOINTS_MAX",
    "OMX_PEERS_MAX",
    "OMX_USER_RIGHTS",
    "OMX_QUEUE_US_MAX",
    "OMX_DATA_SOCKET",
    "OMX_DIRECT_TRANSMIT",
    "OMX_CPU_LATENCY_US_MAX",
    "OMX_ETHER_TYPE",
    "OMX_ESP_ETHER_TYPE",
    "OMX_MARKS",
    "OMX_PACKET_LOSS",
];

/// What the file sets; the environment goes first.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    of_file: Vec<(String, String)>,
}

impl Settings {
    /// Reads the file. Without one there are no settings but the environment's.
    ///
    /// # Errors
    /// [`OmxdError::Settings`] when the file cannot be read, or `OMX_CONFIG` names none.
    pub fn read() -> Result<Self, OmxdError> {
        let (path, named) = match path_variable("OMX_CONFIG") {
            Some(path) => (path, true),
            None => (PathBuf::from(CONFIG_FILE), false),
        };
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Self { of_file: parse(&text) }),
            Err(error) if !named && error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(OmxdError::Settings {
                path: path.display().to_string(),
                source,
            }),
        }
    }

    /// Returns the value of a setting; an empty one counts as none.
    pub fn get(&self, name: &str) -> Option<String> {
        let of_file = || {
            let last = self.of_file.iter().rfind(|(set, _)| set == name);
            last.map(|(_, value)| value.clone())
        };
        env::var(name)
            .ok()
            .filter(|value| !value.is_empty())
            .or_else(of_file)
            .filter(|value| !value.is_empty())
    }

    /// Returns the settings for `omxd` that it takes from its environment; the interface is not one of them.
    pub fn of_omxd(&self) -> Vec<(String, String)> {
        OMXD_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.get(name)?)))
            .collect()
    }
}

/// Returns a path in the environment; an empty one counts as none.
pub(crate) fn path_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Parses lines `NAME=VALUE`, as systemd.exec(5) has them: `#` and `;` begin a comment at the beginning of a line only,
/// a backslash joins lines, quotes keep white space.
fn parse(text: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|letter| letter.is_whitespace()).is_some() {}
        match rest.peek() {
            None => return settings,
            Some('#' | ';') => while rest.next_if(|letter| *letter != '\n').is_some() {},
            Some(_) => {
                let name: String =
                    std::iter::from_fn(|| rest.next_if(|letter| !matches!(letter, '=' | '\n'))).collect();
                if rest.next_if_eq(&'=').is_some() {
                    settings.push((name.trim_end().to_owned(), value(&mut rest)));
                }
            }
        }
    }
}

/// Reads what follows a `=`, to the end of the line.
fn value(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut value = String::new();
    // What is behind this is white space that nothing kept.
    let mut kept = 0;
    // Quotes count before the first letter without them.
    let mut plain = false;
    while let Some(letter) = rest.next() {
        match letter {
            '\n' => break,
            '\\' => {
                plain = true;
                value.extend(rest.next().filter(|letter| *letter != '\n'));
                kept = value.len();
            }
            '\'' | '"' if !plain => {
                quoted(rest, letter, &mut value);
                kept = value.len();
            }
            _ if letter.is_whitespace() && !plain => {}
            _ => {
                plain = true;
                value.push(letter);
                if !letter.is_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    value
}

/// Reads what follows a quote, to the one that ends it.
fn quoted(rest: &mut Peekable<Chars<'_>>, quote: char, value: &mut String) {
    while let Some(letter) = rest.next() {
        if letter == quote {
            return;
        }
        if letter != '\\' || quote == '\'' {
            value.push(letter);
            continue;
        }
        match rest.next() {
            Some(special @ ('"' | '\\' | '`' | '$')) => value.push(special),
            Some('\n') | None => {}
            Some(other) => value.extend(['\\', other]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_as_systemd_reads_it() {
        let text = "# FILE_BOARDS=no\n; FILE_BOARDS=no \"it is\n;X='\nFILE_BOARDS=eth1 # first\nFILE_BOARDSX=no\n FILE_BOARDS =\"eth2,eth3\"\n\
                    FILE_NONE=\nno setting\nFILE_BLANK=' '\nFILE_NAME=node#1:0\t \nFILE_LONG=a \\\n  b\nFILE_ESCAPED=a\\ \\#\\\\\n\
                    FILE_QUOTED=\"a \\\"b\\\" \\c\"\" # d\"  'e \\f' \nFILE_PLAIN=it's\nFILE_TWO=\"a\nb\"\nFILE_LAST=1";
        let settings = Settings { of_file: parse(text) };
        for (name, value) in [
            ("FILE_BOARDS", Some("eth2,eth3")),
            ("FILE_BOARDSX", Some("no")),
            ("FILE_NONE", None),
            ("no setting", None),
            ("FILE_BLANK", Some(" ")),
            ("FILE_NAME", Some("node#1:0")),
            ("FILE_LONG", Some("a   b")),
            ("FILE_ESCAPED", Some("a #\\")),
            ("FILE_QUOTED", Some("a \"b\" \\c # de \\f")),
            ("FILE_PLAIN", Some("it's")),
            ("FILE_TWO", Some("a\nb")),
            ("FILE_LAST", Some("1")),
        ] {
            assert_eq!(settings.get(name).as_deref(), value, "{name}");
        }
        let comment = parse("FILE_BOARDS=eth1 # first");
        assert_eq!(comment, [("FILE_BOARDS".to_owned(), "eth1 # first".to_owned())]);
        assert_eq!(parse("FILE_A=\\"), [("FILE_A".to_owned(), String::new())]);
        assert_eq!(parse("FILE_A='b"), [("FILE_A".to_owned(), "b".to_owned())]);
    }
}
