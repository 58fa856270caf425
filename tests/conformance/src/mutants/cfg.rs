//! Conditional compilation of source code.

use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token, punctuated::Punctuated};

/// Returns `true` if the conditions among `attributes` keep the code in a library with these features. Code for tests
/// is left out.
pub fn is_compiled(attributes: &[Attribute], features: &[&str]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .all(|attribute| attribute.parse_args::<Meta>().is_ok_and(|condition| holds(&condition, features)))
}

fn holds(condition: &Meta, features: &[&str]) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("unix"),
        Meta::NameValue(pair) => {
            let Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) = &pair.value else { return false };
            let value = value.value();
            match () {
                () if pair.path.is_ident("feature") => features.contains(&value.as_str()),
                () if pair.path.is_ident("target_os") => value == std::env::consts::OS,
                () if pair.path.is_ident("target_arch") => value == std::env::consts::ARCH,
                () => false,
            }
        }
        Meta::List(list) => {
            let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else { return false };
            let mut parts = parts.iter().map(|part| holds(part, features));
            match () {
                () if list.path.is_ident("not") => !parts.all(|part| part),
                () if list.path.is_ident("any") => parts.any(|part| part),
                () => parts.all(|part| part),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_select_code() {
        let is_compiled = |condition: &str| {
            let item: syn::ItemFn = syn::parse_str(&format!("{condition} fn a() {{}}")).unwrap();
            is_compiled(&item.attrs, &["tls"])
        };
        for condition in [
            "#[cfg(feature = \"tls\")]",
            "#[cfg(not(test))]",
            "#[cfg(any(test, feature = \"tls\"))]",
            "#[cfg(all(unix, not(fuzzing)))]",
            "#[inline] #[cfg(unix)]",
            "",
        ] {
            assert!(is_compiled(condition), "{condition}");
        }
        for condition in [
            "#[cfg(test)]",
            "#[cfg(feature = \"gss\")]",
            "#[cfg(not(feature = \"tls\"))]",
            "#[cfg(all(test, feature = \"tls\"))]",
            "#[cfg(any(fuzzing, test))]",
            "#[cfg(unix)] #[cfg(test)]",
        ] {
            assert!(!is_compiled(condition), "{condition}");
        }
    }
}
