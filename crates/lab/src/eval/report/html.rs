//! The report as one page that needs nothing beside itself, light, dark and on paper.

use std::fmt::Write;

use super::Report;
use crate::{page, plot::escape};

impl Report {
    /// The report as a page.
    pub fn html(&self) -> String {
        let mut page = page::open(&self.title);
        if !self.about.is_empty() {
            let _ = writeln!(page, "<p>{}</p>", escape(&self.about));
        }
        page::list(&mut page, &self.conditions());
        let tables = self.tables();
        let (first, others) = tables.split_at(tables.len().min(1));
        for (title, table) in first {
            page::table(&mut page, title, table);
        }
        page::plots(&mut page, &self.plots());
        for (title, table) in others {
            page::table(&mut page, title, table);
        }
        page.push_str("<h2>What did not complete</h2>\n");
        let misses = self.misses();
        if misses.is_empty() {
            page.push_str("<p>Everything completed.</p>\n");
        } else {
            page::list(&mut page, &misses);
        }
        page::close(&mut page);
        page
    }
}
