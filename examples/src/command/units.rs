//! Parsing of sizes and durations on the command line.

use std::time::Duration;

/// Parses a size in bytes, such as `4096`, `64KiB`, `1MiB`, `64K` or `64k`.
///
/// # Errors
/// Returns a message for the user if the text is not a size or exceeds 64 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err("unknown unit: expected KiB, MiB, GiB or TiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number and a unit, e.g. 64KiB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "size too large".into())
}

/// Parses a duration in seconds, such as `0.5` or `30`, of at most one day.
///
/// # Errors
/// Returns a message for the user if the text is not a number in this range.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0 to 86400".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "-1", "NaN", "inf", "86401"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("3 m"), Ok(3 << 20));
        assert_eq!(parse_size("16T"), Ok(16 << 40));
        for bad in ["", "MiB", "-1", "1.5M", "12 parsecs", "99999999999T", "18446744073709551616"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
