//! What stands in files of COM only: classes, dispatch interfaces, modules, and what the Windows
//! Runtime has added. Not here: attributes (`keys`), and everything that other IDL has too.

use super::cursor::{Bail, Parsed};
use super::items::Scope;
use super::parser::Parser;
use crate::ast::{Attr, ClassInterface, CoClass, DispInterface, Item, Name, Unsendable};
use crate::lex::{Kind, Token, Tokens};

/// Words that begin an item of this kind.
const WORDS: &[&str] = &[
    "apicontract",
    "coclass",
    "declare",
    "delegate",
    "dispinterface",
    "extern",
    "importlib",
    "midl_pragma",
    "module",
    "namespace",
    "runtimeclass",
];

/// COM's own files: whoever imports one of them writes COM IDL.
const FILES: &[&str] = &[
    "basetsd.h",
    "basetsd.idl",
    "guiddef.h",
    "inspectable.idl",
    "oaidl.idl",
    "objidl.idl",
    "objidlbase.idl",
    "ocidl.idl",
    "oleidl.idl",
    "unknwn.idl",
    "wtypes.idl",
];

/// Whether a file is one of COM's: it imports one of COM's own files, has an `object` interface, a
/// `coclass`, a `dispinterface` or a `namespace`, or repeats for the compiler of IDL what C headers
/// declare (`cpp_quote("#if 0")`).
pub(crate) fn is_com(tokens: &Tokens) -> bool {
    let is_text = |t: &Token, texts: &[&str]| match &t.kind {
        Kind::Str(name) => texts.iter().any(|text| text.as_bytes() == name),
        _ => false,
    };
    tokens.list.windows(2).any(|two| {
        let opens = two[0].is("[") || two[0].is(",");
        match two[1].ident() {
            Some("object" | "odl") => opens,
            Some(_) => matches!(two[0].ident(), Some("coclass" | "dispinterface" | "namespace")),
            None if two[0].is("(") => is_text(&two[1], &["#if 0"]),
            None => (two[0].ident() == Some("import") || opens) && is_text(&two[1], FILES),
        }
    })
}

/// Returns true if a file imports any other.
pub(crate) fn imports(tokens: &Tokens) -> bool {
    let is_import =
        |two: &[Token]| two[0].ident() == Some("import") && matches!(two[1].kind, Kind::Str(_));
    tokens.list.windows(2).any(is_import)
}

