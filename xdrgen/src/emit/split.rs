//! Generation of a folder with a file for each type and each version of a program.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens as _, quote};

use super::{
    EmitError, EmitOptions, file_header, format,
    names::{LetterCase, NameScope},
    opened, parts, program,
    target::codec_block,
    types::{self, Emitted},
};
use crate::ir::{ItemId, ItemKind, Spec};

/// A file of the generated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// The name of the file, relative to the folder.
    pub name: String,
    /// The contents of the file.
    pub text: String,
}

/// Generates the code as the files of a folder, which is a module: `mod.rs`, a file for each type, one for all
/// constants, and one for each version of a program. `mod.rs` re-exports the types and constants, so that they have the
/// same paths as in the output of [`emit`](super::emit).
///
/// # Errors
/// Returns the errors of [`emit`](super::emit).
pub fn emit_split(spec: &Spec, options: &EmitOptions) -> Result<Vec<SplitFile>, EmitError> {
    options.check(spec)?;
    let spec = &*opened(spec, options);
    let (mut layout, versions) = parts::named(spec, options);
    let mut scope = std::mem::take(&mut layout.scope);
    let mut modules: Vec<(Ident, Vec<ItemId>)> = Vec::new();
    let is_constant = |id: &ItemId| matches!(spec.items[id.0].kind, ItemKind::Const(_));
    let (constants, items): (Vec<ItemId>, Vec<ItemId>) = (0..spec.items.len()).map(ItemId).partition(is_constant);
    if !constants.is_empty() {
        modules.push((module_name("constants", &mut scope), constants));
    }
    modules.extend(items.into_iter().map(|id| (module_name(&spec.items[id.0].name.text, &mut scope), vec![id])));
    layout.scope = scope;

    let (mut files, mut index) = (Vec::new(), Vec::new());
    for (name, ids) in modules {
        let Emitted { mut declaration, codec } = types::emit_all(&layout, ids.into_iter(), options);
        declaration.insert(
            0,
            quote!(
                #[allow(unused_imports)]
                use super::*;
            ),
        );
        declaration.push(codec_block(&layout.runtime, codec));
        files.push(file(&name, declaration.into_iter().collect(), options)?);
        index.push(quote!(mod #name; #[allow(unused_imports)] pub use self::#name::*;));
    }
    for version in &versions {
        let tokens = program::lower(&layout, version, None).emit(program::Stubs::of(options));
        let module: syn::ItemMod = syn::parse2(tokens).map_err(EmitError::NotRust)?;
        let (attributes, visibility, name) = (&module.attrs, &module.vis, &module.ident);
        index.push(quote!(#(#attributes)* #visibility mod #name;));
        let contents = module.content.into_iter().flat_map(|(_, items)| items);
        files.push(file(name, contents.map(syn::Item::into_token_stream).collect(), options)?);
    }
    let prelude = layout.scope.imports_prelude().then(|| parts::prelude(options));
    let text = format::space(&format::print(quote!(#prelude #(#index)*))?);
    files.insert(0, SplitFile { name: "mod.rs".to_owned(), text: format!("{}\n{text}", file_header(spec, options)) });
    Ok(files)
}

/// Claims a module name for the type `text`, or for the constants. The name is also suitable for a file: it is not in
/// `SPECIAL`.
fn module_name(text: &str, scope: &mut NameScope) -> Ident {
    /// File names that have a meaning in Rust.
    const SPECIAL: [&str; 3] = ["mod", "lib", "main"];
    let name = scope.claim(text, LetterCase::Snake).ident;
    let is_special = SPECIAL.contains(&name.to_string().trim_start_matches("r#"));
    if is_special { scope.claim(text, LetterCase::Snake).ident } else { name }
}

fn file(name: &Ident, tokens: TokenStream, options: &EmitOptions) -> Result<SplitFile, EmitError> {
    let name = name.to_string();
    let text = format::space(&format::print(tokens)?);
    let generated = file_header(&Spec::default(), options);
    Ok(SplitFile { name: format!("{}.rs", name.trim_start_matches("r#")), text: format!("{generated}\n{text}") })
}
