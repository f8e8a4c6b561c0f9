//! A chart as data: what is drawn over which axes. How it is drawn is the matter of others.

use super::ticks::quantity;
use serde::Serialize;

/// Series over a common horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axes: one, or two with different units.
    pub y: Vec<Axis>,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Stretches of the horizontal axis with a name, in a strip above the plot: phases, limits.
    pub bands: Vec<Band>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is on it.
    pub label: String,
    /// Its unit, in the base unit of the values (`s`, `bit/s`, `B`, ` %`): ticks carry the prefix (k, M, m) that fits.
    pub unit: &'static str,
    /// How values are spread over it.
    pub scale: Scale,
}

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Evenly, from zero.
    #[serde(rename = "zero")]
    FromZero,
    /// Evenly, from the smallest value to the largest.
    Fitted,
    /// By decades.
    #[serde(rename = "log")]
    Logarithmic,
}

/// One line or cloud of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Which of [`Chart::y`] it belongs to.
    pub axis: usize,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Horizontal and vertical, ascending in the horizontal; `None` interrupts a line.
    pub points: Vec<(f64, Option<f64>)>,
}

/// How a series is drawn. Series differ in dash or mark as well as in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stroke {
    /// From point to point.
    Line,
    /// Each value holds until the next.
    Steps,
    /// The same, thinner and dashed: a ceiling, a reference.
    Reference,
    /// A mark at each point.
    Points,
    /// A vertical line from the axis to each point.
    Bars,
}

impl Chart {
    pub(crate) fn new(x: Axis, y: Vec<Axis>, series: Vec<Series>, bands: Vec<Band>) -> Chart {
        Chart {
            x,
            y,
            series,
            bands,
        }
    }
}

impl Axis {
    pub(crate) fn new(label: impl Into<String>, unit: &'static str, scale: Scale) -> Axis {
        let label = label.into();
        Axis { label, unit, scale }
    }
}

impl Series {
    /// A series on the axis of that number.
    pub(crate) fn new(
        name: impl Into<String>,
        axis: usize,
        stroke: Stroke,
        points: Vec<(f64, Option<f64>)>,
    ) -> Series {
        Series {
            name: name.into(),
            axis,
            stroke,
            points,
        }
    }
}

/// A stretch of the horizontal axis with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Begin.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Its name; the same name has the same colour everywhere in a page.
    pub name: String,
}

/// The values of a series, for words about it.
pub struct Values(Vec<f64>);

impl Values {
    /// Those that are there; `None` if none is.
    pub fn of(series: &Series) -> Option<Values> {
        let mut values: Vec<f64> = series.points.iter().filter_map(|(_, y)| *y).collect();
        values.retain(|v| v.is_finite());
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Values(values))
    }

    /// The scale on which these can be read beside `others`: by decades where those are far above.
    pub fn beside(&self, others: f64) -> Scale {
        match self.largest() > 0.0 && others > 16.0 * self.largest() {
            true => Scale::Logarithmic,
            false => Scale::FromZero,
        }
    }

    /// The smallest, with its unit.
    pub fn least(&self, unit: &str) -> String {
        quantity(self.0[0], unit)
    }

    /// The one in the middle.
    pub fn median(&self, unit: &str) -> String {
        quantity(self.0[self.0.len() / 2], unit)
    }

    /// The largest.
    pub fn largest(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    /// The same, with its unit.
    pub fn most(&self, unit: &str) -> String {
        quantity(self.largest(), unit)
    }
}
