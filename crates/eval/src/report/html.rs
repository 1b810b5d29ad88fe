//! The report as one self-contained HTML page, with styles for light and dark screens and for
//! paper.

use bench_kit::page::Page;

use super::EvaluationReport;

impl EvaluationReport {
    /// Returns the report as one HTML page.
    pub fn html(&self) -> String {
        let mut page = Page::open(&self.title);
        if !self.about.is_empty() {
            page.paragraph(&self.about);
        }
        page.list(&self.conditions());
        let tables = self.tables();
        let (first, others) = tables.split_at(tables.len().min(1));
        for (title, table) in first {
            page.table(title, table);
        }
        page.heading("Plots");
        page.plots(&self.plots());
        for (title, table) in others {
            page.table(title, table);
        }
        page.heading("What did not complete");
        let misses = self.misses();
        if misses.is_empty() {
            page.paragraph("Everything completed.");
        } else {
            page.list(&misses);
        }
        page.finish()
    }
}
