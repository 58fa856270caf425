//! Messages and opaque data in hexadecimal.

use std::fmt::Write as _;

/// An error in hexadecimal input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HexError {
    /// A character that is not a hexadecimal digit.
    #[error("line {line}: `{found}` is not a hexadecimal digit; write pairs of digits, as `xxd -p` does")]
    NotHex {
        /// The line, from 1.
        line: usize,
        /// The character that is not a hexadecimal digit.
        found: char,
    },
    /// A message with an odd number of digits.
    #[error("line {line}: the message that ends here has an odd number of hexadecimal digits")]
    Odd {
        /// The line at which the message ends, from 1.
        line: usize,
    },
}

/// Parses messages in hexadecimal. A blank line ends a message. White space, `:`, `,` and `0x` at the start of a word
/// are ignored, as is the rest of a line after `#`.
///
/// # Errors
/// Returns an error if another character is found, or if a message has an odd number of digits.
///
/// ```
/// use rpcrdma_xdrgen::decode::parse_hex;
///
/// assert_eq!(parse_hex("00 01 # first\n02\n\n0x03")?, [vec![0, 1, 2], vec![3]]);
/// # Ok::<(), rpcrdma_xdrgen::decode::HexError>(())
/// ```
pub fn parse_hex(text: &str) -> Result<Vec<Vec<u8>>, HexError> {
    let (mut messages, mut message, mut half) = (Vec::new(), Vec::new(), None);
    let mut count = 0;
    for (index, whole) in text.lines().enumerate() {
        count = index + 1;
        let line = whole.split('#').next().unwrap_or_default();
        // A line with only a comment does not end a message.
        if whole.trim().is_empty() && !message.is_empty() {
            if half.is_some() {
                return Err(HexError::Odd { line: index });
            }
            messages.push(std::mem::take(&mut message));
        }
        for word in line.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',')) {
            let word = word.strip_prefix("0x").unwrap_or(word);
            for found in word.chars() {
                let digit = found.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let digit = digit.ok_or(HexError::NotHex { line: index + 1, found })?;
                match half.take() {
                    Some(high) => message.push(high << 4 | digit),
                    None => half = Some(digit),
                }
            }
        }
    }
    if half.is_some() {
        return Err(HexError::Odd { line: count });
    }
    if !message.is_empty() {
        messages.push(message);
    }
    Ok(messages)
}

/// Formats at most the first `max` bytes in hexadecimal, with `between` between adjacent bytes.
pub(super) fn hex(bytes: &[u8], max: usize, between: &str) -> String {
    let mut out = String::new();
    for (index, byte) in bytes.iter().take(max).enumerate() {
        if index > 0 {
            out.push_str(between);
        }
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// Parses pairs of hexadecimal digits without anything between them. Returns `None` for other text.
pub(super) fn parse_digits(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line() {
        let error = parse_hex("00\n0g").unwrap_err();
        assert_eq!(error, HexError::NotHex { line: 2, found: 'g' });
        assert_eq!(parse_hex("00 1"), Err(HexError::Odd { line: 1 }));
        assert_eq!(parse_hex("00\n1\n\n22"), Err(HexError::Odd { line: 2 }));
        assert_eq!(parse_hex("\n# nothing\n"), Ok(vec![]));
    }
}
