//! Search for items by name in Rust source.

use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{
    Attribute, ImplItem, Item, ItemImpl, Signature, TraitItem, Type,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// One item of a source file.
#[derive(Debug)]
pub struct SourceItem {
    /// The item's name, after the names of the modules and the type or trait that contain it.
    pub path: Vec<String>,
    /// Byte range of the item with its attributes.
    pub range: Range<usize>,
    /// Parts of a function with a body. `None` for other items.
    pub function: Option<FunctionParts>,
}

/// Byte ranges in a function.
#[derive(Debug)]
pub struct FunctionParts {
    /// The body with its braces.
    pub body: Range<usize>,
    /// The keyword `const`, if the function has it.
    pub constness: Option<Range<usize>>,
    /// `true` if the function is a test.
    pub is_test: bool,
}

impl SourceItem {
    /// Returns `true` if `path`, such as `Credits::grant`, names this item.
    pub fn is_named(&self, path: &str) -> bool {
        let wanted: Vec<&str> = path.split("::").collect();
        self.path.len() >= wanted.len() && self.path[self.path.len() - wanted.len()..].iter().eq(wanted)
    }
}

/// Returns the modules, functions, types, traits, constants, statics and macros of a source file, including functions
/// and constants in traits and `impl` blocks, and the tests in calls of `proptest!`. Items in the body of a function
/// are not included.
///
/// # Errors
///
/// Fails if `text` is not Rust.
pub fn items(text: &str) -> syn::Result<Vec<SourceItem>> {
    let mut finder = Finder::default();
    finder.visit_file(&syn::parse_file(text)?);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    /// Names of the modules, type or trait around the visited item.
    around: Vec<String>,
    found: Vec<SourceItem>,
}

impl Finder {
    fn add(&mut self, name: &dyn ToString, range: Range<usize>, function: Option<FunctionParts>) {
        let mut path = self.around.clone();
        path.push(name.to_string());
        self.found.push(SourceItem { path, range, function });
    }

    fn add_function(
        &mut self,
        signature: &Signature,
        body: &syn::Block,
        attributes: &[Attribute],
        range: Range<usize>,
    ) {
        // `test`, `tokio::test` and others.
        let is_test = attributes
            .iter()
            .any(|attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "test"));
        let parts = FunctionParts {
            body: body.span().byte_range(),
            constness: signature.constness.map(|word| word.span.byte_range()),
            is_test,
        };
        self.add(&signature.ident, range, Some(parts));
    }

    /// Adds the functions in a call of `proptest!`, whose parameters are not valid Rust.
    fn add_properties(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter();
        while let Some(token) = tokens.next() {
            if !matches!(&token, TokenTree::Ident(word) if word == "fn") {
                continue;
            }
            let Some(TokenTree::Ident(name)) = tokens.next() else { continue };
            let body = tokens.find_map(|token| match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.span().byte_range()),
                _ => None,
            });
            if let Some(body) = body {
                let range = token.span().byte_range().start..body.end;
                self.add(&name, range, Some(FunctionParts { body, constness: None, is_test: true }));
            }
        }
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.around.push(name);
        visit(self);
        self.around.pop();
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        let range = item.span().byte_range();
        match item {
            Item::Fn(function) => self.add_function(&function.sig, &function.block, &function.attrs, range),
            Item::Const(item) => self.add(&item.ident, range, None),
            Item::Static(item) => self.add(&item.ident, range, None),
            Item::Struct(item) => self.add(&item.ident, range, None),
            Item::Enum(item) => self.add(&item.ident, range, None),
            Item::Type(item) => self.add(&item.ident, range, None),
            Item::Macro(item) => match &item.ident {
                Some(name) => self.add(name, range, None),
                None if item.mac.path.is_ident("proptest") => self.add_properties(item.mac.tokens.clone()),
                None => {}
            },
            Item::Mod(module) => {
                self.add(&module.ident, range, None);
                self.within(module.ident.to_string(), |finder| visit::visit_item_mod(finder, module));
            }
            Item::Trait(item) => {
                self.add(&item.ident, range, None);
                self.within(item.ident.to_string(), |finder| visit::visit_item_trait(finder, item));
            }
            Item::Impl(item) => {
                self.within(type_name(item), |finder| visit::visit_item_impl(finder, item));
            }
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let range = item.span().byte_range();
        match item {
            ImplItem::Fn(function) => self.add_function(&function.sig, &function.block, &function.attrs, range),
            ImplItem::Const(item) => self.add(&item.ident, range, None),
            _ => {}
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let range = item.span().byte_range();
        match item {
            TraitItem::Fn(function) => match &function.default {
                Some(body) => self.add_function(&function.sig, body, &function.attrs, range),
                None => self.add(&function.sig.ident, range, None),
            },
            TraitItem::Const(item) => self.add(&item.ident, range, None),
            _ => {}
        }
    }
}

/// Returns the name of the type of an `impl` block, or an empty string if the type has no path.
fn type_name(item: &ItemImpl) -> String {
    let mut ty = &*item.self_ty;
    while let Type::Reference(reference) = ty {
        ty = &reference.elem;
    }
    match ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "const A: u8 = 1; fn b() { fn inside() {} } struct C; impl C { const fn d(&self) -> u8 { 2 } } \
        impl Clone for C { fn clone(&self) -> C { C } } mod e { fn f() {} #[tokio::test] async fn g() {} } \
        trait H { fn i(); fn j() { 3; } } macro_rules! k { () => {} }";

    #[test]
    fn items_have_paths() {
        let items = items(TEXT).unwrap();
        let paths: Vec<_> = items.iter().map(|item| item.path.join("::")).collect();
        assert_eq!(paths, ["A", "b", "C", "C::d", "C::clone", "e", "e::f", "e::g", "H", "H::i", "H::j", "k"]);
        let named = |path| items.iter().filter(|item| item.is_named(path)).count();
        assert_eq!((named("C::d"), named("d"), named("B::d"), named("x::C::d"), named("e::f")), (1, 1, 0, 0, 1));
    }

    #[test]
    fn functions_have_bodies() {
        let items = items(TEXT).unwrap();
        let function = |path| items.iter().find(|item| item.is_named(path)).unwrap().function.as_ref();
        assert_eq!(&TEXT[function("C::d").unwrap().body.clone()], "{ 2 }");
        assert_eq!(&TEXT[function("C::d").unwrap().constness.clone().unwrap()], "const");
        assert_eq!(&TEXT[function("j").unwrap().body.clone()], "{ 3; }");
        assert!(function("g").unwrap().is_test && !function("f").unwrap().is_test);
        assert!(function("A").is_none() && function("i").is_none());
    }

    #[test]
    fn properties_are_tests() {
        let properties = "proptest! { #![config(1)] /** K */ #[test] fn k(a in 1..3, b in any()) { 4 } }";
        let items = super::items(properties).unwrap();
        assert!(items[0].is_named("k") && items[0].function.as_ref().unwrap().is_test);
        assert_eq!(&properties[items[0].function.as_ref().unwrap().body.clone()], "{ 4 }");
    }
}
