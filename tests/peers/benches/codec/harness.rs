//! Arms that take turns, and what is told of them.

use std::{env, hint::black_box, process::Command, time::Instant};

/// What is encoded and decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// A GETATTR reply.
    Getattr = 0,
    /// A READDIRPLUS reply of 100 entries, attributes and handles included.
    Readdirplus = 1,
    /// A READ reply of 1 MiB.
    Read = 2,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Encode,
    Decode,
}

/// Carries something out as often as it is told.
type Work = Box<dyn FnMut(u64)>;

/// A codec for one message.
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    encode: Option<Work>,
    decode: Option<Work>,
}

impl Arm {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, encode: None, decode: None }
    }

    /// Decodes the message; what comes of it is dropped within the time that is measured.
    pub(crate) fn decode<T>(mut self, mut decode: impl FnMut() -> T + 'static) -> Self {
        self.decode = Some(Box::new(move |times| {
            for _ in 0..times {
                black_box(decode());
            }
        }));
        self
    }

    /// Encodes the message into memory that is there already. It has to be `octets`.
    pub(crate) fn encode(mut self, octets: &'static [u8], mut encode: impl FnMut(&mut Vec<u8>) + 'static) -> Self {
        let mut out = Vec::with_capacity(octets.len() + 64);
        encode(&mut out);
        assert!(out == octets, "{}: encodes something else", self.name);
        self.encode = Some(Box::new(move |times| {
            for _ in 0..times {
                encode(black_box(&mut out));
                black_box(out.len());
            }
        }));
        self
    }

    /// Encodes in a way whose octets are not all in one place.
    pub(crate) fn encode_apart(mut self, mut encode: impl FnMut(&mut Vec<u8>) + 'static) -> Self {
        let mut out = Vec::with_capacity(4096);
        self.encode = Some(Box::new(move |times| {
            for _ in 0..times {
                encode(black_box(&mut out));
                black_box(out.len());
            }
        }));
        self
    }

    pub(crate) fn work(&mut self, way: Way) -> Option<&mut Work> {
        match way {
            Way::Encode => self.encode.as_mut(),
            Way::Decode => self.decode.as_mut(),
        }
    }
}

/// How long each arm's turn is, and how many turns it gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) turn_us: u128,
    pub(crate) turns: usize,
}

/// Medians of the time of one operation, in nanoseconds, for each arm that goes this way.
pub(crate) fn times(arms: &mut [Arm], way: Way, effort: Effort) -> Vec<(&'static str, f64)> {
    let mut counts: Vec<Option<u64>> = arms.iter_mut().map(|arm| arm.work(way).map(|w| calibrate(w, effort))).collect();
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); arms.len()];
    for _ in 0..effort.turns {
        for (at, arm) in arms.iter_mut().enumerate() {
            let (Some(work), Some(count)) = (arm.work(way), counts[at].as_mut()) else { continue };
            let start = Instant::now();
            work(*count);
            samples[at].push(start.elapsed().as_nanos() as f64 / *count as f64);
        }
    }
    let measured = arms.iter().zip(samples).filter(|(_, samples)| !samples.is_empty());
    measured.map(|(arm, samples)| (arm.name, median(samples))).collect()
}

/// How often an operation is carried out in one turn.
fn calibrate(work: &mut Work, effort: Effort) -> u64 {
    let mut count = 1;
    loop {
        let start = Instant::now();
        work(count);
        if start.elapsed().as_micros() >= effort.turn_us || count > 1 << 30 {
            return count;
        }
        count *= 2;
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// What noise does not touch: instructions (callgrind) and allocations (memcheck) of one operation. This program is run
/// for one arm, `few` times and `more` times: the difference is what `more - few` operations take.
pub(crate) fn counts(message: &str, arm: &str, way: &str, few: u64, more: u64) -> Option<(f64, f64)> {
    let operations = (more - few) as f64;
    let instructions = |times| {
        let output = valgrind(&["--tool=callgrind", "--callgrind-out-file=/dev/null"], message, arm, way, times)?;
        number_after(&output, "Collected :")
    };
    let allocations = |times| {
        let output = valgrind(&["--tool=memcheck", "--undef-value-errors=no"], message, arm, way, times)?;
        number_after(&output, "total heap usage:")
    };
    Some((
        (instructions(more)? - instructions(few)?) / operations,
        (allocations(more)? - allocations(few)?) / operations,
    ))
}

fn valgrind(tool: &[&str], message: &str, arm: &str, way: &str, times: u64) -> Option<String> {
    let program = env::current_exe().ok()?;
    let mut command = Command::new("valgrind");
    command.args(tool).arg(program).args(["--profile", message, arm, way, &times.to_string()]);
    Some(String::from_utf8_lossy(&command.output().ok()?.stderr).into_owned())
}

/// The first number of the line that has `label`.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    let digits: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().ok()
}
