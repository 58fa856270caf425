//! The error of a command, and the exit codes of failed commands.

/// Exit code if the input has errors, or if `fmt --check` finds a file that is not formatted.
pub(crate) const WRONG_INPUT: u8 = 1;
/// Exit code if the arguments are invalid, or contradict each other or the input. `clap` exits with the same code.
pub(crate) const WRONG_USAGE: u8 = 2;
/// Exit code if a file cannot be read or written.
pub(crate) const NO_FILE: u8 = 3;

/// Failure of a command: text that is still to be printed, and the exit code.
pub(crate) struct CliError {
    pub(crate) message: String,
    pub(crate) code: u8,
}