impl Parser<'_> {
    pub(super) fn begins_com_item(&self) -> bool {
        let word = self.cursor.peek().ident();
        // An operation may answer a type that is called so.
        word.is_some_and(|w| WORDS.contains(&w)) && !self.cursor.peek_at(2).is("(")
            || matches!(word, Some("delegate" | "midl_pragma" | "importlib"))
    }

    pub(super) fn com_item(&mut self, attrs: Vec<Attr>) -> Parsed<Item> {
        let token = self.cursor.peek();
        match token.ident().unwrap_or("") {
            "coclass" => self.class(attrs),
            "dispinterface" => self.dispatch(attrs),
            "namespace" => self.namespace(),
            "runtimeclass" => self.runtime_class(),
            "delegate" => self.delegate(),
            word => {
                self.cursor.advance();
                self.cursor.skip_to(&["{"]);
                let ended = self.block_or_end(word);
                ended.map(|()| Item::Ignored(Name { text: word.to_owned(), span: token.span }))
            }
        }
    }

    /// `{ ... }` or `;`.
    fn block_or_end(&mut self, word: &str) -> Parsed<()> {
        if self.cursor.is("{") {
            self.cursor.skip_balanced();
            self.cursor.eat(";");
            return Ok(());
        }
        if word == "midl_pragma" {
            self.cursor.eat(";");
            return Ok(());
        }
        self.cursor.expect_end(";", &format!("`{word}`"))
    }

    /// `coclass NAME { [attrs] interface IFoo; }`
    fn class(&mut self, attrs: Vec<Attr>) -> Parsed<Item> {
        self.cursor.advance();
        let name = self.cursor.name("the name of the class")?;
        let mut interfaces = Vec::new();
        if self.cursor.eat("{") {
            while !self.cursor.is("}") && !self.cursor.at_end() {
                match self.class_interface() {
                    Ok(interface) => interfaces.push(interface),
                    Err(Bail) => self.cursor.skip_item(),
                }
            }
            self.cursor.expect("}", "the interfaces of the class")?;
        }
        self.cursor.eat(";");
        Ok(Item::CoClass(CoClass { attrs, name, interfaces }))
    }

    fn class_interface(&mut self) -> Parsed<ClassInterface> {
        let attrs = self.attrs();
        if !self.cursor.eat_word("interface") && !self.cursor.eat_word("dispinterface") {
            return Err(self.cursor.unexpected("`interface NAME;` or `dispinterface NAME;`"));
        }
        let name = self.path("the name of an interface")?;
        self.cursor.expect_end(";", "the interface")?;
        Ok(ClassInterface { attrs, name })
    }

    /// `dispinterface NAME;` or one with a block: the names of its members are kept.
    fn dispatch(&mut self, attrs: Vec<Attr>) -> Parsed<Item> {
        self.cursor.advance();
        let name = self.cursor.name("the name of the dispatch interface")?;
        let mut members = None;
        if self.cursor.eat("{") {
            let names: &mut Vec<Name> = members.insert(Vec::new());
            while !self.cursor.is("}") && !self.cursor.at_end() {
                names.extend(self.dispatch_member());
            }
            self.cursor.expect("}", "the members of the dispatch interface")?;
        }
        self.cursor.eat(";");
        Ok(Item::DispInterface(DispInterface { attrs, name, members }))
    }

    /// `properties:`, `methods:`, `[id(1)] T name;`, `[id(2)] T name(...);` or `interface IFoo;`
    fn dispatch_member(&mut self) -> Option<Name> {
        let is_heading = ["properties", "methods"].iter().any(|w| self.cursor.is_word(w));
        if is_heading && self.cursor.peek_at(1).is(":") {
            self.cursor.advance();
            self.cursor.advance();
            return None;
        }
        self.attrs();
        let mut name = None;
        while !self.cursor.at_end() && !self.cursor.is("}") && !self.cursor.is(";") {
            let token = self.cursor.peek();
            let ends = self.cursor.peek_at(1).is("(") || self.cursor.peek_at(1).is(";");
            if let (Some(text), true) = (token.ident(), ends) {
                name = name.or(Some(Name { text: text.to_owned(), span: token.span }));
            }
            self.cursor.skip_balanced();
        }
        self.cursor.eat(";");
        name
    }

    /// `namespace A.B { ... }`
    fn namespace(&mut self) -> Parsed<Item> {
        self.cursor.advance();
        self.path("the name of the namespace")?;
        self.cursor.expect("{", "the name of the namespace")?;
        self.cursor.enter()?;
        let items = self.items(Scope::Namespace);
        self.cursor.leave();
        self.cursor.expect("}", "the contents of the namespace")?;
        self.cursor.eat(";");
        Ok(Item::Namespace(items))
    }

    fn runtime_class(&mut self) -> Parsed<Item> {
        self.cursor.advance();
        let name = self.cursor.name("the name of the class")?;
        self.cursor.skip_to(&["{"]);
        self.block_or_end("runtimeclass")?;
        Ok(Item::Unsendable(name, Unsendable::RuntimeClass))
    }

    /// `delegate HRESULT NAME(...);` or `delegate HRESULT NAME<T>(...);`
    fn delegate(&mut self) -> Parsed<Item> {
        self.cursor.advance();
        self.type_spec()?;
        self.pointers();
        let name = self.cursor.name("the name of the delegate")?;
        self.cursor.skip_to(&[]);
        self.cursor.expect_end(";", "the delegate")?;
        Ok(Item::Unsendable(name, Unsendable::Delegate))
    }

    /// `interface NAME<T> : BASE { ... }` or `interface NAME<T>;`
    pub(super) fn parameterised(&mut self, name: Name) -> Parsed<Item> {
        self.cursor.skip_to(&["{"]);
        self.block_or_end("interface")?;
        Ok(Item::Unsendable(name, Unsendable::Parameterised))
    }

    /// A name behind the namespaces it is in: the last one counts.
    pub(super) fn path(&mut self, what: &str) -> Parsed<Name> {
        let mut name = self.cursor.name(what)?;
        while self.cursor.is(".") && self.cursor.peek_at(1).ident().is_some() {
            self.cursor.advance();
            name = self.cursor.name(what)?;
        }
        Ok(name)
    }

    /// `<T, U<V> *>`: to behind the bracket that closes it.
    pub(super) fn skip_angles(&mut self) {
        let mut depth = 0_usize;
        while !self.cursor.at_end() {
            let token = self.cursor.peek();
            match token.kind {
                Kind::Punct("<") => depth += 1,
                Kind::Punct(">") => depth = depth.saturating_sub(1),
                Kind::Punct(">>") => depth = depth.saturating_sub(2),
                Kind::Punct(";" | "{" | "}") => return,
                _ => {}
            }
            self.cursor.advance();
            if depth == 0 {
                return;
            }
        }
    }
}
