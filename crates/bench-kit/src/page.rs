//! Pages that need nothing beside themselves: light, dark and on paper.

use std::fmt::Write;

use crate::{html::escape, plot::Plot, table::Table};

/// A page that grows from top to bottom. Whatever text goes in is escaped.
#[derive(Debug, Clone)]
pub struct Page {
    html: String,
}

impl Page {
    /// The beginning of a page, with the title as its first heading.
    pub fn open(title: &str) -> Self {
        let title = escape(title);
        Self {
            html: format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
                 <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
            ),
        }
    }

    /// A heading of a section.
    pub fn heading(&mut self, title: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(title));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p>{}</p>", escape(text));
    }

    /// A list with a bullet for each line.
    pub fn list(&mut self, lines: &[String]) {
        self.html.push_str("<ul>\n");
        for line in lines {
            let _ = writeln!(self.html, "<li>{}</li>", escape(line));
        }
        self.html.push_str("</ul>\n");
    }

    /// A table under a heading.
    pub fn table(&mut self, title: &str, table: &Table) {
        self.heading(title);
        self.html.push_str("<table><thead>");
        self.row("th", &table.head);
        self.html.push_str("</thead><tbody>\n");
        for row in &table.rows {
            self.row("td", row);
        }
        self.html.push_str("</tbody></table>\n");
    }

    /// Plots side by side, as many as the width allows.
    pub fn plots(&mut self, plots: &[Plot]) {
        self.html.push_str("<div class=\"plots\">\n");
        for plot in plots {
            let _ = writeln!(self.html, "<figure>{}</figure>", plot.svg());
        }
        self.html.push_str("</div>\n");
    }

    /// The whole page as HTML.
    pub fn finish(mut self) -> String {
        self.html.push_str("</body></html>\n");
        self.html
    }

    fn row(&mut self, tag: &str, cells: &[String]) {
        self.html.push_str("<tr>");
        for cell in cells {
            let _ = write!(self.html, "<{tag}>{}</{tag}>", escape(cell));
        }
        self.html.push_str("</tr>\n");
    }
}

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
