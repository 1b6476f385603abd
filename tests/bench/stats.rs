//! Collects samples and prints statistics.

/// Measurements of one quantity, in any unit.
#[derive(Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn median(&self) -> f64 {
        let mut all = self.0.clone();
        all.sort_by(f64::total_cmp);
        let n = all.len();
        match n {
            0 => f64::NAN,
            _ => (all[(n - 1) / 2] + all[n / 2]) / 2.0,
        }
    }

    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Prints the statistics on a separate line. `unit` follows each number.
    pub fn show(&self, what: &str, unit: &str) {
        let (median, min, max) = (self.median(), self.min(), self.max());
        println!("  {what:44} {median:10.2} {unit:4} (min {min:.2}, max {max:.2}, n {})", self.0.len());
    }

    /// Prints the statistics with the ratio to another measurement of the same run.
    pub fn show_beside(&self, what: &str, unit: &str, other: &Samples, name: &str) {
        self.show(what, unit);
        println!("  {:44} {:10.2} x    {name}", "", self.median() / other.median());
    }
}

/// The number of runs: the default, multiplied by `RBT_BENCH_ROUNDS`.
pub fn rounds(default: usize) -> usize {
    let factor: f64 = std::env::var("RBT_BENCH_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(1.0);
    ((default as f64 * factor) as usize).max(1)
}

/// Reports whether a target is met.
pub fn target(what: &str, value: f64, most: f64, unit: &str) {
    let verdict = if value <= most { "met" } else { "MISSED" };
    println!("  target {verdict}: {what} {value:.2} {unit}, at most {most} {unit}");
}
