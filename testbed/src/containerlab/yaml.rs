//! A YAML document with the lines of its parts.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::Note;

/// Number of parts of a document, those that aliases repeat included.
const PARTS_MAX: usize = 100_000;
/// Depth of lists and tables in each other.
const DEPTH_MAX: usize = 64;

/// A part of a document.
#[derive(Clone, Debug)]
pub(super) struct Yaml {
    line: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A plain value as it is written; nothing for one that is left out.
    Scalar(Option<String>),
    Sequence(Vec<Yaml>),
    Mapping(Vec<(Yaml, Yaml)>),
}

impl Yaml {
    /// Parses the first document of a text.
    pub(super) fn parse(text: &str) -> Result<Self, Note> {
        let mut reader = Reader {
            parser: Parser::new_from_str(text),
            anchors: BTreeMap::new(),
            parts: 0,
        };
        loop {
            let (event, span) = reader.next()?;
            match event {
                Event::StreamEnd => return Err(note(&span, "this file is empty")),
                Event::StreamStart | Event::DocumentStart(_) => {}
                event => return reader.part(event, &span, 0),
            }
        }
    }

    /// Returns its line, from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Returns the keys of a mapping, each with its line and value; nothing for anything else.
    pub(super) fn entries(&self) -> Vec<(String, usize, &Self)> {
        let Kind::Mapping(mapping) = &self.kind else {
            return Vec::new();
        };
        let entries = mapping.iter();
        entries
            .filter_map(|(key, value)| Some((key.text()?, key.line, value)))
            .collect()
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let found = self.entries().into_iter().find(|(name, ..)| name == key);
        found.map(|(.., value)| value)
    }

    /// Returns the items of a sequence; nothing for anything else.
    pub(super) fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::Sequence(items) => items,
            _ => &[],
        }
    }

    /// Returns whether it is a list, or left out.
    pub(super) fn is_sequence(&self) -> bool {
        matches!(self.kind, Kind::Sequence(_) | Kind::Scalar(None))
    }

    /// Returns whether it is a table, or left out.
    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.kind, Kind::Mapping(_) | Kind::Scalar(None))
    }

    /// Returns a plain value as it is written.
    pub(super) fn text(&self) -> Option<String> {
        match &self.kind {
            Kind::Scalar(text) => text.clone(),
            _ => None,
        }
    }

    /// Returns the number of its parts, itself included.
    fn parts(&self) -> usize {
        1 + match &self.kind {
            Kind::Scalar(_) => 0,
            Kind::Sequence(items) => items.iter().map(Self::parts).sum(),
            Kind::Mapping(entries) => entries.iter().map(|(key, value)| key.parts() + value.parts()).sum(),
        }
    }
}

/// Makes parts of the parser's events.
struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// What aliases stand for, by number.
    anchors: BTreeMap<usize, Yaml>,
    parts: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Note> {
        let ended = || Ok((Event::StreamEnd, Span::default()));
        self.parser
            .next()
            .unwrap_or_else(ended)
            .map_err(|error: ScanError| Note {
                line: error.marker().line(),
                sentence: format!("this is no YAML: {}", error.info()),
            })
    }

    fn part(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Yaml, Note> {
        let (kind, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_nothing = style == ScalarStyle::Plain && ["", "~", "null"].contains(&&*text);
                (Kind::Scalar((!is_nothing).then(|| text.into_owned())), anchor)
            }
            Event::Alias(anchor) => {
                let part = self.anchors.get(&anchor).cloned();
                let part = part.ok_or_else(|| note(span, "this alias stands for nothing"))?;
                self.count(part.parts(), span)?;
                return Ok(part);
            }
            _ if depth == DEPTH_MAX => return Err(note(span, "this is too deep for a topology")),
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                while let Some(item) = self.part_before(&Event::SequenceEnd, depth)? {
                    items.push(item);
                }
                (Kind::Sequence(items), anchor)
            }
            Event::MappingStart(anchor, _) => {
                let mut entries = Vec::new();
                while let Some(key) = self.part_before(&Event::MappingEnd, depth)? {
                    let (event, span) = self.next()?;
                    entries.push((key, self.part(event, &span, depth + 1)?));
                }
                (Kind::Mapping(entries), anchor)
            }
            _ => return Err(note(span, "this is no YAML: it ends too early")),
        };
        self.count(1, span)?;
        let line = span.start.line();
        let part = Yaml { line, kind };
        if anchor > 0 {
            self.anchors.insert(anchor, part.clone());
        }
        Ok(part)
    }

    /// Returns the next part of a list or table, or nothing at its end.
    fn part_before(&mut self, end: &Event<'_>, depth: usize) -> Result<Option<Yaml>, Note> {
        let (event, span) = self.next()?;
        if event == *end {
            return Ok(None);
        }
        self.part(event, &span, depth + 1).map(Some)
    }

    fn count(&mut self, parts: usize, span: &Span) -> Result<(), Note> {
        self.parts += parts;
        if self.parts > PARTS_MAX {
            return Err(note(span, "this is too large for a topology"));
        }
        Ok(())
    }
}

fn note(span: &Span, sentence: &str) -> Note {
    Note {
        line: span.start.line().max(1),
        sentence: sentence.to_owned(),
    }
}
