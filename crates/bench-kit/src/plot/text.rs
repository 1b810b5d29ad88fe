//! Plots as text for terminals.

use super::Plot;

/// Characters that mark the points of the first, second and further series.
const MARKS: [char; 7] = ['*', 'o', '+', 'x', '#', '@', '~'];
const LABEL_WIDTH: usize = 9;

impl Plot {
    /// Draws the plot as text. The drawing area has `width` columns and `height` rows, without axes
    /// and legend.
    pub fn text(&self, width: usize, height: usize) -> String {
        let bounds = self
            .bounds(&self.x, |point| point.0)
            .zip(self.bounds(&self.y, |point| point.1));
        let Some((x, y)) = bounds else {
            return format!("{}: no values\n", self.title);
        };
        let mut grid = vec![vec![' '; width]; height];
        for (number, points) in self.lines() {
            for pair in points.windows(2) {
                for step in 0..=width {
                    let along = step as f64 / width as f64;
                    let at = |from: f64, to: f64| from + (to - from) * along;
                    let place = (at(pair[0].0, pair[1].0), at(pair[0].1, pair[1].1));
                    mark(&mut grid, place, x, y, MARKS[number % MARKS.len()]);
                }
            }
            if let [only] = points.as_slice() {
                mark(&mut grid, *only, x, y, MARKS[number % MARKS.len()]);
            }
        }
        let mut text = format!("{}\n", self.title);
        for (row, cells) in grid.iter().enumerate() {
            let place = y.1 - (y.1 - y.0) * row as f64 / (height - 1).max(1) as f64;
            let label = if row % 4 == 0 || row + 1 == height {
                self.y.scale.label(place)
            } else {
                String::new()
            };
            let line: String = cells.iter().collect();
            text += &format!("{label:>LABEL_WIDTH$} |{}\n", line.trim_end());
        }
        text += &format!("{:>LABEL_WIDTH$} +{}\n", "", "-".repeat(width));
        let (least, most) = (self.x.scale.label(x.0), self.x.scale.label(x.1));
        let space = width.saturating_sub(least.len() + most.len());
        text += &format!("{:>LABEL_WIDTH$}  {least}{:space$}{most}\n", "", "");
        text += &format!(
            "{:>LABEL_WIDTH$}  {} over {}",
            "", self.y.label, self.x.label
        );
        for (number, series) in self.series.iter().enumerate() {
            text += &format!("   {} {}", MARKS[number % MARKS.len()], series.label);
        }
        text + "\n"
    }

    /// Returns the visible points of each series as positions on the axes.
    fn lines(&self) -> impl Iterator<Item = (usize, Vec<(f64, f64)>)> {
        (0..self.series.len()).map(|series| {
            let points = self.visible().filter(|(number, _)| *number == series);
            let place = |(x, y)| (self.x.scale.place(x), self.y.scale.place(y));
            (series, points.map(|(_, point)| place(point)).collect())
        })
    }
}

fn mark(grid: &mut [Vec<char>], at: (f64, f64), x: (f64, f64), y: (f64, f64), mark: char) {
    let cell = |value: f64, (min, max): (f64, f64), count: usize| {
        let share = (value - min) / (max - min);
        ((share * (count - 1) as f64).round() as usize).min(count - 1)
    };
    let (width, height) = (grid[0].len(), grid.len());
    let row = height - 1 - cell(at.1, y, height);
    grid[row][cell(at.0, x, width)] = mark;
}
