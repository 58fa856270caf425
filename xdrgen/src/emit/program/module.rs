//! The model of a program version. It comes from an XDR specification or from a Rust trait.

use proc_macro2::{Ident, TokenStream};

use super::super::{names::Std, options::EmitOptions};

/// A program version, from which its module and its stubs are generated.
#[derive(Debug)]
pub(crate) struct ProgramModule<'a> {
    /// The path of the runtime crate.
    pub(crate) runtime: TokenStream,
    /// The form of standard library and runtime names in the generated code.
    pub(crate) std: Std<'a>,
    /// The name of the module.
    pub(crate) name: Ident,
    /// `true` if the module contains only numbers and markers, and the code that names types is outside the module.
    pub(crate) outside: bool,
    /// The visibility of the module and of the items outside.
    pub(crate) visibility: TokenStream,
    /// The tokens of `visibility` for items inside the module, which is one level deeper.
    pub(crate) inner_visibility: TokenStream,
    /// The documentation of the module.
    pub(crate) docs: TokenStream,
    /// The XDR name of the program.
    pub(crate) program: String,
    /// The XDR name of the version.
    pub(crate) version: String,
    pub(crate) program_number: u32,
    pub(crate) version_number: u32,
    /// The RDMA port of the program, if one is assigned.
    pub(crate) port: Option<u16>,
    /// The name of the client type.
    pub(crate) client: Ident,
    /// The name of the server trait.
    pub(crate) handler: Ident,
    /// The server trait of the base version, whose procedures this version takes over.
    pub(crate) base: Option<BaseTrait>,
    /// The documentation and other attributes of the server trait, if they differ from the default.
    pub(crate) handler_docs: Option<TokenStream>,
    /// The name of the dispatcher, which turns a handler into a service.
    pub(crate) server: Ident,
    pub(crate) procedures: Vec<ProcedureModel>,
    /// The markers of all procedures, if the arguments or the result of one of them may have more eligible items than
    /// servers accept by default. Always present for a service that is defined as a Rust trait, because the numbers of
    /// items are not known during expansion.
    pub(crate) many_chunks: Option<Vec<Ident>>,
    /// `true` if the module contains [`CUT`] lines around the code that procedures add.
    pub(crate) is_cut: bool,
}

/// The server trait of a version whose procedures another version takes over.
#[derive(Debug, Clone)]
pub(crate) struct BaseTrait {
    /// The XDR name of the version.
    pub(crate) version: String,
    /// The path of the trait, as seen from the module.
    pub(crate) path: TokenStream,
}

/// The name that marks the lines at which [`ProgramModule::pieces`] cuts.
pub(super) const CUT: &str = "__XDRGEN_CUT";

/// A procedure, from which its marker type and its methods are generated.
#[derive(Debug)]
pub(crate) struct ProcedureModel {
    /// The XDR name of the procedure.
    pub(crate) xdr_name: String,
    /// The path of the handler method in the version that declares the procedure. `None` if this version declares it.
    pub(crate) origin: Option<TokenStream>,
    /// The procedure number.
    pub(crate) number: u32,
    /// The name of the marker type.
    pub(crate) marker: Ident,
    /// The name of the client method and the handler method.
    pub(crate) method: Ident,
    /// The name of the client method with options.
    pub(crate) method_with: Ident,
    /// The client method that passes the borrowed form of the result to a closure, if this method is generated.
    pub(crate) view: Option<ReplyView>,
    /// The documentation of the marker type.
    pub(crate) docs: TokenStream,
    /// The documentation and other attributes of the handler method.
    pub(crate) handler_docs: TokenStream,
    /// The documentation of the client method.
    pub(crate) client_docs: TokenStream,
    /// `true` if the procedure is idempotent.
    pub(crate) idempotent: bool,
    /// The type of the combined arguments.
    pub(crate) args: TokenStream,
    /// The parameters of the client method and the handler method.
    pub(crate) params: Vec<Param>,
    /// The way in which the parameters are combined into the arguments.
    pub(crate) packing: Packing,
    /// The type of the result.
    pub(crate) reply: TokenStream,
    /// Types that are generated for this procedure.
    pub(crate) declarations: Vec<TokenStream>,
    /// The codecs of the types in `declarations`.
    pub(crate) codecs: Vec<TokenStream>,
    /// `true` if the user implements `BoundsReply` for the arguments, to compute the bounds of the reply.
    pub(crate) computed: bool,
    /// The body of the function that computes the reply bounds from `args`.
    pub(crate) bounds: TokenStream,
    /// The complete handler method, including its body or semicolon, if the user wrote it.
    pub(crate) signature: Option<TokenStream>,
}

/// A client method that passes the borrowed form of a result to a closure.
#[derive(Debug)]
pub(crate) struct ReplyView {
    /// The name of the method.
    pub(crate) method: Ident,
    /// The borrowed form of the result type.
    pub(crate) ty: TokenStream,
    /// The statements that decode the result from `decoder` into `result`.
    pub(crate) read: TokenStream,
}

/// A parameter of a client method and a handler method.
#[derive(Debug)]
pub(crate) struct Param {
    /// The name of the parameter.
    pub(crate) name: Ident,
    /// The type of the parameter.
    pub(crate) ty: TokenStream,
    /// `true` if clients take the parameter by value, because it is as small as a reference.
    pub(crate) small: bool,
}

/// The way in which the parameters of a procedure are combined into its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// There are no parameters.
    Void,
    /// The only parameter has the type of the arguments.
    Single,
    /// The parameters are the fields of a struct.
    Struct,
    /// The parameters are the elements of a tuple.
    Tuple,
}

/// The stubs to generate for each program version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stubs {
    /// `true` to generate a typed client.
    pub(crate) client: bool,
    /// `true` to generate the server trait and its dispatcher.
    pub(crate) server: bool,
}

impl Stubs {
    /// Returns the stubs that the options select.
    pub(crate) fn of(options: &EmitOptions) -> Self {
        Self { client: options.client, server: options.server }
    }
}
