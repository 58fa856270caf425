//! A version of a program, ready to be written out, whichever front door it came in by.

use proc_macro2::{Ident, TokenStream};

use super::super::{names::Std, options::EmitOptions};

/// A version of a program.
#[derive(Debug)]
pub(crate) struct ProgramModule<'a> {
    /// The path of the runtime crate.
    pub(crate) runtime: TokenStream,
    /// How standard names are written.
    pub(crate) std: Std<'a>,
    /// The module's name.
    pub(crate) name: Ident,
    /// Whether only numbers and markers are in the module, and all that names types beside it.
    pub(crate) outside: bool,
    /// Visibility of what is beside the module, and of the module.
    pub(crate) visibility: TokenStream,
    /// The same visibility as what is in the module has to write it.
    pub(crate) inner_visibility: TokenStream,
    /// Documentation of the module.
    pub(crate) docs: TokenStream,
    /// The program's name in the specification.
    pub(crate) program: String,
    /// The version's name in the specification.
    pub(crate) version: String,
    /// The program's number.
    pub(crate) program_number: u32,
    /// The version's number.
    pub(crate) version_number: u32,
    /// The port that is assigned to it.
    pub(crate) port: Option<u16>,
    /// The client's name.
    pub(crate) client: Ident,
    /// The server trait's name.
    pub(crate) handler: Ident,
    /// Documentation of the server trait, where it has its own.
    pub(crate) handler_docs: Option<TokenStream>,
    /// The name of what makes a service of a handler.
    pub(crate) server: Ident,
    /// The procedures.
    pub(crate) procedures: Vec<ProcedureModel>,
    /// Markers of the version's procedures if one of them may have more eligible items than servers accept by themselves.
    pub(crate) many_chunks: Option<Vec<Ident>>,
    /// Whether lines of [`CUT`] surround what each procedure adds to.
    pub(crate) is_cut: bool,
}

/// The name in lines that [`ProgramModule::pieces`] cuts at.
pub(super) const CUT: &str = "__XDRGEN_CUT";

/// A procedure.
#[derive(Debug)]
pub(crate) struct ProcedureModel {
    /// Its name in the specification.
    pub(crate) xdr_name: String,
    /// Its number.
    pub(crate) number: u32,
    /// The marker type.
    pub(crate) marker: Ident,
    /// The client's and the handler's method.
    pub(crate) method: Ident,
    /// The client's method that takes options.
    pub(crate) method_with: Ident,
    /// The client's method that passes on the result in its borrowed form, where it has one.
    pub(crate) view: Option<ReplyView>,
    /// Documentation of the marker.
    pub(crate) docs: TokenStream,
    /// Documentation of the handler's method.
    pub(crate) handler_docs: TokenStream,
    /// Documentation of the client's method.
    pub(crate) client_docs: TokenStream,
    /// `@idempotent`
    pub(crate) idempotent: bool,
    /// The arguments as one type.
    pub(crate) args: TokenStream,
    /// The arguments as parameters.
    pub(crate) params: Vec<Param>,
    /// How the parameters make the one type.
    pub(crate) packing: Packing,
    /// The result.
    pub(crate) reply: TokenStream,
    /// Types of its own, with their codecs.
    pub(crate) declarations: Vec<TokenStream>,
    /// Codecs of these.
    pub(crate) codecs: Vec<TokenStream>,
    /// The reply's bounds from `args`: the body of a function.
    pub(crate) bounds: TokenStream,
    /// The handler's method up to and including its body or semicolon, where it was written out.
    pub(crate) signature: Option<TokenStream>,
}

/// A client's method that passes on a result in its borrowed form.
#[derive(Debug)]
pub(crate) struct ReplyView {
    /// The method's name.
    pub(crate) method: Ident,
    /// The borrowed form.
    pub(crate) ty: TokenStream,
    /// The statements that read it from `decoder` into `result`.
    pub(crate) read: TokenStream,
}

/// A parameter.
#[derive(Debug)]
pub(crate) struct Param {
    /// Its name.
    pub(crate) name: Ident,
    /// Its type.
    pub(crate) ty: TokenStream,
    /// Whether clients take it by value because it is as small as a reference.
    pub(crate) small: bool,
}

/// How parameters make a procedure's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// There are none.
    Void,
    /// The one parameter is the arguments.
    Single,
    /// They are fields of a struct.
    Struct,
    /// They are a tuple.
    Tuple,
}

/// Which stubs to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stubs {
    /// A typed client.
    pub(crate) client: bool,
    /// The server's trait and its dispatcher.
    pub(crate) server: bool,
}

impl Stubs {
    /// Those that the options ask for.
    pub(crate) fn of(options: &EmitOptions) -> Self {
        Self { client: options.client, server: options.server }
    }
}
