//! Conditions of `#if` and values of `#define`: C integer constant expressions (ISO C §6.10.1) over defined names.

use std::collections::HashMap;

use crate::lexer::{Lexer, Token, TokenKind};

/// Names defined by `#define` or by the user, with their values as text.
pub(crate) type Defines = HashMap<String, String>;

/// Maximum nesting depth of operators and names: the limit of the scanner, plus some levels for names.
const MAX_DEPTH: usize = 64;

/// Maximum number of evaluation steps. Without it, names that expand to each other repeatedly would take exponential
/// time.
const MAX_STEPS: usize = 10_000;

/// Evaluates a condition. Undefined names count as 0. Returns `None` if `text` is not a valid condition.
pub(crate) fn is_true(text: &str, defines: &Defines) -> Option<bool> {
    let value = |name: &str| defines.get(name).map(|text| NameMeaning::Text(text));
    evaluate(text, ExprNames { value: &value, is_condition: true }).map(|value| value != 0)
}

/// Evaluates the text of a macro. Returns `None` if the text is not a valid expression, or if a name in it is not
/// defined.
pub(crate) fn macro_number(text: &str, defines: &Defines) -> Option<i128> {
    let value = |name: &str| defines.get(name).map(|text| NameMeaning::Text(text));
    evaluate(text, ExprNames { value: &value, is_condition: false })
}

/// Evaluates an expression over constants. Returns `None` if the expression is invalid, or if `constants` does not know
/// a name in it.
pub(crate) fn computed(text: &str, constants: &dyn Fn(&str) -> Option<i128>) -> Option<i128> {
    let value = |name: &str| constants(name).map(NameMeaning::Number);
    evaluate(text, ExprNames { value: &value, is_condition: false })
}

/// The meaning of a name.
enum NameMeaning<'a> {
    Number(i128),
    /// The text of another expression.
    Text(&'a str),
}

/// The names available to an expression.
#[derive(Clone, Copy)]
struct ExprNames<'a> {
    value: &'a dyn Fn(&str) -> Option<NameMeaning<'a>>,
    /// `true` if the expression is an `#if` condition, where undefined names count as 0 and `defined` is an operator.
    is_condition: bool,
}

fn evaluate(text: &str, names: ExprNames<'_>) -> Option<i128> {
    evaluate_within(text, names, 0, &mut { MAX_STEPS })
}

fn evaluate_within(text: &str, names: ExprNames<'_>, depth: usize, steps: &mut usize) -> Option<i128> {
    let mut lexer = Lexer::within_directive(text);
    let next = next_token(&mut lexer);
    let mut reader = ExprReader { lexer, next, names, depth, steps, idle: false };
    let value = reader.choice()?;
    reader.next.is_none().then_some(value)
}

/// Returns the next token that is not trivia.
fn next_token<'a>(lexer: &mut Lexer<'a>) -> Option<Token<'a>> {
    lexer.find(|token| !matches!(token.kind, TokenKind::Blank | TokenKind::LineEnd))
}

/// Binary operators with their precedence. A higher number binds more tightly.
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

struct ExprReader<'a, 'b, 'n> {
    lexer: Lexer<'a>,
    /// The current token.
    next: Option<Token<'a>>,
    names: ExprNames<'n>,
    depth: usize,
    steps: &'b mut usize,
    /// `true` if the value is discarded, as in the unused branch of `?:`. Arithmetic errors of binary operators, such
    /// as a division by zero, are then ignored.
    idle: bool,
}

