//! The sessions of a page: what its readers type, and what the page shows them.

/// A command that is typed, and what the page shows below it.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the page on which the command begins, from 1.
    pub line: usize,
    pub command: String,
    pub shown: Vec<String>,
}

/// A block of a page in one language: the line below its fence, from 1, and its text.
pub struct Block<'a> {
    pub line: usize,
    pub text: &'a str,
}

/// Returns the blocks of this language of a page.
pub fn blocks<'a>(page: &'a str, language: &str) -> Vec<Block<'a>> {
    let fence = format!("```{language}\n");
    let (mut blocks, mut opened, mut start) = (Vec::new(), None, 0);
    for (index, line) in page.split_inclusive('\n').enumerate() {
        let (from, to) = (start, start + line.len());
        start = to;
        match opened {
            Some((line_number, text_from)) if line.trim_end() == "```" => {
                if let Some(line) = line_number {
                    blocks.push(Block {
                        line,
                        text: &page[text_from..from],
                    });
                }
                opened = None;
            }
            Some(_) => {}
            None if line.starts_with("```") => opened = Some(((line == fence).then_some(index + 2), to)),
            None => {}
        }
    }
    assert!(opened.is_none(), "a block of the page has no end");
    blocks
}

/// Returns the commands of a session: lines behind `$ `, and those behind `> ` that go on with one.
pub fn steps(block: &Block<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, text) in block.text.lines().enumerate() {
        let line = block.line + index;
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step {
                line,
                command: command.to_owned(),
                shown: Vec::new(),
            });
            continue;
        }
        let step = steps
            .last_mut()
            .unwrap_or_else(|| panic!("line {line}: a session begins with a command: {text}"));
        match text.strip_prefix("> ") {
            Some(more) if step.shown.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            _ => step.shown.push(text.to_owned()),
        }
    }
    steps
}

#[test]
fn a_session_has_commands_of_several_lines_and_what_is_shown_below_each() {
    let page = "words\n```text\n$ not this\n```\n\n```console\n$ one\n$ for x in a b; do\n> echo $x; done\na\nb\n```\n";
    let [block] = &blocks(page, "console")[..] else {
        panic!("one session")
    };
    let step = |line, command: &str, shown: &[&str]| Step {
        line,
        command: command.to_owned(),
        shown: shown.iter().map(|&line| line.to_owned()).collect(),
    };
    assert_eq!(
        steps(block),
        [
            step(7, "one", &[]),
            step(8, "for x in a b; do\necho $x; done", &["a", "b"])
        ]
    );
}
