//! Conditions of `#if`, and the numbers of `#define`: C's integer expressions (ISO C §6.10.1) of names that are defined.

use super::Defines;

/// Deepest nesting of operators and names looked at.
const MAX_DEPTH: usize = 32;

/// Most steps: names may stand for one another many times over.
const MAX_STEPS: usize = 10_000;

/// Whether the condition holds; `None` where it is none. A name that is not defined counts as 0.
pub(super) fn holds(text: &str, defines: &Defines) -> Option<bool> {
    let mut steps = MAX_STEPS;
    evaluate(text, defines, true, 0, &mut steps).map(|value| value != 0)
}

/// The number that `text` stands for, all its names being defined.
pub(super) fn number(text: &str, defines: &Defines) -> Option<i128> {
    let mut steps = MAX_STEPS;
    evaluate(text, defines, false, 0, &mut steps)
}

fn evaluate(text: &str, defines: &Defines, unknown_is_zero: bool, depth: usize, steps: &mut usize) -> Option<i128> {
    let mut reader = Reader { rest: text, defines, unknown_is_zero, depth, steps };
    let value = reader.binary(0)?;
    reader.rest.trim().is_empty().then_some(value)
}

/// Operators of two operands with how tightly they bind. A longer one goes before its prefix.
const OPERATORS: [(&str, u8); 18] = [
    ("||", 1),
    ("&&", 2),
    ("==", 6),
    ("!=", 6),
    ("<<", 8),
    (">>", 8),
    ("<=", 7),
    (">=", 7),
    ("<", 7),
    (">", 7),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

struct Reader<'a, 'b> {
    rest: &'a str,
    defines: &'b Defines,
    unknown_is_zero: bool,
    depth: usize,
    steps: &'b mut usize,
}

impl Reader<'_, '_> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> &str {
        let rest = self.rest.trim_start();
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        self.rest = after;
        word
    }

    /// Operands with operators that bind tighter than `least`.
    fn binary(&mut self, least: u8) -> Option<i128> {
        let mut left = self.unary()?;
        loop {
            let rest = self.rest.trim_start();
            let found = OPERATORS.iter().find(|(token, _)| rest.starts_with(token));
            let Some(&(token, binds)) = found.filter(|(_, binds)| *binds > least) else { return Some(left) };
            self.take(token);
            let right = self.binary(binds)?;
            left = apply(token, left, right)?;
        }
    }

    fn unary(&mut self) -> Option<i128> {
        *self.steps = self.steps.checked_sub(1)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = if self.take("(") {
            let value = self.binary(0)?;
            self.take(")").then_some(value)
        } else if self.take("!") {
            self.unary().map(|value| i128::from(value == 0))
        } else if self.take("-") {
            self.unary()?.checked_neg()
        } else if self.take("+") {
            self.unary()
        } else if self.take("~") {
            self.unary().map(|value| !value)
        } else {
            self.operand()
        };
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Option<i128> {
        let defines = self.defines;
        let word = self.word().to_owned();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return literal(&word);
        }
        if word == "defined" && self.unknown_is_zero {
            let bracket = self.take("(");
            let known = defines.contains_key(self.word());
            return (!bracket || self.take(")")).then_some(i128::from(known));
        }
        match defines.get(&word) {
            _ if word.is_empty() => None,
            Some(text) => evaluate(text, defines, self.unknown_is_zero, self.depth, self.steps),
            None => self.unknown_is_zero.then_some(0),
        }
    }
}

/// Decimal, hexadecimal or octal, with C's suffixes.
fn literal(word: &str) -> Option<i128> {
    let word = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let (radix, digits) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if word.len() > 1 && word.starts_with('0') => (8, word),
        None => (10, word),
    };
    i128::from_str_radix(digits, radix).ok()
}

fn apply(token: &str, a: i128, b: i128) -> Option<i128> {
    let shift = || u32::try_from(b).ok().filter(|&bits| bits < 64);
    Some(match token {
        "||" => i128::from(a != 0 || b != 0),
        "&&" => i128::from(a != 0 && b != 0),
        "==" => i128::from(a == b),
        "!=" => i128::from(a != b),
        "<=" => i128::from(a <= b),
        ">=" => i128::from(a >= b),
        "<" => i128::from(a < b),
        ">" => i128::from(a > b),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "<<" => a.checked_mul(1_i128 << shift()?)?,
        ">>" => a >> shift()?,
        "+" => a.checked_add(b)?,
        "-" => a.checked_sub(b)?,
        "*" => a.checked_mul(b)?,
        "/" => a.checked_div(b)?,
        _ => a.checked_rem(b)?,
    })
}
