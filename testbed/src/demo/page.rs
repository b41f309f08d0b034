//! The demo's results as one page: reading, tables and charts in a single file that needs no other file and no server.

use super::{
    output::{Table, about, tables},
    reading,
    result::Demo,
};

const STYLE: &str = "body { font: 16px/1.5 sans-serif; max-width: 900px; margin: 2em auto; padding: 0 1em; color: #222 } \
    h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2em } \
    table { border-collapse: collapse; font-size: 0.85em; margin: 0.5em 0 1.5em; display: block; overflow-x: auto } \
    th, td { padding: 0.2em 0.7em; border-bottom: 1px solid #ddd; text-align: left } \
    td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums } \
    figure { margin: 1.5em 0 } svg { max-width: 100%; height: auto }";

/// Renders the page with these charts.
pub(super) fn page(demo: &Demo, charts: &[String]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>weft demo</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>When should a network card interrupt?</h1>\n<p>{}</p>\n<h2>Reading</h2>\n",
        escaped(&about(demo))
    );
    for paragraph in reading::paragraphs(demo) {
        page += &format!("<p>{}</p>\n", escaped(&paragraph));
    }
    page += "<h2>Charts</h2>\n";
    for chart in charts {
        page += &format!("<figure>\n{}\n</figure>\n", scalable(chart));
    }
    page += "<h2>Numbers</h2>\n";
    for table in tables() {
        page += &rows(demo, &table);
    }
    page + "</body>\n</html>\n"
}

/// Makes a chart scalable: on a narrow page it shrinks, for which the browser needs its original size.
fn scalable(svg: &str) -> String {
    let Some((size, rest)) = svg.split_once('>') else {
        return svg.to_owned();
    };
    match size.contains("viewBox") {
        true => svg.to_owned(),
        false => format!("{size} viewBox=\"0 0 860 440\">{rest}"),
    }
}

fn rows(demo: &Demo, table: &Table) -> String {
    let mut text = format!("<p>{}</p>\n<table>\n<tr>", escaped(&table.heading));
    let class = |is_number: bool| if is_number { " class=\"number\"" } else { "" };
    for (name, is_number) in table.columns.heads() {
        text += &format!("<th{}>{}</th>", class(is_number), escaped(name));
    }
    text += "</tr>\n";
    for outcome in &demo.outcomes {
        text += "<tr>";
        for (cell, is_number) in table.columns.cells(outcome) {
            text += &format!("<td{}>{}</td>", class(is_number), escaped(&cell));
        }
        text += "</tr>\n";
    }
    text + "</table>\n"
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{charts::charts, result::tests::example};

    #[test]
    fn the_page_has_reading_tables_and_charts_and_needs_nothing_else() {
        let demo = example(false);
        let drawn: Vec<_> = charts(&demo)
            .iter()
            .map(|(_, chart)| chart.svg().expect("drawable"))
            .collect();
        let page = page(&demo, &drawn);
        assert_eq!(page.matches("<svg").count(), 9);
        assert_eq!(page.matches("viewBox=").count(), 9);
        assert_eq!(page.matches("<table>").count(), 3);
        for paragraph in reading::paragraphs(&demo) {
            assert!(page.contains(&escaped(&paragraph)), "{paragraph}");
        }
        assert!(page.contains("&lt;1") || !page.contains("<1"), "text is escaped");
        for outside in ["<script", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