impl<'a> ExprReader<'a, '_, '_> {
    /// Consumes and returns the current token.
    fn advance(&mut self) -> Option<Token<'a>> {
        std::mem::replace(&mut self.next, next_token(&mut self.lexer))
    }

    /// Consumes the current token if it is `punctuation`. Returns `true` if the token was consumed.
    fn take(&mut self, punctuation: &str) -> bool {
        let is_next = self.next.is_some_and(|next| next.text == punctuation);
        if is_next {
            self.advance();
        }
        is_next
    }

    /// Parses and evaluates `condition ? value : value`, or an expression without `?`.
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
        let yes = self.operand_of(condition == 0, Self::choice)?;
        if !self.take(":") {
            return None;
        }
        let no = self.operand_of(condition != 0, Self::choice)?;
        self.depth -= 1;
        Some(if condition != 0 { yes } else { no })
    }

    /// Parses an operand with `read`. If `idle` is `true`, the value of the operand is not used, and arithmetic errors
    /// of binary operators in it are ignored.
    fn operand_of(&mut self, idle: bool, read: impl FnOnce(&mut Self) -> Option<i128>) -> Option<i128> {
        let around = self.idle;
        self.idle |= idle;
        let value = read(self);
        self.idle = around;
        value
    }

    /// Parses and evaluates operands, and the binary operators between them that bind more tightly than `min_binding`.
    fn binary(&mut self, min_binding: u8) -> Option<i128> {
        let mut left = self.unary()?;
        loop {
            let found = self.next.and_then(|next| OPERATORS.iter().find(|(token, _)| next.text == *token));
            let Some(&(token, binds)) = found.filter(|(_, binds)| *binds > min_binding) else { return Some(left) };
            self.take(token);
            let decided = matches!((token, left), ("&&", 0)) || (token == "||" && left != 0);
            let right = self.operand_of(decided, |reader| reader.binary(binds))?;
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

    /// Evaluates an enumerator that is qualified with its enumeration, such as `color::RED`. `first` is the first
    /// token, which has already been consumed.
    fn scoped(&mut self, first: &str) -> Option<i128> {
        let mut name = first.to_owned();
        while let Some(next) = self.next.filter(|next| (next.text == "::") != name.ends_with("::")) {
            if next.text != "::" && next.kind != TokenKind::Word {
                break;
            }
            name.push_str(next.text);
            self.advance();
        }
        match (self.names.value)(&name)? {
            NameMeaning::Number(value) => Some(value),
            NameMeaning::Text(_) => None,
        }
    }

    fn operand(&mut self) -> Option<i128> {
        let token = self.advance()?;
        let word = match token.kind {
            TokenKind::Word | TokenKind::Punct
                if token.text == "::" || self.next.is_some_and(|next| next.text == "::") =>
            {
                return self.scoped(token.text);
            }
            TokenKind::Word => token.text,
            TokenKind::Character => return character(token.text),
            _ => return None,
        };
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return literal(word);
        }
        if word == "defined" && self.names.is_condition {
            let bracket = self.take("(");
            let name = self.next.filter(|next| next.kind == TokenKind::Word);
            if name.is_some() {
                self.advance();
            }
            let is_defined = name.is_some_and(|name| (self.names.value)(name.text).is_some());
            return (!bracket || self.take(")")).then_some(i128::from(is_defined));
        }
        match (self.names.value)(word) {
            Some(NameMeaning::Number(value)) => Some(value),
            Some(NameMeaning::Text(text)) => evaluate_within(text, self.names, self.depth, self.steps),
            None => self.names.is_condition.then_some(0),
        }
    }
}

/// Returns the value of a character constant, as a signed 8-bit number. Supports the simple and the octal escape
/// sequences of C, and returns `None` for others.
pub(crate) fn character(constant: &str) -> Option<i128> {
    let body = constant.strip_prefix('\'')?.strip_suffix('\'')?;
    let value = match body.strip_prefix('\\') {
        None => body.bytes().next()?,
        Some(octal) if octal.starts_with(|c: char| c.is_digit(8)) => u8::from_str_radix(octal, 8).ok()?,
        Some(escape) => match escape.bytes().next()? {
            b'a' => 0x07,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 0x0B,
            b'f' => 0x0C,
            b'r' => b'\r',
            byte @ (b'\\' | b'\'' | b'"' | b'?') => byte,
            _ => return None,
        },
    };
    Some(i128::from(value.cast_signed()))
}

/// Parses a number without a sign: decimal, hexadecimal (`0x`) or octal (leading 0), as in RFC 4506 §6.2. Digits may be
/// separated by `'`.
pub(crate) fn number(digits: &str) -> Option<i128> {
    let digits = &*digits.replace('\'', "");
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    i128::from_str_radix(digits, radix).ok()
}

/// Parses a number with a C suffix, such as `UL`.
fn literal(word: &str) -> Option<i128> {
    number(word.trim_end_matches(['u', 'U', 'l', 'L']))
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
