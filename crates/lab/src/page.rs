//! Pages that need nothing beside themselves: light, dark and on paper.

use std::fmt::Write;

use crate::{
    plot::{Plot, escape},
    table::Table,
};

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884}\
body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}\
h1,h2{line-height:1.2}table{border-collapse:collapse;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}\
th,td{border-bottom:1px solid var(--line);padding:.25rem .75rem .25rem 0;text-align:left;vertical-align:top}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1rem}\
svg{width:100%;height:auto}\
@media print{body{max-width:none;margin:0;font-size:10pt}.plots{grid-template-columns:1fr 1fr}\
figure,table,tr{break-inside:avoid}}\
figure{margin:0}";

/// The beginning of a page, its title as the first heading included.
pub(crate) fn open(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
    )
}

pub(crate) fn close(page: &mut String) {
    page.push_str("</body></html>\n");
}

/// A table under a heading.
pub(crate) fn table(page: &mut String, title: &str, table: &Table) {
    let _ = writeln!(page, "<h2>{}</h2>\n<table><thead>", escape(title));
    line(page, "th", &table.head);
    page.push_str("</thead><tbody>\n");
    for row in &table.rows {
        line(page, "td", row);
    }
    page.push_str("</tbody></table>\n");
}

pub(crate) fn plots(page: &mut String, plots: &[Plot]) {
    page.push_str("<h2>Plots</h2>\n<div class=\"plots\">\n");
    for plot in plots {
        let _ = writeln!(page, "<figure>{}</figure>", plot.svg());
    }
    page.push_str("</div>\n");
}

pub(crate) fn list(page: &mut String, lines: &[String]) {
    page.push_str("<ul>\n");
    for line in lines {
        let _ = writeln!(page, "<li>{}</li>", escape(line));
    }
    page.push_str("</ul>\n");
}

fn line(page: &mut String, tag: &str, cells: &[String]) {
    page.push_str("<tr>");
    for cell in cells {
        let _ = write!(page, "<{tag}>{}</{tag}>", escape(cell));
    }
    page.push_str("</tr>\n");
}
