//! Plots as SVG for pages. Text, lines and the legend's background use the light or dark colours of
//! the page.

use plotters::prelude::*;

use super::{Axis, Mark, Plot, Series};
use crate::html::escape;

/// Placeholder colour for text and lines. The finished SVG has the page's text colour instead.
const INK: RGBColor = RGBColor(1, 2, 3);
const INK_TEXT: &str = "#010203";
/// Placeholder colour for the background. The finished SVG has the page's background colour
/// instead.
const PAPER: RGBColor = RGBColor(4, 5, 6);
const PAPER_TEXT: &str = "#040506";

/// Colours that all readers, including colour-blind readers, can distinguish on light and dark
/// backgrounds (M. Okabe, K. Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(140, 140, 140),
];

const SIZE: (u32, u32) = (720, 360);
const FONT: &str = "sans-serif";

impl Plot {
    /// Returns the plot as an SVG element. Returns a sentence if there are no values.
    pub fn svg(&self) -> String {
        let bounds = self
            .bounds(&self.x, |point| point.0)
            .zip(self.bounds(&self.y, |point| point.1));
        let Some((x, y)) = bounds else {
            return format!("<p class=\"empty\">{}: no values.</p>", escape(&self.title));
        };
        let mut svg = String::new();
        let drawn = self.draw(&mut svg, x, y);
        // Drawing into a string fails only for a label without a size.
        if let Err(error) = drawn {
            return format!("<p class=\"empty\">{}: {error}.</p>", escape(&self.title));
        }
        let label = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&self.title));
        svg.replace(INK_TEXT, "currentColor")
            .replace(PAPER_TEXT, "Canvas")
            .replacen("<svg ", &label, 1)
    }

    fn draw(
        &self,
        svg: &mut String,
        x: (f64, f64),
        y: (f64, f64),
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        // A long title gets smaller letters, whose width is about 0.56 of their height.
        let letters = self.title.chars().count().max(1) as f64;
        let title_px = (f64::from(SIZE.0) / 0.56 / letters).min(17.0);
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .caption(&self.title, (FONT, title_px).into_font().color(&INK))
            .build_cartesian_2d(x.0..x.1, y.0..y.1 + 0.04 * (y.1 - y.0))?;
        let label = |axis: &Axis| {
            let scale = axis.scale;
            move |place: &f64| scale.label(*place)
        };
        chart
            .configure_mesh()
            .axis_style(INK.mix(0.6))
            .bold_line_style(INK.mix(0.15))
            .light_line_style(INK.mix(0.0))
            .label_style((FONT, 13).into_font().color(&INK))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_label_formatter(&label(&self.x))
            .y_label_formatter(&label(&self.y))
            .draw()?;
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let points = self.places(number);
            if series.mark != Mark::Points {
                let line = LineSeries::new(points.clone(), colour.stroke_width(2));
                let drawn = chart.draw_series(line)?;
                Self::name(drawn, series, colour);
            }
            if series.mark != Mark::Line {
                let points = points.iter().map(|at| Circle::new(*at, 3, colour.filled()));
                let drawn = chart.draw_series(points)?;
                if series.mark == Mark::Points {
                    Self::name(drawn, series, colour);
                }
            }
        }
        chart
            .configure_series_labels()
            .border_style(INK.mix(0.3))
            .background_style(PAPER.mix(0.85))
            .label_font((FONT, 13).into_font().color(&INK))
            .draw()?;
        root.present()?;
        drop(chart);
        drop(root);
        Ok(())
    }

    fn name<'a>(
        drawn: &mut plotters::chart::SeriesAnno<'a, SVGBackend<'a>>,
        series: &Series,
        colour: RGBColor,
    ) {
        let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
        drawn.label(&series.label).legend(key);
    }

    /// Returns the visible points of a series as positions on the axes.
    fn places(&self, series: usize) -> Vec<(f64, f64)> {
        self.visible()
            .filter(|(number, _)| *number == series)
            .map(|(_, (x, y))| (self.x.scale.place(x), self.y.scale.place(y)))
            .collect()
    }
}
