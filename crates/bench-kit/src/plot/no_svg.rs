//! What stands in a page for a plot where the program has no plotter.

use super::Plot;
use crate::html::escape;

impl Plot {
    /// A sentence in place of the plot.
    pub fn svg(&self) -> String {
        let title = escape(&self.title);
        format!("<p class=\"empty\">{title}: this build draws no plots.</p>")
    }
}
