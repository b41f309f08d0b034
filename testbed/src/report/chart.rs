//! Bar charts as SVG. A chart shows one figure with a title, bars with their values and their spread, and an axis that
//! starts at zero and says which direction is better: a chart that exaggerates is a wrong chart.

use anyhow::{Result, anyhow};
use plotters::{
    coord::types::RangedCoordf64,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// Size of a chart, in SVG units.
const SIZE: (u32, u32) = (860, 440);

/// Colours of parts of a bar, which most colour-blind readers can distinguish too (Okabe and Ito).
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

/// Room between groups of bars, in widths of a bar.
const GROUP_GAP: f64 = 0.6;

/// Half the width of a bar, as a share of its place.
const BAR_HALF: f64 = 0.35;

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The meaning of the colour of a part of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// The bar is what the others are compared with.
    Reference,
    /// The measurement shows no difference.
    Plain,
    /// The difference is an improvement.
    Better,
    /// The difference is a deterioration.
    Worse,
    /// The part is one of several kinds, by its number; a number has one colour in every chart.
    Kind(usize),
}

impl Paint {
    fn colour(self) -> RGBColor {
        match self {
            Self::Reference => RGBColor(90, 90, 90),
            Self::Plain => RGBColor(190, 190, 190),
            Self::Better => COLOURS[0],
            Self::Worse => COLOURS[3],
            Self::Kind(number) => COLOURS[number % COLOURS.len()],
        }
    }
}

/// A bar chart.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// Title of the chart.
    pub title: String,
    /// Text under the title, in small letters: what one has to know about the whole chart.
    pub subtitle: String,
    /// Label of the axis, with its unit, and which direction is better.
    pub axis: String,
    /// Meaning of each paint; only those that some bar has are shown.
    pub legend: Vec<(Paint, String)>,
    /// Groups of bars from left to right.
    pub groups: Vec<Group>,
}

/// A group of bars that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Label under the whole group; may be empty.
    pub label: String,
    /// Bars from left to right.
    pub bars: Vec<Bar>,
}

/// A bar of the chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Label under the bar.
    pub label: String,
    /// Parts that the bar is stacked from, from the bottom up.
    pub parts: Vec<(Paint, f64)>,
    /// Quartiles of the measurement, for the error bar.
    pub spread: Option<(f64, f64)>,
}

impl Bar {
    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, value)| value).sum()
    }

    /// Returns the highest point of the bar or its error bar.
    fn top(&self) -> f64 {
        self.spread.map_or(self.total(), |(_, high)| high.max(self.total()))
    }

    fn has(&self, paint: Paint) -> bool {
        self.parts.iter().any(|(own, value)| *own == paint && *value > 0.0)
    }
}

