//! The folder `tests` of this package checks the errors of the macros.
