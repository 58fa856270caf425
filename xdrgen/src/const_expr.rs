//! Conditions of `#if`, and the numbers of `#define`: C's integer expressions (ISO C §6.10.1) of names that are defined.

use std::collections::HashMap;

/// Names that are defined, with their values as text: by `#define` or by the user.
pub(crate) type Defines = HashMap<String, String>;

/// Deepest nesting of operators and names looked at: what the scanner lets through, and some names.
const MAX_DEPTH: usize = 64;

/// Most steps: names may stand for one another many times over.
const MAX_STEPS: usize = 10_000;

/// Whether the condition holds; `None` where it is none. A name that is not defined counts as 0.
pub(crate) fn holds(text: &str, defines: &Defines) -> Option<bool> {
    let mut steps = MAX_STEPS;
    evaluate(text, Names::Condition(defines), 0, &mut steps).map(|value| value != 0)
}

/// The number that `text` stands for, all its names being defined.
pub(crate) fn number(text: &str, defines: &Defines) -> Option<i128> {
    let mut steps = MAX_STEPS;
    evaluate(text, Names::Macros(defines), 0, &mut steps)
}

/// The value of a computation of constants.
pub(crate) fn computed(text: &str, constants: &dyn Fn(&str) -> Option<i128>) -> Option<i128> {
    let mut steps = MAX_STEPS;
    evaluate(text, Names::Constants(constants), 0, &mut steps)
}

/// What names stand for.
#[derive(Clone, Copy)]
enum Names<'a> {
    /// In `#if`: what is not defined is 0, and `defined` asks for it.
    Condition(&'a Defines),
    Macros(&'a Defines),
    Constants(&'a dyn Fn(&str) -> Option<i128>),
}

fn evaluate(text: &str, names: Names<'_>, depth: usize, steps: &mut usize) -> Option<i128> {
    let mut reader = Reader { rest: text, names, depth, steps, idle: false };
    let value = reader.choice()?;
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
    names: Names<'b>,
    depth: usize,
    steps: &'b mut usize,
    /// Whether the value does not count, what is left of it having decided: then nothing is wrong with it.
    idle: bool,
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

    /// `condition ? value : value`, or a value.
    fn choice(&mut self) -> Option<i128> {
        let condition = self.binary(0)?;
        if !self.take("?") {
            return Some(condition);
        }
        *self.steps = self.steps.checked_sub(1)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let yes = self.aside(condition == 0, Self::choice)?;
        if !self.take(":") {
            return None;
        }
        let no = self.aside(condition != 0, Self::choice)?;
        self.depth -= 1;
        Some(if condition != 0 { yes } else { no })
    }

    /// Reads what does not count where `idle`.
    fn aside(&mut self, idle: bool, read: impl FnOnce(&mut Self) -> Option<i128>) -> Option<i128> {
        let around = self.idle;
        self.idle |= idle;
        let value = read(self);
        self.idle = around;
        value
    }

    /// Operands with operators that bind tighter than `least`.
    fn binary(&mut self, least: u8) -> Option<i128> {
        let mut left = self.unary()?;
        loop {
            let rest = self.rest.trim_start();
            let found = OPERATORS.iter().find(|(token, _)| rest.starts_with(token));
            let Some(&(token, binds)) = found.filter(|(_, binds)| *binds > least) else { return Some(left) };
            self.take(token);
            let decided = matches!((token, left), ("&&", 0)) || (token == "||" && left != 0);
            let right = self.aside(decided, |reader| reader.binary(binds))?;
            left = match apply(token, left, right) {
                None if self.idle => 0,
                value => value?,
            };
        }
    }

    fn unary(&mut self) -> Option<i128> {
        *self.steps = self.steps.checked_sub(1)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = if self.take("(") {
            let value = self.choice()?;
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
        if let Some((value, len)) = character(self.rest.trim_start()) {
            self.rest = self.rest.trim_start().get(len..)?;
            return Some(value);
        }
        let word = self.word().to_owned();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return literal(&word);
        }
        let (defines, otherwise) = match self.names {
            _ if word.is_empty() => return None,
            Names::Constants(value) => return value(&word),
            Names::Condition(defines) if word == "defined" => {
                let bracket = self.take("(");
                let known = defines.contains_key(self.word());
                return (!bracket || self.take(")")).then_some(i128::from(known));
            }
            Names::Condition(defines) => (defines, Some(0)),
            Names::Macros(defines) => (defines, None),
        };
        match defines.get(&word) {
            Some(text) => evaluate(text, self.names, self.depth, self.steps),
            None => otherwise,
        }
    }
}

/// The character constant that `text` begins with, as C has it: its value, which has a sign, and its length.
pub(crate) fn character(text: &str) -> Option<(i128, usize)> {
    let body = text.strip_prefix('\'')?;
    let (value, len) = match body.strip_prefix('\\') {
        None => (body.bytes().next().filter(|byte| byte.is_ascii() && !matches!(byte, b'\'' | b'\n'))?, 1),
        Some(escape) => {
            let octal = escape.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            if octal > 0 {
                (u8::from_str_radix(escape.get(..octal)?, 8).ok()?, 1 + octal)
            } else {
                let named = match escape.bytes().next()? {
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 0x0B,
                    b'f' => 0x0C,
                    b'r' => b'\r',
                    byte @ (b'\\' | b'\'' | b'"' | b'?') => byte,
                    _ => return None,
                };
                (named, 2)
            }
        }
    };
    body.get(len..)?.starts_with('\'').then_some((i128::from(value.cast_signed()), len + 2))
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
