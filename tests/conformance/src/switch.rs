//! The switch that selects a planted fault or a mutant. Its crate in the copy of the project consists of this file.

use std::{
    env,
    fs::{File, OpenOptions},
    io::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The environment variable that selects a fault or a mutant by its number. 0 selects none.
pub const SELECTED: &str = "RPCRDMA_FAULT";

/// The environment variable with the name of a file. The number of each mutant that is reached is appended to this
/// file, as four bytes in little-endian order.
pub const REACHED: &str = "RPCRDMA_REACHED";

/// The highest number of a mutant.
pub const MAX_MUTANT: u32 = 65_535;

struct Switch {
    number: u32,
    reached: Option<File>,
}

fn switch() -> &'static Switch {
    static SWITCH: OnceLock<Switch> = OnceLock::new();
    SWITCH.get_or_init(|| Switch {
        number: env::var(SELECTED).ok().and_then(|text| text.parse().ok()).unwrap_or(0),
        reached: env::var_os(REACHED).and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok()),
    })
}

/// Returns the number of the selected fault or mutant, or 0 if none is selected.
pub fn number() -> u32 {
    switch().number
}

/// Returns `true` if this mutant is selected. If [`REACHED`] is set, records that the mutant was reached.
pub fn planted(mutant: u32) -> bool {
    static IS_REACHED: [AtomicU64; MAX_MUTANT as usize / 64 + 1] =
        [const { AtomicU64::new(0) }; MAX_MUTANT as usize / 64 + 1];
    let switch = switch();
    if let Some(mut file) = switch.reached.as_ref() {
        let bit = 1 << (mutant % 64);
        let is_first = IS_REACHED.get(mutant as usize / 64).is_some_and(|word| {
            word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
        });
        // Written at once, because the process may be killed.
        if is_first {
            let _ = file.write_all(&mutant.to_le_bytes());
        }
    }
    switch.number == mutant
}