impl BarChart {
    /// Renders the chart as SVG text.
    ///
    /// # Errors
    /// Fails when it has no bars, or a value that is not a number.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        let highest = self.bars().map(Bar::top).fold(0.0, f64::max);
        if self.bars().next().is_none() || !highest.is_finite() {
            return Err(anyhow!("the chart \"{}\" has nothing to show", self.title));
        }
        // The values need room above the bars.
        let top = if highest > 0.0 { highest * 1.12 } else { 1.0 };
        self.draw(&mut svg, top)
            .map_err(|error| anyhow!("the chart \"{}\" cannot be drawn: {error}", self.title))?;
        Ok(svg)
    }

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|group| &group.bars)
    }

    /// Returns the legend without entries that no bar has.
    fn legend(&self) -> impl Iterator<Item = &(Paint, String)> {
        self.legend
            .iter()
            .filter(|(paint, _)| self.bars().any(|bar| bar.has(*paint)))
    }

    /// Returns each bar with the middle of its place.
    fn placed(&self) -> Vec<(f64, &Bar)> {
        let mut placed = Vec::new();
        let mut left = 0.0;
        for group in &self.groups {
            for bar in &group.bars {
                placed.push((left + 0.5, bar));
                left += 1.0;
            }
            left += GROUP_GAP;
        }
        placed
    }

    fn draw(&self, svg: &mut String, top: f64) -> Drawn {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let small = |size: i32| ("sans-serif", size).into_font().color(&BLACK.mix(0.7));
        area.draw(&Text::new(self.title.clone(), (16, 10), ("sans-serif", 20)))?;
        area.draw(&Text::new(self.subtitle.clone(), (16, 36), small(13)))?;
        self.draw_legend(&area)?;
        let bars = self.bars().count() as f64;
        let width = bars + GROUP_GAP * (self.groups.len().saturating_sub(1)) as f64;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .margin_top(88)
            .x_label_area_size(52)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..width, 0.0..top)?;
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
        self.draw_bars(&mut chart)?;
        self.draw_labels(&area, &chart)?;
        area.present()?;
        Ok(())
    }

    /// Draws the legend in one line between title and bars, so that no bar is behind it.
    fn draw_legend(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn {
        let mut x = 16;
        for (paint, name) in self.legend() {
            area.draw(&Rectangle::new([(x, 62), (x + 12, 74)], paint.colour().filled()))?;
            area.draw(&Text::new(name.clone(), (x + 18, 62), ("sans-serif", 13)))?;
            // A letter of this size is about seven units wide.
            x += 18 + 7 * i32::try_from(name.chars().count()).unwrap_or(0) + 20;
        }
        Ok(())
    }

    fn draw_bars(&self, chart: &mut Plot<'_, '_>) -> Drawn {
        for (middle, bar) in self.placed() {
            let mut below = 0.0;
            for (paint, value) in &bar.parts {
                let corners = [(middle - BAR_HALF, below), (middle + BAR_HALF, below + value)];
                chart.draw_series([Rectangle::new(corners, paint.colour().filled())])?;
                below += value;
            }
            if let Some((low, high)) = bar.spread {
                let cap = |at| PathElement::new([(middle - 0.08, at), (middle + 0.08, at)], BLACK.stroke_width(1));
                let line = PathElement::new([(middle, low), (middle, high)], BLACK.stroke_width(1));
                chart.draw_series([line, cap(low), cap(high)])?;
            }
        }
        Ok(())
    }

    fn draw_labels(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, chart: &Plot<'_, '_>) -> Drawn {
        let centred = |size: i32, vertical| {
            ("sans-serif", size)
                .into_text_style(area)
                .pos(Pos::new(HPos::Center, vertical))
        };
        let plot = chart.plotting_area();
        let (_, floor) = plot.map_coordinate(&(0.0, 0.0));
        let mut left = 0.0;
        for (middle, bar) in self.placed() {
            let (x, y) = plot.map_coordinate(&(middle, bar.top()));
            area.draw(&Text::new(short(bar.total()), (x, y - 3), centred(13, VPos::Bottom)))?;
            area.draw(&Text::new(bar.label.clone(), (x, floor + 8), centred(14, VPos::Top)))?;
        }
        for group in &self.groups {
            let width = group.bars.len() as f64;
            let ends = [left + 0.1, left + width - 0.1].map(|x| plot.map_coordinate(&(x, 0.0)).0);
            if !group.label.is_empty() {
                area.draw(&PathElement::new(
                    [(ends[0], floor + 27), (ends[1], floor + 27)],
                    BLACK.mix(0.4).stroke_width(1),
                ))?;
                let x = i32::midpoint(ends[0], ends[1]);
                area.draw(&Text::new(group.label.clone(), (x, floor + 31), centred(14, VPos::Top)))?;
            }
            left += width + GROUP_GAP;
        }
        Ok(())
    }
}

/// Renders a number with about three significant digits, as a person would round it.
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

    fn bar(label: &str, paint: Paint, value: f64) -> Bar {
        Bar {
            label: label.to_owned(),
            parts: vec![(paint, value)],
            spread: Some((value * 0.9, value)),
        }
    }

    fn chart() -> BarChart {
        BarChart {
            title: "Small messages".to_owned(),
            subtitle: "compare them with each other".to_owned(),
            axis: "µs (less is better)".to_owned(),
            legend: vec![
                (Paint::Reference, "no coalescing".to_owned()),
                (Paint::Worse, "worse than that".to_owned()),
                (Paint::Better, "better than that".to_owned()),
            ],
            groups: vec![
                Group {
                    label: String::new(),
                    bars: vec![bar("disabled", Paint::Reference, 612.0)],
                },
                Group {
                    label: "delay 1 ms".to_owned(),
                    bars: vec![bar("timeout", Paint::Worse, 2650.0)],
                },
            ],
        }
    }

    #[test]
    fn a_chart_names_its_bars_their_values_and_only_the_paints_that_it_has() {
        let svg = chart().svg().expect("drawable");
        for text in [
            "Small messages",
            "compare them with each other",
            "µs (less is better)",
            "disabled",
            "timeout",
            "delay 1 ms",
            "612",
            "2650",
            "no coalescing",
            "worse than that",
        ] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} is missing");
        }
        assert!(!svg.contains("better than that"), "no bar is better");
        let empty = BarChart {
            groups: Vec::new(),
            ..chart()
        };
        assert!(empty.svg().is_err());
    }

    #[test]
    fn groups_are_apart_and_error_bars_reach_from_quartile_to_quartile() {
        let chart = chart();
        let places: Vec<f64> = chart.placed().iter().map(|(middle, _)| *middle).collect();
        assert_eq!(places, [0.5, 1.5 + GROUP_GAP]);
        // Each bar has a line and two caps, and the label of a group has a line over it.
        let lines = chart.svg().expect("drawable").matches("<polyline").count();
        let without = BarChart {
            groups: chart
                .groups
                .iter()
                .cloned()
                .map(|mut group| {
                    group.bars.iter_mut().for_each(|bar| bar.spread = None);
                    group
                })
                .collect(),
            ..chart
        };
        assert_eq!(lines - without.svg().expect("drawable").matches("<polyline").count(), 6);
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
