//! Pages as one HTML file without scripts, with styles for light and dark screens and for paper.

use std::fmt::Write;

use crate::{html::escape, plot::Plot, table::Table};

/// A page to which content is appended. All text is escaped.
#[derive(Debug, Clone)]
pub struct Page {
    html: String,
}

/// A group of plots about one subject, arranged vertically, with a title and captions.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Subject of the plots, shown above them.
    pub title: String,
    /// Plots, from top to bottom.
    pub plots: Vec<Plot>,
    /// Lines of text below the plots.
    pub captions: Vec<Caption>,
}

/// A line of text below the plots of a panel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caption {
    /// Text of the line.
    pub text: String,
    /// Whether the line is about a figure that missed its limit. The page highlights such a line.
    pub is_missed: bool,
}

impl Page {
    /// Creates a page that has only its title as a heading.
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

    /// Appends the heading of a section.
    pub fn heading(&mut self, title: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(title));
    }

    /// Appends a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p>{}</p>", escape(text));
    }

    /// Appends a bullet list with one item for each line.
    pub fn list(&mut self, lines: &[String]) {
        self.html.push_str("<ul>\n");
        for line in lines {
            let _ = writeln!(self.html, "<li>{}</li>", escape(line));
        }
        self.html.push_str("</ul>\n");
    }

    /// Appends a table under a heading.
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

    /// Appends plots in rows. A row has as many plots as the width permits.
    pub fn plots(&mut self, plots: &[Plot]) {
        self.html.push_str("<div class=\"plots\">\n");
        for plot in plots {
            let _ = writeln!(self.html, "<figure>{}</figure>", plot.svg());
        }
        self.html.push_str("</div>\n");
    }

    /// Appends panels in rows. A row has as many panels as the width permits.
    pub fn panels(&mut self, panels: &[Panel]) {
        self.html.push_str("<div class=\"panels\">\n");
        for panel in panels {
            let _ = writeln!(self.html, "<figure><h3>{}</h3>", escape(&panel.title));
            for plot in &panel.plots {
                let _ = writeln!(self.html, "{}", plot.svg());
            }
            self.html.push_str("<figcaption><ul>");
            for caption in &panel.captions {
                let text = escape(&caption.text);
                let _ = if caption.is_missed {
                    write!(self.html, "<li class=\"missed\">missed: {text}</li>")
                } else {
                    write!(self.html, "<li>{text}</li>")
                };
            }
            self.html.push_str("</ul></figcaption></figure>\n");
        }
        self.html.push_str("</div>\n");
    }

    /// Returns the whole page as HTML.
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
:root{color-scheme:light dark;--line:#8884;--missed:light-dark(#b3261e,#ff8a80)}\
body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}\
h1,h2,h3{line-height:1.2}table{border-collapse:collapse;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}\
th,td{border-bottom:1px solid var(--line);padding:.25rem .75rem .25rem 0;text-align:left;vertical-align:top}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1rem}\
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(30rem,100%),1fr));gap:2rem 1.5rem}\
h3{font-size:1rem;margin:0}figcaption{font-size:.85rem}figcaption ul{margin:0;padding:0;list-style:none;columns:2}\
.missed{color:var(--missed);font-weight:600}\
svg{width:100%;height:auto}\
@media print{body{max-width:none;margin:0;font-size:10pt}.plots,.panels{grid-template-columns:1fr 1fr}\
figure,table,tr{break-inside:avoid}}\
figure{margin:0}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Axis;

    #[test]
    fn a_panel_has_its_plots_and_marks_what_was_missed() {
        let plot = Plot {
            title: "rate".to_owned(),
            x: Axis::linear("s"),
            y: Axis::linear("Mbit/s"),
            series: Vec::new(),
        };
        let caption = |text: &str, is_missed| Caption {
            text: text.to_owned(),
            is_missed,
        };
        let mut page = Page::open("a <page>");
        page.panels(&[Panel {
            title: "40 ms & more".to_owned(),
            plots: vec![plot.clone(), plot],
            captions: vec![caption("ours >= 0.5: 0.7", false), caption("queue", true)],
        }]);
        let html = page.finish();
        for text in [
            "<h1>a &lt;page&gt;</h1>",
            "<h3>40 ms &amp; more</h3>",
            "<li>ours &gt;= 0.5: 0.7</li><li class=\"missed\">missed: queue</li>",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert_eq!(html.matches("class=\"empty\"").count(), 2);
    }
}
