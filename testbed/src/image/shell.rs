//! Reads shell scripts as far as their simple commands go: words with quotes, and variables that the script sets to plain
//! values. Nothing is run.

use std::collections::BTreeMap;

/// Words before a command that are not part of it.
const KEYWORDS: [&str; 9] = ["if", "then", "else", "elif", "while", "until", "do", "!", "exec"];

/// Returns the simple commands of a script, in order. A command with a variable whose value is not known is left out.
pub(super) fn commands(script: &str) -> Vec<Vec<String>> {
    let mut reader = Reader::default();
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match (reader.quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => reader.quote = None,
            (Some('\''), c) => reader.push(c),
            (_, '\\') => match chars.next() {
                Some('\n') | None => {}
                Some(c) => reader.push(c),
            },
            (_, '$') => {
                let braced = chars.next_if_eq(&'{').is_some();
                let mut name = String::new();
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                let plain = !braced || chars.next_if_eq(&'}').is_some();
                reader.variable(&name, plain);
            }
            (Some(_), c) => reader.push(c),
            (None, '\'' | '"') => {
                reader.quote = Some(c);
                reader.word.get_or_insert_default();
            }
            (None, '#') if reader.word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            (None, '<' | '>') => {
                while chars.next_if(|c| matches!(c, '<' | '>' | '&' | ' ')).is_some() {}
                reader.redirect();
            }
            (None, '\n' | ';' | '|' | '&' | '(' | ')' | '{' | '}' | '`') => reader.end_command(),
            (None, c) if c.is_whitespace() => reader.end_word(),
            (None, c) => reader.push(c),
        }
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct Reader {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
    quote: Option<char>,
    variables: BTreeMap<String, String>,
    /// The command has a word that is not known.
    is_unknown: bool,
    /// The next word is what a redirection names.
    is_redirected: bool,
}

impl Reader {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn variable(&mut self, name: &str, plain: bool) {
        match self.variables.get(name).filter(|_| plain) {
            Some(value) => self.word.get_or_insert_default().push_str(value),
            None => self.is_unknown = true,
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.is_redirected) {
            return;
        }
        if !self.words.is_empty() {
            self.words.push(word);
        } else if let Some((name, value)) = word.split_once('=')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            if !self.is_unknown {
                self.variables.insert(name.to_owned(), value.to_owned());
            }
        } else if !KEYWORDS.contains(&&*word) {
            self.words.push(word);
        }
    }

    /// Ends a word before a redirection, unless it is the number of a descriptor.
    fn redirect(&mut self) {
        if self.word.as_ref().is_some_and(|word| word.parse::<u32>().is_ok()) {
            self.word = None;
        }
        self.end_word();
        self.is_redirected = true;
    }

    fn end_command(&mut self) {
        self.end_word();
        self.is_redirected = false;
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() && !self.is_unknown {
            self.commands.push(words);
        }
        self.is_unknown = false;
    }
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn words_quotes_variables_and_branches_are_read_as_a_shell_does() {
        let script = "A=b; if ! x 'y  z' \"$A\" >/dev/null 2>&1; then # no comment ' here\n  do-it \\\n two\nfi\nc ${A}c $D\nd \"#\" ''";
        let words: Vec<String> = commands(script).iter().map(|words| words.join("|")).collect();
        assert_eq!(words, ["x|y  z|b", "do-it|two", "fi", "d|#|"]);
    }
}
