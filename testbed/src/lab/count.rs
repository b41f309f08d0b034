//! Nodes that are written once and stand for several: `count = 8`. Each becomes a table of its own, with its number in
//! place of `{n}` in names and addresses; the results are checked like any other values.

use toml::Spanned;

use super::{
    NODES_MAX,
    file::{NicFile, NodeFile},
    problems::Problems,
};

/// Number of digits that a number may be padded to.
const WIDTH_MAX: usize = 4;

/// Returns the nodes of a file, each repeated as often as its `count` says.
pub(super) fn expand(nodes: &[NodeFile], problems: &mut Problems) -> Vec<NodeFile> {
    let mut expanded = Vec::new();
    for node in nodes {
        let Some(count) = &node.count else {
            expanded.push(node.clone());
            continue;
        };
        let numbers = 1..=i64::try_from(NODES_MAX).unwrap_or(i64::MAX);
        if !numbers.contains(count.get_ref()) {
            problems.add(
                count.span(),
                format!("a node cannot be there {} times", count.get_ref()),
                format!("from 1 to {NODES_MAX}"),
            );
            // Other mistakes in it are reported, too.
            expanded.push(numbered(node, 1, problems));
            continue;
        }
        for number in 1..=u32::try_from(*count.get_ref()).unwrap_or(1) {
            // One node more than possible is enough for the message.
            if expanded.len() <= NODES_MAX {
                expanded.push(numbered(node, number, problems));
            }
        }
    }
    expanded
}

/// Makes the node number `number` of those that `node` stands for.
fn numbered(node: &NodeFile, number: u32, problems: &mut Problems) -> NodeFile {
    let mut text = |written: &Spanned<String>| match with_number(written.get_ref(), number) {
        Ok(text) => Spanned::new(written.span(), text),
        Err(what) => {
            let help =
                "`{n}` is the node's number, `{n+10}` ten more, `{n:02}` two digits, `{n:02x}` two hexadecimal digits";
            problems.add(written.span(), what, help);
            written.clone()
        }
    };
    let nic = |nic: &NicFile, text: &mut dyn FnMut(&Spanned<String>) -> Spanned<String>| NicFile {
        switch: nic.switch.as_ref().map(&mut *text),
        mac: nic.mac.as_ref().map(&mut *text),
        address: nic.address.as_ref().map(&mut *text),
        address6: nic.address6.as_ref().map(&mut *text),
        ..nic.clone()
    };
    let name = if node.name.get_ref().contains('{') {
        text(&node.name)
    } else {
        Spanned::new(node.name.span(), format!("{}{number}", node.name.get_ref()))
    };
    NodeFile {
        count: None,
        nic: (node.nic.as_ref()).map(|nics| nics.iter().map(|one| nic(one, &mut text)).collect()),
        append: node.append.as_ref().map(&mut text),
        name,
        ..node.clone()
    }
}

/// Replaces `{n}`, `{n+K}` and either with `:0W` or `:0Wx` behind in `text` by `number`.
fn with_number(text: &str, number: u32) -> Result<String, String> {
    let mut rest = text;
    let mut result = String::new();
    while let Some((before, behind)) = rest.split_once('{') {
        let unknown = || format!("\"{text}\" has a \"{{\" that begins no number");
        let (inside, behind) = behind.split_once('}').ok_or_else(unknown)?;
        result.push_str(before);
        result.push_str(&shown(inside, number).ok_or_else(unknown)?);
        rest = behind;
    }
    result.push_str(rest);
    Ok(result)
}

/// Renders the number as the text between braces says.
fn shown(inside: &str, number: u32) -> Option<String> {
    let (value, format) = match inside.split_once(':') {
        Some((value, format)) => (value, Some(format)),
        None => (inside, None),
    };
    let more = match value.strip_prefix('n')? {
        "" => 0,
        more => more.strip_prefix('+')?.parse::<u32>().ok()?,
    };
    let number = number.checked_add(more)?;
    let Some(format) = format else {
        return Some(number.to_string());
    };
    let (width, hexadecimal) = match format.strip_suffix('x') {
        Some(width) => (width, true),
        None => (format, false),
    };
    let width = match width.strip_prefix('0') {
        Some(width) => width.parse().ok().filter(|width| (1..=WIDTH_MAX).contains(width))?,
        None if width.is_empty() && hexadecimal => 0,
        None => return None,
    };
    Some(if hexadecimal {
        format!("{number:0width$x}")
    } else {
        format!("{number:0width$}")
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::lab::Lab;

    #[test]
    fn one_table_stands_for_many_nodes_with_names_and_addresses_of_their_own() {
        let parse = |text: &str| Lab::parse(text, "lab.toml", "many", Path::new("/"));
        let lab = parse("[[node]]\nname = \"n\"\ncount = 3\n").expect("valid");
        let names: Vec<_> = lab.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["n1", "n2", "n3"]);
        let text = "[[switch]]\nname = \"s1\"\n[[switch]]\nname = \"s2\"\n[[node]]\nname = \"rack-{n:02}\"\ncount = 2\n\
                    nic = [{ switch = \"s{n}\", mac = \"52:54:00:00:aa:{n:02x}\", address = \"10.{n}.0.{n+10}/24\" }]\n";
        let lab = parse(text).expect("valid");
        let second = &lab.nodes[1];
        assert_eq!((&*second.name, &*second.nics[0].switch), ("rack-02", "s2"));
        assert_eq!(second.nics[0].mac.to_string(), "52:54:00:00:aa:02");
        assert_eq!(second.address().expect("stated").to_string(), "10.2.0.12/24");
        for (text, sentence) in [
            (
                "[[node]]\nname = \"n\"\ncount = 65\n",
                "a node cannot be there 65 times",
            ),
            ("[[node]]\nname = \"n\"\ncount = 0\n", "a node cannot be there 0 times"),
            (
                "[[node]]\nname = \"n{m}\"\ncount = 2\n",
                "\"n{m}\" has a \"{\" that begins no number",
            ),
            (
                "[[node]]\nname = \"n\"\ncount = 40\n[[node]]\nname = \"m\"\ncount = 40\n",
                "a lab of more than 64 nodes is too large",
            ),
            ("[[node]]\nname = \"n{n}\"\n", "\"n{n}\" cannot be the name of a node"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(
                error.problems().iter().any(|problem| problem.message == sentence),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_number_is_put_where_the_text_says_so() {
        for (text, shown) in [
            ("n{n}", "n7"),
            ("10.0.0.{n+10}/24", "10.0.0.17/24"),
            ("n{n:02}", "n07"),
            ("52:54:00:00:aa:{n+9:02x}", "52:54:00:00:aa:10"),
            ("{n:x}", "7"),
            ("plain", "plain"),
        ] {
            assert_eq!(with_number(text, 7).as_deref(), Ok(shown), "{text}");
        }
        for text in ["n{", "n{m}", "n{n-1}", "n{n:2}", "n{n:09}", "n{n+}", "{n+99999999999}"] {
            assert!(with_number(text, 7).is_err(), "{text}");
        }
    }
}
