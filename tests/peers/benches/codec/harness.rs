//! Measurement of codecs: the times of operations, in alternating turns, and their instructions and allocations under
//! valgrind.

use std::{env, hint::black_box, process::Command, time::Instant};

/// The message to encode or decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// A GETATTR reply.
    Getattr = 0,
    /// A READDIRPLUS reply with 100 entries, with attributes and handles.
    Readdirplus = 1,
    /// A READ reply of 1 MiB.
    Read = 2,
}

/// The operation to measure: encoding or decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Encode,
    Decode,
}

/// A function that runs an operation the given number of times.
type Work = Box<dyn FnMut(u64)>;

/// A codec for one message, as an arm of the comparison.
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    encode: Option<Work>,
    decode: Option<Work>,
}

impl Arm {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, encode: None, decode: None }
    }

    /// Sets the decoder. The measured time includes dropping the decoded value.
    pub(crate) fn decode<T>(mut self, mut decode: impl FnMut() -> T + 'static) -> Self {
        self.decode = Some(Box::new(move |times| {
            for _ in 0..times {
                black_box(decode());
            }
        }));
        self
    }

    /// Sets the encoder. It writes into memory that is already allocated. Panics if the result of `encode` is not
    /// `bytes`.
    pub(crate) fn encode(mut self, bytes: &'static [u8], mut encode: impl FnMut(&mut Vec<u8>) + 'static) -> Self {
        let mut out = Vec::with_capacity(bytes.len() + 64);
        encode(&mut out);
        assert!(out == bytes, "{}: encodes other bytes", self.name);
        self.encode = Some(Box::new(move |times| {
            for _ in 0..times {
                encode(black_box(&mut out));
                black_box(out.len());
            }
        }));
        self
    }

    /// Sets an encoder whose result is not contiguous. The result is not compared with the expected bytes.
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

/// The minimum duration of a turn, in microseconds, and the number of turns per codec.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) turn_us: u128,
    pub(crate) turns: usize,
}

/// Returns the median time of one operation, in nanoseconds, for each codec that supports the operation `way`.
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

/// Returns the number of operations for one turn: the first power of two whose operations take at least
/// [`turn_us`](Effort::turn_us), but at most 2^31.
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

/// Counts the instructions (callgrind) and allocations (memcheck) of one operation, independently of noise. Runs this
/// program for one codec with `few` and with `more` operations. The difference is the cost of `more - few` operations.
/// Returns `None` if valgrind cannot be run or prints no counts.
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

/// Returns the first number after `label`. Commas in the number are ignored.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    let digits: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().ok()
}
