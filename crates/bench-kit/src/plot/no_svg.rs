//! Replacement of plots on a page if the program is built without the feature `plotter`.

use super::Plot;
use crate::html::escape;

impl Plot {
    /// Returns a sentence in place of the plot.
    pub fn svg(&self) -> String {
        let title = escape(&self.title);
        format!("<p class=\"empty\">{title}: this build draws no plots.</p>")
    }
}
