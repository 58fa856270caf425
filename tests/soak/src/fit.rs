//! A straight line through samples over time, by least squares, with the standard error of its slope.

/// Length of an interval, in seconds. Only the smallest sample of each interval counts, because a disturbance raises
/// single samples, and neighbouring samples depend on each other. A leak raises the smallest sample, too.
const INTERVAL: f64 = 10.0;
/// Number of standard errors by which a slope must exceed its bound.
const SIGNIFICANT: f64 = 3.0;
const HOUR: f64 = 3600.0;

/// A sample: the time in seconds, and the value at this time.
pub(crate) type Sample = (f64, f64);

/// A line that was fitted to samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    /// Growth of the value per hour.
    pub(crate) slope: f64,
    /// Standard error of the slope, per hour.
    pub(crate) error: f64,
    /// The values of the line at the first and at the last point.
    pub(crate) ends: (f64, f64),
    /// Number of points, one for each interval.
    pub(crate) points: usize,
}

impl Fit {
    /// Returns `true` if the slope is significantly larger than `bound` per hour.
    pub(crate) fn exceeds(&self, bound: f64) -> bool {
        self.slope - SIGNIFICANT * self.error > bound
    }
}

/// Returns the smallest sample of each interval.
fn minima(samples: &[Sample]) -> Vec<Sample> {
    let mut points: Vec<Sample> = Vec::new();
    let mut interval = f64::NEG_INFINITY;
    for &(time, value) in samples {
        let of_sample = (time / INTERVAL).floor();
        match points.last_mut() {
            Some(last) if of_sample == interval => {
                if value < last.1 {
                    *last = (time, value);
                }
            }
            _ => points.push((time, value)),
        }
        interval = of_sample;
    }
    points
}

/// Fits a line to the smallest sample of each interval. `samples` are in the order of their times. Returns `None` if
/// there are fewer than three intervals.
pub(crate) fn fit(samples: &[Sample]) -> Option<Fit> {
    let points = minima(samples);
    let count = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let mean = |of: fn(&Sample) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_time, mean_value) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(time, _)| (time - mean_time).powi(2)).sum();
    let slope = points.iter().map(|(time, value)| (time - mean_time) * (value - mean_value)).sum::<f64>() / spread;
    let at = |time: f64| mean_value + slope * (time - mean_time);
    let squares: f64 = points.iter().map(|(time, value)| (value - at(*time)).powi(2)).sum();
    let error = (squares / (count - 2.0) / spread).sqrt();
    let ends = (at(points[0].0), at(points[points.len() - 1].0));
    Some(Fit { slope: slope * HOUR, error: error * HOUR, ends, points: points.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_line_has_its_slope_and_error() {
        // Minima 1, 3, 2, 5 at 0, 10, 20, 30 s: slope 0.11 and standard error sqrt(2.7 / 2 / 500) = 0.05196 per second.
        let samples = [(0.0, 1.0), (4.0, 9.0), (10.0, 3.0), (20.0, 2.0), (21.0, 2.0), (30.0, 5.0)];
        let fit = fit(&samples).unwrap();
        assert!((fit.slope / HOUR - 0.11).abs() < 1e-9, "{fit:?}");
        assert!((fit.error / HOUR - 0.051_961_5).abs() < 1e-6, "{fit:?}");
        assert!((fit.ends.0 - 1.1).abs() < 1e-9 && (fit.ends.1 - 4.4).abs() < 1e-9, "{fit:?}");
        assert_eq!(fit.points, 4);
    }

    #[test]
    fn growth_beyond_the_bound_is_noticed_and_noise_is_not() {
        let series = |growth: f64| -> Vec<Sample> {
            let value = |second: f64| 100.0 + growth * second / HOUR + f64::from((second as u32 * 7) % 5);
            (0..600).map(|second| (f64::from(second), value(f64::from(second)))).collect()
        };
        assert!(fit(&series(60.0)).unwrap().exceeds(30.0));
        assert!(!fit(&series(20.0)).unwrap().exceeds(30.0));
        assert!(!fit(&series(0.0)).unwrap().exceeds(0.5));
        assert_eq!(fit(&series(0.0)[..20]), None, "two intervals");
    }
}
