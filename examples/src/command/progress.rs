//! Progress bars and the formatting of sizes.

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

const BAR: &str =
    "{msg:24!} {wide_bar} {binary_bytes:>10} of {binary_total_bytes:<10} {binary_bytes_per_sec:>12} {eta:>4}";

/// Creates a progress bar that counts bytes on standard error. It is hidden if standard error is not a terminal.
#[must_use]
pub fn progress_bar(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    // The template is a constant. Should it be invalid, the bar falls back to the default style.
    bar.set_style(ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Formats a size, such as `1.00 MiB`.
#[must_use]
pub fn human_bytes(count: u64) -> String {
    HumanBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_bar_template_is_valid() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(human_bytes(1 << 20), "1.00 MiB");
    }
}
