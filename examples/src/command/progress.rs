//! Progress, for people.

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

const BAR: &str =
    "{msg:24!} {wide_bar} {binary_bytes:>10} of {binary_total_bytes:<10} {binary_bytes_per_sec:>12} {eta:>4}";

/// A progress bar of octets on standard error; on none that is a terminal, nothing is drawn.
#[must_use]
pub fn progress_bar(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    // The template is a constant; a mistake in it would cost the look, not the transfer.
    bar.set_style(ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// `1.00 MiB`
#[must_use]
pub fn octets(count: u64) -> String {
    HumanBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_bar_is_drawn_as_told() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }

    #[test]
    fn octets_are_told_for_people() {
        assert_eq!(octets(1 << 20), "1.00 MiB");
    }
}
