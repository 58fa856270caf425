//! Generation of conversions for unions that are equivalent to an `Option` or a `Result`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::Emitter;
use crate::ir::{Arm, Base, Case, Field, Union};

/// The variants of a union with a boolean discriminant and one void arm.
pub(super) struct OptionVariants<'a> {
    /// The variant that holds the value.
    pub(super) some: &'a Ident,
    /// The void variant.
    pub(super) none: &'a Ident,
    /// The type of the value.
    pub(super) value: &'a TokenStream,
    /// The target type of a reference to the value: `T` if the value is a `Box<T>`, and the type of the value
    /// otherwise.
    pub(super) target: &'a TokenStream,
}

/// The variants of a union whose discriminant is a status. See `Layout::status_of`.
pub(super) struct ResultVariants<'a> {
    /// The variant of the success arm.
    pub(super) ok: &'a Ident,
    /// The type of the data in the success arm.
    pub(super) value: &'a TokenStream,
    /// The type of the status.
    pub(super) status: &'a TokenStream,
    /// The status and the variant of each void case.
    pub(super) void: Vec<(TokenStream, Ident)>,
    /// The variant of the default arm.
    pub(super) default: &'a Ident,
    /// The type of the data in the default arm, unless that arm is void.
    pub(super) failure: Option<&'a TokenStream>,
}

/// The label of a case that replaces the default arm. No other case has this label, because it is an XDR keyword.
pub(super) const DEFAULT: &str = "default";

/// Returns a copy of the union in which an arm for the other boolean value replaces the default arm. Returns `None`
/// unless the discriminant is a boolean, and the union has a default arm and exactly one other case.
pub(super) fn boolean(base: Base, union: &Union) -> Option<Union> {
    let default = union.default.as_ref().filter(|_| base == Base::Bool)?;
    let [Arm { cases, .. }] = union.arms.as_slice() else { return None };
    let [case] = cases.as_slice() else { return None };
    let value = 1 - case.value;
    let mut union = union.clone();
    let field: Option<Field> = default.clone();
    union.arms.push(Arm { cases: vec![Case { label: DEFAULT.to_owned(), value }], field });
    union.default = None;
    Some(union)
}

/// The generated conversions of a union.
#[derive(Default)]
pub(super) struct Conversions {
    /// Methods of the union.
    pub(super) methods: TokenStream,
    /// Implementations of `From` in both directions.
    pub(super) impls: Vec<TokenStream>,
}

impl Emitter<'_> {
    /// Returns the conversions from and to `Option`.
    pub(super) fn option_conversions(&self, variants: &OptionVariants<'_>) -> Conversions {
        let OptionVariants { some, none, value, target } = variants;
        let (name, lifetime) = (&self.name.ident, self.lifetime());
        let (option, from) = (self.view.std("Option"), self.view.std("From"));
        let methods = quote! {
            /// Returns the value, if there is one.
            #[inline]
            #[must_use]
            pub fn into_option(self) -> #option<#value> {
                match self {
                    Self::#some(value) => Some(value),
                    Self::#none => None,
                }
            }

            /// Returns a reference to the value, if there is one.
            #[inline]
            #[must_use]
            pub fn as_option(&self) -> #option<&#target> {
                match self {
                    Self::#some(value) => Some(value),
                    Self::#none => None,
                }
            }
        };
        let impls = vec![
            quote! {
                impl #lifetime #from<#option<#value>> for #name #lifetime {
                    #[inline]
                    fn from(value: #option<#value>) -> Self {
                        match value {
                            Some(value) => Self::#some(value),
                            None => Self::#none,
                        }
                    }
                }
            },
            quote! {
                impl #lifetime #from<#name #lifetime> for #option<#value> {
                    #[inline]
                    fn from(value: #name #lifetime) -> Self {
                        value.into_option()
                    }
                }
            },
        ];
        Conversions { methods, impls }
    }

    /// Returns the conversions from and to `Result`.
    pub(super) fn result_conversions(&self, variants: &ResultVariants<'_>) -> Conversions {
        let ResultVariants { ok, value, status, void, default, failure } = variants;
        let (name, lifetime) = (&self.name.ident, self.lifetime());
        let (result, from) = (self.view.std("Result"), self.view.std("From"));
        let (statuses, voids): (Vec<_>, Vec<_>) = void.iter().cloned().unzip();
        let (error, rest, dropped) = match failure {
            None => (quote!(#status), TokenStream::new(), ""),
            Some(failure) => (quote!((#status, #failure)), quote!(, _), " The data of a failure is dropped."),
        };
        let docs = format!(" Returns the data of the success arm, or else the status.{dropped}");
        let (err, of_err) = match failure {
            None => (quote!(Err(status)), quote!(Self::#default(status))),
            Some(_) => (quote!(Err((status, failure))), quote!(Self::#default(status, failure))),
        };
        let into = match failure {
            None => quote!(value.into_result()),
            Some(_) => quote! {
                match value {
                    #name::#ok(value) => Ok(value),
                    #name::#default(status, failure) => Err((status, failure)),
                }
            },
        };
        let methods = quote! {
            #[doc = #docs]
            ///
            /// # Errors
            /// Returns the status if it is not success.
            #[inline]
            pub fn into_result(self) -> #result<#value, #status> {
                match self {
                    Self::#ok(value) => Ok(value),
                    #(Self::#voids => Err(#statuses),)*
                    Self::#default(status #rest) => Err(status),
                }
            }
        };
        let impls = vec![
            quote! {
                /// The status of an error must not be success: such a value cannot be encoded.
                impl #lifetime #from<#result<#value, #error>> for #name #lifetime {
                    #[inline]
                    fn from(result: #result<#value, #error>) -> Self {
                        match result {
                            Ok(value) => Self::#ok(value),
                            #(Err(#statuses) => Self::#voids,)*
                            #err => #of_err,
                        }
                    }
                }
            },
            quote! {
                impl #lifetime #from<#name #lifetime> for #result<#value, #error> {
                    #[inline]
                    fn from(value: #name #lifetime) -> Self {
                        #into
                    }
                }
            },
        ];
        Conversions { methods, impls }
    }
}
