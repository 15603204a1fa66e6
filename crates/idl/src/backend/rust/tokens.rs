//! Generated code as tokens: numbers, names, and looks at what a piece of code mentions.
//!
//! The other files write code as templates (`quote!`), with holes for what these functions make.
//! Not here: types and values of the model (`model`).

use proc_macro2::{Delimiter, Ident, Literal, Span, TokenStream, TokenTree};
use quote::quote;

/// A piece of generated code: a type, an expression, statements, items.
pub(super) type Code = TokenStream;

/// An identifier; `r#` makes it raw.
pub(super) fn ident(name: &str) -> Ident {
    match name.strip_prefix("r#") {
        Some(bare) => Ident::new_raw(bare, Span::call_site()),
        None => Ident::new(name, Span::call_site()),
    }
}

/// A name without the mark of raw identifiers.
pub(super) fn bare(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// A number whose type follows from where it stands.
pub(super) fn num(n: impl Into<i128>) -> Code {
    let n = n.into();
    let digits = Literal::u128_unsuffixed(n.unsigned_abs());
    if n < 0 { quote!(-#digits) } else { quote!(#digits) }
}

/// A number with its type: `7_i128`.
pub(super) fn num_of(n: impl Into<i128>, ty: &str) -> Code {
    code(&format!("{}_{ty}", n.into()))
}

/// Code given as text by a configuration: paths and types. Text that is no Rust at all becomes an
/// error of the compiler that shows the text.
pub(super) fn code(text: &str) -> Code {
    text.parse().unwrap_or_else(|_| quote!(compile_error!(#text)))
}

/// Documentation, line by line.
pub(super) fn docs(text: &str) -> Code {
    text.lines()
        .map(|line| if line.is_empty() { String::new() } else { format!(" {}", line.trim()) })
        .map(|line| quote!(#[doc = #line]))
        .collect()
}

/// Returns true if the code mentions the identifier `name`.
pub(super) fn mentions(code: &Code, name: &str) -> bool {
    code.clone().into_iter().any(|tree| match tree {
        TokenTree::Group(group) => mentions(&group.stream(), name),
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Returns true if the code uses the variable `name`. The last part of a path, a field and a method
/// may have the same name and do not count: `i128::from`, `value.from`.
pub(super) fn uses(code: &Code, name: &str) -> bool {
    let mut before = [None, None];
    code.clone().into_iter().any(|tree| {
        let is_part = matches!(before, [Some(':'), Some(':')])
            || matches!(before, [first, Some('.')] if first != Some('.'));
        let sign = match &tree {
            TokenTree::Punct(punct) => Some(punct.as_char()),
            _ => None,
        };
        before = [before[1], sign];
        match tree {
            TokenTree::Group(group) => uses(&group.stream(), name),
            TokenTree::Ident(ident) => ident == name && !is_part,
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        }
    })
}

/// Returns true if the code calls the method `name`.
pub(super) fn calls(code: &Code, name: &str) -> bool {
    let trees: Vec<TokenTree> = code.clone().into_iter().collect();
    let is_call = trees.windows(3).any(|three| {
        matches!(three, [TokenTree::Punct(dot), TokenTree::Ident(method), TokenTree::Group(args)]
            if dot.as_char() == '.' && method == name && args.delimiter() == Delimiter::Parenthesis)
    });
    is_call || trees.iter().any(|t| matches!(t, TokenTree::Group(g) if calls(&g.stream(), name)))
}

/// Returns true if the code names the lifetime `'name`.
pub(super) fn has_lifetime(code: &Code, name: &str) -> bool {
    let trees: Vec<TokenTree> = code.clone().into_iter().collect();
    let is_named = trees.windows(2).any(|two| {
        matches!(two, [TokenTree::Punct(quote), TokenTree::Ident(life)]
            if quote.as_char() == '\'' && life == name)
    });
    let inside =
        |t: &TokenTree| matches!(t, TokenTree::Group(g) if has_lifetime(&g.stream(), name));
    is_named || trees.iter().any(inside)
}

/// `name`, or `_` if the code does not use it.
pub(super) fn used(code: &Code, name: &str) -> Ident {
    ident(if uses(code, name) { name } else { "_" })
}

/// A parameter of a generated function.
#[derive(Clone, Debug)]
pub(super) struct Param {
    pub(super) name: Ident,
    pub(super) ty: Code,
}

/// The parameters as a list; those that `body` does not use are marked: `name: T` → `_name: T`.
pub(super) fn unused_params(params: &[Param], body: &Code) -> Code {
    params
        .iter()
        .map(|Param { name, ty }| {
            let text = name.to_string();
            let is_used = uses(body, &text);
            let shown = if is_used { name.clone() } else { ident(&format!("_{}", bare(&text))) };
            quote!(#shown: #ty,)
        })
        .collect()
}

/// `&v_.field` as a place to call methods on.
pub(super) fn unref(value: &Code) -> Code {
    let mut trees = value.clone().into_iter().peekable();
    trees.next_if(|first| is_punct(first, '&'));
    trees.collect()
}

/// Returns true if the code begins with this sign.
pub(super) fn begins_with(code: &Code, sign: char) -> bool {
    code.clone().into_iter().next().is_some_and(|first| is_punct(&first, sign))
}

/// A value as what a closure answers.
pub(super) fn as_result(value: Code) -> Code {
    let mut trees: Vec<TokenTree> = value.into_iter().collect();
    if trees.pop_if(|last| is_punct(last, '?')).is_some() {
        return trees.into_iter().collect();
    }
    let value: Code = trees.into_iter().collect();
    quote!(Ok(#value))
}

/// What draws `value`, as a function of the stream `r_`: the function itself where the value is no
/// more than its call.
pub(super) fn drawing(value: Code) -> Code {
    let mut trees: Vec<TokenTree> = value.clone().into_iter().collect();
    let is_stream = |last: &mut TokenTree| {
        matches!(last, TokenTree::Group(g) if g.delimiter() == Delimiter::Parenthesis
            && is_same(&g.stream(), &quote!(r_)))
    };
    let is_path = |tree: &TokenTree| matches!(tree, TokenTree::Ident(_)) || is_punct(tree, ':');
    if trees.pop_if(is_stream).is_some() && trees.iter().all(is_path) {
        return trees.into_iter().collect();
    }
    let r = used(&value, "r_");
    quote!(|#r| #value)
}

/// Returns true if two pieces of code are the same.
pub(super) fn is_same(one: &Code, other: &Code) -> bool {
    one.to_string() == other.to_string()
}

fn is_punct(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_whole_words() {
        assert!(mentions(&quote!(get(d_, v_)), "d_"));
        assert!(!mentions(&quote!(and_then), "d_"));
        assert_eq!(used(&quote!(b_.put()), "b_"), "b_");
        assert_eq!(used(&quote!(), "b_"), "_");
        let same = [quote!(i128::from(a)), quote!(a.from), quote!(a.b.from(a)), quote!(T::from::b)];
        assert!(same.iter().all(|code| !uses(code, "from")));
        let variables = [quote!(0..from), quote!(f(&from)), quote!(A { a: from }), quote!(from.a)];
        assert!(variables.iter().all(|code| uses(code, "from")));
        let params = [
            Param { name: ident("a"), ty: quote!(i32) },
            Param { name: ident("r#type"), ty: quote!(u8) },
        ];
        assert!(is_same(&unused_params(&params, &quote!(a + 1)), &quote!(a: i32, _type: u8,)));
    }

    #[test]
    fn pieces_are_looked_at_as_a_reader_would() {
        assert!(calls(
            &quote!(if x {
                token.fault(1)
            }),
            "fault"
        ));
        assert!(!calls(&quote!(f(args.fault, (1))), "fault"));
        assert!(has_lifetime(&quote!(Option<Cow<'m, [u8]>>), "m"));
        assert!(!has_lifetime(&quote!(m), "m"));
        assert!(is_same(&as_result(quote!(d_.get()?)), &quote!(d_.get())));
        assert!(is_same(&as_result(quote!(7)), &quote!(Ok(7))));
        assert!(is_same(&drawing(quote!(random_a(r_))), &quote!(random_a)));
        assert!(is_same(&drawing(quote!(A(1))), &quote!(|_| A(1))));
        assert!(is_same(&unref(&quote!(&v_.a)), &quote!(v_.a)));
        assert!(is_same(&num(-5_i128), &quote!(-5)));
        assert!(is_same(&num_of(5_i128, "i128"), &quote!(5_i128)));
    }
}
