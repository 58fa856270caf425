//! Formatting of numbers, times and digests for the terminal.

use std::time::Duration;

pub(crate) use rpcrdma_examples::command::{human_bytes, progress_bar};

/// Formats the rate of `count` bytes in `time`, such as `512.00 MiB/s`.
pub(crate) fn rate(count: u64, time: Duration) -> String {
    format!("{}/s", human_bytes(per_second(count, time) as u64))
}

/// Returns `count` divided by `time` in seconds. A `time` below one nanosecond counts as one nanosecond.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// Formats a duration, such as `850.0 µs`, `12.3 ms` or `4.56 s`.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Formats a digest in hexadecimal.
pub(crate) fn digest(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

/// Formats a time, given in nanoseconds since 1970-01-01 UTC, such as `2026-02-28 13:05:09 UTC`.
pub(crate) fn time(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Returns the year, month and day of the date that is `days` days after 1970-01-01. Internally, years begin in March,
/// so that a leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_0000_03_01: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days + DAYS_FROM_0000_03_01;
    let (era, day_of_era) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let days = |y, m, d| (0..60_000).find(|&days| date(days) == (y, m, d));
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(2000, 2, 29), Some(11_016));
        assert_eq!(days(2000, 3, 1), Some(11_017));
        assert_eq!(days(2100, 2, 29), None);
        assert_eq!(days(2023, 2, 29), None);
        assert_eq!(time(1_000_000_000_123_456_789), "2001-09-09 01:46:40 UTC");
        assert_eq!(time(u64::MAX), "2554-07-21 23:34:33 UTC");
    }

    #[test]
    fn rates_and_durations() {
        assert_eq!(rate(1 << 20, Duration::from_millis(500)), "2.00 MiB/s");
        assert_eq!(duration(Duration::from_micros(850)), "850.0 µs");
        assert_eq!(duration(Duration::from_millis(12)), "12.0 ms");
        assert_eq!(duration(Duration::from_millis(4560)), "4.56 s");
    }
}
