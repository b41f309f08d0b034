//! Bar charts as SVG. One chart is one figure with a title, bars with their values written on them, and an axis that
//! starts at zero: a chart that exaggerates is a wrong chart.

use anyhow::{Result, anyhow};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// Size of a chart, in SVG units.
const SIZE: (u32, u32) = (860, 420);

/// Colours of parts of a bar, in order; told apart also by most colour-blind readers (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
    RGBColor(120, 120, 120),
];

/// A bar chart.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// What is shown.
    pub title: String,
    /// What the axis counts, with its unit.
    pub axis: String,
    /// Names of the parts that bars are stacked from; one for plain bars.
    pub parts: Vec<String>,
    /// Bars from left to right.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Written under it, one or two lines.
    pub label: String,
    /// One value per part.
    pub values: Vec<f64>,
}

impl BarChart {
    /// The chart as SVG text.
    ///
    /// # Errors
    /// When it has no bars, or a value that is not a number.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        let highest = self
            .bars
            .iter()
            .map(|bar| bar.values.iter().sum::<f64>())
            .fold(0.0, f64::max);
        if self.bars.is_empty() || !highest.is_finite() {
            return Err(anyhow!("the chart \"{}\" has nothing to show", self.title));
        }
        // Room above the bars for their values, and for the legend.
        let room = if self.parts.len() > 1 { 1.5 } else { 1.15 };
        let top = if highest > 0.0 { highest * room } else { 1.0 };
        self.draw(&mut svg, top)
            .map_err(|error| anyhow!("the chart \"{}\" cannot be drawn: {error}", self.title))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String, top: f64) -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let count = self.bars.len();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..count as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc(&self.axis)
            .y_label_formatter(&|value| short(*value))
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .draw()?;
        for (part, name) in self.parts.iter().enumerate() {
            let colour = COLOURS[part % COLOURS.len()];
            let rectangles = self.bars.iter().enumerate().map(|(index, bar)| {
                let below: f64 = bar.values[..part].iter().sum();
                let left = index as f64;
                Rectangle::new(
                    [(left + 0.15, below), (left + 0.85, below + bar.values[part])],
                    colour.filled(),
                )
            });
            let series = chart.draw_series(rectangles)?;
            if self.parts.len() > 1 {
                series
                    .label(name.as_str())
                    .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
            }
        }
        let centred = |size: i32, vertical| {
            ("sans-serif", size)
                .into_text_style(&area)
                .pos(Pos::new(HPos::Center, vertical))
        };
        let plot = chart.plotting_area();
        for (index, bar) in self.bars.iter().enumerate() {
            let total: f64 = bar.values.iter().sum();
            let (x, y) = plot.map_coordinate(&(index as f64 + 0.5, total));
            area.draw(&Text::new(short(total), (x, y - 3), centred(13, VPos::Bottom)))?;
            let (_, floor) = plot.map_coordinate(&(0.0, 0.0));
            for (line, text) in (0..).zip(bar.label.lines()) {
                area.draw(&Text::new(
                    text.to_owned(),
                    (x, floor + 8 + 16 * line),
                    centred(14, VPos::Top),
                ))?;
            }
        }
        if self.parts.len() > 1 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .background_style(WHITE.mix(0.85))
                .border_style(BLACK.mix(0.2))
                .label_font(("sans-serif", 13))
                .draw()?;
        }
        area.present()?;
        Ok(())
    }
}

/// A number with about three significant digits, as a person would round it.
#[must_use]
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e7 => format!("{:.0} M", value / 1e6),
        size if size >= 1e6 => format!("{:.1} M", value / 1e6),
        size if size >= 1e5 => format!("{:.0} k", value / 1e3),
        size if size >= 1e4 => format!("{:.1} k", value / 1e3),
        size if size >= 100.0 || value.fract().abs() < 1e-9 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_its_bars_and_their_values() {
        let chart = BarChart {
            title: "Small messages".to_owned(),
            axis: "µs".to_owned(),
            parts: vec!["time".to_owned()],
            bars: vec![
                Bar {
                    label: "disabled".to_owned(),
                    values: vec![612.0],
                },
                Bar {
                    label: "timeout\n1 ms".to_owned(),
                    values: vec![2650.0],
                },
            ],
        };
        let svg = chart.svg().expect("drawable");
        for text in ["Small messages", "disabled", "timeout", "1 ms", "612", "2650"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} is missing");
        }
        let empty = BarChart {
            bars: Vec::new(),
            ..chart
        };
        assert!(empty.svg().is_err());
    }

    #[test]
    fn numbers_are_rounded_as_a_person_would() {
        let cases = [
            (0.0, "0"),
            (0.987, "0.99"),
            (23.0, "23"),
            (12.34, "12.3"),
            (612.4, "612"),
            (14_507.0, "14.5 k"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
