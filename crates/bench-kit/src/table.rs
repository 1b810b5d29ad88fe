//! Tables that can be formatted for Markdown, terminals and HTML pages.

use std::{fmt::Write, iter};

/// A table with column names and rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows. Each row has one cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table from column names and rows.
    pub fn new(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        Self {
            head: head.iter().map(|&name| name.to_owned()).collect(),
            rows: rows.into_iter().collect(),
        }
    }

    /// Formats the table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: String = "---|".repeat(self.head.len());
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{rule}\n{rows}", line(&self.head))
    }

    /// Formats the table for a terminal, with columns aligned by spaces.
    pub fn text(&self) -> String {
        let lines = || iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..self.head.len()).filter_map(width).collect();
        let mut text = String::new();
        for line in lines() {
            let cells = line.iter().zip(&widths);
            let cells: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_text_of_either_kind() {
        let rows = [("a", "1"), ("long", "")].map(|(a, b)| vec![a.to_owned(), b.to_owned()]);
        let table = Table::new(&["x", "number"], rows);
        assert_eq!(
            table.markdown(),
            "| x | number |\n|---|---|\n| a | 1 |\n| long |  |\n"
        );
        assert_eq!(table.text(), "x     number\na     1\nlong\n");
    }
}
