//! The figures of the benchmark, and their output as a table or JSON: medians, ranges and ratios.

/// The samples of one figure, one per round and program.
#[derive(Default)]
pub(crate) struct Figure {
    /// Name of the figure.
    pub(crate) name: &'static str,
    /// Unit of the values.
    pub(crate) unit: &'static str,
    /// Target for the ratio, as text.
    pub(crate) aim: &'static str,
    /// Samples of plain TCP.
    pub(crate) bare: Vec<f64>,
    /// Samples of rpcrdma.
    pub(crate) ours: Vec<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

impl Figure {
    /// Returns the median ratio of rpcrdma to plain TCP. Each ratio is of one round, in which both had the same
    /// conditions.
    pub(crate) fn ratio(&self) -> f64 {
        median(&self.ours.iter().zip(&self.bare).map(|(ours, bare)| ours / bare).collect::<Vec<_>>())
    }
}

/// Prints the figures as a table.
pub(crate) fn table(figures: &[Figure]) {
    println!("{:<38} {:>26} {:>26} {:>7}  aim", "", "bare TCP", "rpcrdma", "ratio");
    for figure in figures {
        let cell = |values: &[f64]| {
            let (low, high) = range(values);
            format!("{:.2} [{low:.2}..{high:.2}]", median(values))
        };
        println!(
            "{:<38} {:>26} {:>26} {:>7.3}  {}",
            format!("{} ({})", figure.name, figure.unit),
            cell(&figure.bare),
            cell(&figure.ours),
            figure.ratio(),
            figure.aim
        );
    }
}

/// Formats the figures as a JSON array.
pub(crate) fn json(figures: &[Figure]) -> String {
    let rows: Vec<String> = figures
        .iter()
        .map(|figure| {
            let arm = |values: &[f64]| {
                let (low, high) = range(values);
                format!("{{\"median\":{:.4},\"low\":{low:.4},\"high\":{high:.4}}}", median(values))
            };
            format!(
                "{{\"name\":{:?},\"unit\":{:?},\"bare\":{},\"ours\":{},\"ratio\":{:.4},\"aim\":{:?}}}",
                figure.name,
                figure.unit,
                arm(&figure.bare),
                arm(&figure.ours),
                figure.ratio(),
                figure.aim
            )
        })
        .collect();
    format!("[{}]", rows.join(",\n "))
}
