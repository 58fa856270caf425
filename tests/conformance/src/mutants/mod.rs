//! Mutants: small changes of the code that a program makes. The tests should notice each of them.
//!
//! | file | contents |
//! | --- | --- |
//! | `cfg` | conditional compilation: the code that test programs contain apart from tests |
//! | `areas` | parts of the project with a mutation score of their own, their source files and test programs |
//! | `mutate` | the mutations of a source file |
//! | `splice` | the source file with all of its mutants behind the switch, and the search for those that do not compile |
//! | `compile` | the copy with all mutants, without those that do not compile |
//! | `reach` | the mutants that each test reaches, and the tests to run for a mutant |
//! | `changed` | the lines of Rust files that have changed since the merge base with a Git revision |
//! | `record` | the record of scores and survivors, which the page shows |

pub mod areas;
pub mod cfg;
pub mod changed;
pub mod compile;
pub mod mutate;
pub mod reach;
pub mod record;
pub mod splice;
