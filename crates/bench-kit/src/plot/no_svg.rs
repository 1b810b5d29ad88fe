//! Replacement for plots on a page. It is used in programs that are built without the feature
//! `plotter`.

use super::Plot;
use crate::html::escape;

impl Plot {
    /// Returns a sentence that replaces the plot.
    pub fn svg(&self) -> String {
        let title = escape(&self.title);
        format!("<p class=\"empty\">{title}: this build draws no plots.</p>")
    }
}
