//! The maps of a run as metrics, for [`serve`](crate::serve).
//!
//! - `names`: names of metrics and labels, and units, from the script
//! - `own`: the metrics of rbt itself
//! - `series`: from a [`State`](crate::state::State) to families of series

mod names;
pub mod own;
mod series;

pub use names::{Metric, MetricNames, ScriptMap, Unit};
pub use series::{Family, Kind, Metrics, Point, Series, sample_names, scaled};
