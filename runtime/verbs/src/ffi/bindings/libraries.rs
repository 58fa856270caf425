//! The functions that libibverbs and librdmacm export. The libraries are loaded when they are first used.
//!
//! Posting and polling do not need these functions. They call functions in the device's context.

use std::sync::OnceLock;

use libloading::Library;

use super::generated::Functions;
use crate::VerbsError;

/// Declares functions of libraries: a structure with a pointer to each function, and functions of the same names that
/// call them.
///
/// The functions may only be called once [`load`] has succeeded. Most of them take an object of a library, which exists
/// only then.
macro_rules! functions {
    ($($library:ident { $(pub fn $function:ident($($name:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)* })*) => {
        /// The functions of the libraries.
        pub(super) struct Functions {
            $($($function: unsafe extern "C" fn($($type),*) $(-> $result)?,)*)*
        }

        impl Functions {
            /// Finds the functions in the libraries.
            pub(super) fn find(
                $($library: &super::libraries::LoadedLibrary),*
            ) -> Result<Self, crate::VerbsError> {
                Ok(Self {
                    // SAFETY: the declarations are those of the headers of the libraries.
                    $($($function: unsafe { $library.function(stringify!($function)) }?,)*)*
                })
            }
        }

        $($(
            #[doc = concat!("`", stringify!($function), "` of `", stringify!($library), "`.")]
            ///
            /// # Safety
            /// As documented by the library.
            pub unsafe fn $function($($name: $type),*) $(-> $result)? {
                // SAFETY: guaranteed by the caller.
                unsafe { (super::libraries::loaded().$function)($($name),*) }
            }
        )*)*
    };
}

/// The file name of a library, which includes the version of its interface, and the name of the Debian package that has
/// it.
#[derive(Debug, Clone, Copy)]
struct LibraryName {
    file: &'static str,
    package: &'static str,
}

/// A library that was loaded, for the life of the process.
pub(super) struct LoadedLibrary {
    name: LibraryName,
    /// The handle of the library. It is never dropped, because functions of the library are called until the process
    /// ends.
    library: std::mem::ManuallyDrop<Library>,
}

const LIBIBVERBS: LibraryName = LibraryName { file: "libibverbs.so.1", package: "libibverbs1" };
const LIBRDMACM: LibraryName = LibraryName { file: "librdmacm.so.1", package: "librdmacm1" };

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Loads the libraries, unless they are loaded already. A later call tries again if this one fails.
///
/// # Errors
/// Returns [`VerbsError::NoLibrary`] or [`VerbsError::NoFunction`].
pub(crate) fn load() -> Result<(), VerbsError> {
    if !are_loaded() {
        let functions = load_from(LIBIBVERBS, LIBRDMACM)?;
        // Another thread may have been faster, with the same result.
        let _ = FUNCTIONS.set(functions);
    }
    Ok(())
}

/// Returns `true` if [`load`] has succeeded.
pub(super) fn are_loaded() -> bool {
    FUNCTIONS.get().is_some()
}

/// Returns the functions of the libraries. Panics unless [`load`] has succeeded.
pub(super) fn loaded() -> &'static Functions {
    FUNCTIONS.get().expect("the RDMA libraries are loaded before an object of them exists")
}

/// Finds all functions in libraries of these names. librdmacm needs libibverbs, so libibverbs is loaded first: if it is
/// missing, the error names it and not librdmacm.
fn load_from(libibverbs: LibraryName, librdmacm: LibraryName) -> Result<Functions, VerbsError> {
    Functions::find(&LoadedLibrary::new(libibverbs)?, &LoadedLibrary::new(librdmacm)?)
}

impl LoadedLibrary {
    fn new(name: LibraryName) -> Result<Self, VerbsError> {
        // SAFETY: the initialization of the libraries has no preconditions.
        match unsafe { Library::new(name.file) } {
            Ok(library) => Ok(Self { name, library: std::mem::ManuallyDrop::new(library) }),
            Err(error) => {
                let LibraryName { file, package } = name;
                Err(VerbsError::NoLibrary { library: file, package, source: message_of(error) })
            }
        }
    }

    /// Finds a function. If the library has several versions of it, returns the one that programs link with by default.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to that function.
    pub(super) unsafe fn function<F: Copy>(&self, function: &'static str) -> Result<F, VerbsError> {
        // SAFETY: guaranteed by the caller.
        match unsafe { self.library.get::<F>(function) } {
            Ok(symbol) => Ok(*symbol),
            Err(error) => {
                let LibraryName { file, package } = self.name;
                Err(VerbsError::NoFunction { function, library: file, package, source: message_of(error) })
            }
        }
    }
}

/// Returns the loader's message. The error around it only names the function that failed.
fn message_of(error: libloading::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        libloading::Error::DlOpen { source } | libloading::Error::DlSym { source } => Box::new(source),
        other => Box::new(other),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    const ABSENT: LibraryName = LibraryName { file: "libabsent.so.1", package: "absent1" };
    const LIBC: LibraryName = LibraryName { file: "libc.so.6", package: "libc6" };

    fn error_of(libibverbs: LibraryName, librdmacm: LibraryName) -> VerbsError {
        load_from(libibverbs, librdmacm).err().expect("one of the libraries does not fit")
    }

    /// If a library is missing, loading fails, and the error names the library, the loader's reason and the package.
    #[test]
    fn a_missing_library_is_an_error() {
        for error in [error_of(ABSENT, LIBRDMACM), error_of(LIBC, ABSENT)] {
            let text = error.to_string();
            assert!(text.contains("libabsent.so.1") && text.contains("absent1"), "{text}");
            assert!(matches!(error, VerbsError::NoLibrary { library: "libabsent.so.1", .. }), "{error:?}");
            let reason = error.source().unwrap().to_string();
            assert!(reason.contains("cannot open shared object file"), "{reason}");
            assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::Unsupported);
        }
    }

    #[test]
    fn a_missing_function_is_an_error() {
        let error = error_of(LIBC, LIBC);
        let text = error.to_string();
        assert!(text.contains("libc.so.6") && text.contains("libc6") && text.contains("ibv_"), "{text}");
        assert!(matches!(error, VerbsError::NoFunction { library: "libc.so.6", .. }), "{error:?}");
        let reason = error.source().unwrap().to_string();
        assert!(reason.contains("undefined symbol"), "{reason}");
    }

    /// Installed libraries have all functions. If they are not installed, loading fails with [`VerbsError::NoLibrary`].
    #[test]
    fn installed_libraries_are_loaded() {
        // SAFETY: as in `LoadedLibrary::new`.
        let installed = [LIBIBVERBS, LIBRDMACM].map(|name| unsafe { Library::new(name.file) }.is_ok());
        let required = std::env::var_os("RPCRDMA_REQUIRE_TOOLS").is_some();
        assert!(!required || installed == [true; 2], "the RDMA libraries are not installed");
        match load() {
            Ok(()) => assert!(are_loaded() && installed == [true; 2]),
            Err(VerbsError::NoLibrary { library, .. }) => {
                assert_eq!(library, if installed[0] { LIBRDMACM.file } else { LIBIBVERBS.file });
                assert!(!are_loaded());
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Functions that exist in several versions are found in their default versions.
    #[test]
    fn the_default_versions_are_found() {
        let Ok(library) = LoadedLibrary::new(LIBIBVERBS) else { return };
        for name in [c"ibv_reg_mr", c"ibv_dereg_mr", c"ibv_query_port", c"ibv_create_cq", c"ibv_modify_qp"] {
            // SAFETY: any function can be represented by a pointer to one, which is not called.
            let found = unsafe { library.function::<unsafe extern "C" fn()>(name.to_str().unwrap()) }.unwrap();
            // SAFETY: the names are NUL-terminated strings, and the library stays loaded.
            let [first, current] = [c"IBVERBS_1.0", c"IBVERBS_1.1"].map(|version| unsafe {
                let handle = libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY);
                dlvsym(handle, name.as_ptr(), version.as_ptr())
            });
            assert!(!first.is_null() && first != current, "{name:?}");
            assert_eq!(found as *mut std::ffi::c_void, current, "{name:?}");
        }
    }

    unsafe extern "C" {
        fn dlvsym(
            handle: *mut std::ffi::c_void,
            symbol: *const std::ffi::c_char,
            version: *const std::ffi::c_char,
        ) -> *mut std::ffi::c_void;
    }
}
