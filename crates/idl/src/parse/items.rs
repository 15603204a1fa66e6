//! What stands in a file: imports, libraries, interfaces, types, constants, operations.

use super::cursor::{Bail, Parsed};
use super::parser::Parser;
use crate::ast::{
    Attr, Const, Declarator, Interface, Item, Library, Name, Operation, TypeKind, Typedef,
    Unsendable, find,
};
use crate::diag::codes;
use crate::ir::Doc;

/// Where items stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    File,
    Library,
    Namespace,
    Interface,
}

impl Parser<'_> {
    /// Items up to the `}` of the enclosing block, or to the end of the file.
    pub(super) fn items(&mut self, place: Scope) -> Vec<Item> {
        let mut items = Vec::new();
        while !self.cursor.at_end() && !self.cursor.sink.is_full() {
            if self.cursor.is("}") {
                if place != Scope::File {
                    return items;
                }
                self.cursor.unexpected("a declaration");
                self.cursor.advance();
                continue;
            }
            if self.cursor.eat(";") {
                continue;
            }
            let before = self.cursor.position();
            match self.item(place) {
                Ok(item) => items.push(item),
                Err(Bail) => self.cursor.skip_item(),
            }
            if self.cursor.position() == before {
                self.cursor.skip_balanced();
            }
        }
        items
    }

    fn item(&mut self, place: Scope) -> Parsed<Item> {
        let doc = self.cursor.peek().doc.clone();
        let attrs = self.attrs();
        let doc = doc.or_else(|| self.cursor.peek().doc.clone());
        let Some(word) = self.cursor.peek().ident() else {
            return Err(self.cursor.unexpected("a declaration"));
        };
        match word {
            "import" => self.import(&attrs),
            "cpp_quote" => self.cpp_quote(&attrs),
            "typedef" => self.typedef(doc, attrs),
            "const" => self.constant_or_operation(place, doc, attrs),
            "library" if place == Scope::File => self.library(doc, attrs),
            "interface" if place != Scope::Interface || self.announces() => {
                self.interface(doc, attrs)
            }
            _ if self.begins_com_item() => self.com_item(attrs),
            "struct" | "union" | "enum" if self.is_declaration() => self.declaration(&attrs),
            _ if place == Scope::Interface => self.operation(doc, attrs),
            _ if self.is_com && self.cursor.peek_at(1).ident().is_some() => {
                self.function(doc, attrs)
            }
            _ => Err(self.stray(word)),
        }
    }

    fn stray(&mut self, word: &str) -> Bail {
        let looks_like_operation = self.cursor.peek_at(1).ident().is_some();
        let token = self.cursor.peek();
        let help = if looks_like_operation {
            "operations stand inside `interface NAME { ... }`"
        } else {
            "here stand import, typedef, const, struct, union, enum, interface, library, cpp_quote"
        };
        let near = crate::diag::nearest(
            word,
            ["import", "typedef", "const", "struct", "union", "enum", "interface", "library"],
        );
        let help = near.map_or(help.to_owned(), |n| format!("did you mean `{n}`?"));
        self.cursor.error(
            codes::UNEXPECTED_TOKEN,
            token.span,
            format!("`{word}` begins no declaration"),
            &help,
        );
        Bail
    }

    /// Attributes before something that has none.
    fn no_attrs(&mut self, attrs: &[Attr], what: &str) {
        if let Some(attr) = attrs.first() {
            self.cursor.error(
                codes::ATTRIBUTE_PLACE,
                attr.span,
                format!("{what} has no attributes"),
                "take the attribute list out",
            );
        }
    }

    fn import(&mut self, attrs: &[Attr]) -> Parsed<Item> {
        self.no_attrs(attrs, "`import`");
        self.cursor.advance();
        let files = self.strings()?;
        self.cursor.expect_end(";", "the names of the files")?;
        Ok(Item::Import(files))
    }

    fn cpp_quote(&mut self, attrs: &[Attr]) -> Parsed<Item> {
        self.no_attrs(attrs, "`cpp_quote`");
        self.cursor.advance();
        self.cursor.expect("(", "`cpp_quote`")?;
        let text = self.text("the text for the C header, as a string")?;
        self.cursor.expect(")", "the string")?;
        self.cursor.eat(";");
        Ok(Item::CppQuote(text))
    }

    fn library(&mut self, doc: Doc, attrs: Vec<Attr>) -> Parsed<Item> {
        self.cursor.advance();
        let name = self.cursor.name("the name of the library")?;
        self.cursor.expect("{", "the name of the library")?;
        let items = self.items(Scope::Library);
        self.cursor.expect("}", "the contents of the library")?;
        self.cursor.eat(";");
        Ok(Item::Library(Library { doc, attrs, name, items }))
    }

    fn interface(&mut self, doc: Doc, attrs: Vec<Attr>) -> Parsed<Item> {
        self.cursor.advance();
        let name = self.cursor.name("the name of the interface")?;
        if self.cursor.is("<") {
            return self.parameterised(name);
        }
        if self.cursor.eat(";") {
            if !self.is_com {
                self.no_attrs(&attrs, "a forward declaration");
            }
            return Ok(Item::Forward(name));
        }
        let base = if self.cursor.eat(":") {
            Some(self.path("the name of the base interface")?)
        } else {
            None
        };
        if self.cursor.is(",") {
            let span = self.cursor.peek().span;
            self.cursor.error(
                codes::MANY_BASES,
                span,
                "an interface has one base".to_owned(),
                "make one of them the base of the other, or let the server serve both on one endpoint",
            );
            self.cursor.skip_to(&["{"]);
        }
        if self.cursor.is_word("requires") {
            self.cursor.skip_to(&["{"]);
        }
        self.cursor.expect("{", "the name of the interface")?;
        let items = self.items(Scope::Interface);
        self.cursor.expect("}", "the operations of the interface")?;
        self.cursor.eat(";");
        Ok(Item::Interface(Interface { doc, attrs, name, base, items }))
    }

    fn typedef(&mut self, doc: Doc, before: Vec<Attr>) -> Parsed<Item> {
        self.cursor.advance();
        let mut attrs = before;
        attrs.extend(self.attrs());
        let opaque = find(&attrs, "opaque").is_some();
        let ty = if opaque { None } else { Some(self.type_spec()?) };
        let mut declarators = Vec::new();
        loop {
            declarators.push(self.declarator("the name of the new type")?);
            if !self.cursor.eat(",") {
                break;
            }
        }
        self.cursor.expect_end(";", "the typedef")?;
        let doc = doc.or_else(|| self.doc_behind());
        Ok(Item::Typedef(Typedef { doc, attrs, ty, declarators }))
    }

    /// `const long X = 1;`, or an operation whose result is written `const char *`.
    fn constant_or_operation(&mut self, place: Scope, doc: Doc, attrs: Vec<Attr>) -> Parsed<Item> {
        let ty = self.type_spec()?;
        let levels = self.pointers();
        let name = self.cursor.name("the name of the constant")?;
        let declarator = Declarator { name, levels };
        if place == Scope::Interface && self.cursor.is("(") {
            return self.operation_rest(doc, attrs, ty, declarator);
        }
        self.no_attrs(&attrs, "a constant");
        self.cursor.expect("=", "the name of the constant")?;
        let value = self.expr()?;
        self.cursor.expect_end(";", "the constant")?;
        let doc = doc.or_else(|| self.doc_behind());
        Ok(Item::Const(Const { doc, ty, declarator, value }))
    }

    /// `struct s { ... };` or `struct s;` rather than an operation that answers a `struct s`.
    fn is_declaration(&self) -> bool {
        let (one, two) = (self.cursor.peek_at(1), self.cursor.peek_at(2));
        one.is("{")
            || two.is("{")
            || two.is(";")
            || one.ident() == Some("switch")
            || two.ident() == Some("switch")
    }

    fn declaration(&mut self, attrs: &[Attr]) -> Parsed<Item> {
        let unions_too = attrs.iter().find(|a| a.name.text != "v1_enum" && !self.is_com);
        let switch_type = find(attrs, "switch_type").is_some();
        if let Some(attr) = unions_too.filter(|_| !switch_type) {
            self.no_attrs(std::slice::from_ref(attr), "a type without `typedef`");
        }
        let first = self.cursor.peek().doc.clone();
        let ty = self.type_spec()?;
        if switch_type {
            return self.tagged_union(first, attrs, ty);
        }
        self.cursor.expect_end(";", "the type")?;
        Ok(Item::Declare(ty))
    }

    /// `[switch_type(T)] union u { ... };` is `typedef [switch_type(T)] union u { ... } u;`.
    fn tagged_union(&mut self, doc: Doc, attrs: &[Attr], ty: crate::ast::TypeSpec) -> Parsed<Item> {
        let name = match &ty.kind {
            TypeKind::Union(u) => u.tag.clone(),
            _ => None,
        };
        let Some(name) = name else { return Err(self.cursor.unexpected("a union with a name")) };
        self.cursor.expect_end(";", "the type")?;
        let declarators = vec![Declarator { name, levels: Vec::new() }];
        Ok(Item::Typedef(Typedef { doc, attrs: attrs.to_vec(), ty: Some(ty), declarators }))
    }

    fn operation(&mut self, doc: Doc, attrs: Vec<Attr>) -> Parsed<Item> {
        let ty = self.type_spec()?;
        let levels = self.pointers();
        let name = self.cursor.name("the name of an operation")?;
        if let (TypeKind::Named(word), true) = (&ty.kind, self.cursor.is("{")) {
            return Err(self.stray_block(word));
        }
        self.operation_rest(doc, attrs, ty, Declarator { name, levels })
    }

    /// `strct s { ... }`
    fn stray_block(&mut self, word: &Name) -> Bail {
        let near = crate::diag::nearest(&word.text, ["struct", "union", "enum", "interface"]);
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "struct, union and enum are followed by a block".to_owned(),
        };
        let message = format!("`{}` begins no declaration", word.text);
        self.cursor.error(codes::UNEXPECTED_TOKEN, word.span, message, &help);
        Bail
    }

    fn operation_rest(
        &mut self,
        doc: Doc,
        attrs: Vec<Attr>,
        ty: crate::ast::TypeSpec,
        declarator: Declarator,
    ) -> Parsed<Item> {
        let params = self.params()?;
        self.cursor.expect_end(";", "the operation")?;
        let doc = doc.or_else(|| self.doc_behind());
        let name = declarator.name.clone();
        Ok(Item::Operation(Operation { doc, attrs, ty, declarator, name, params }))
    }

    /// `interface IFoo;` inside another interface.
    fn announces(&self) -> bool {
        self.cursor.peek_at(2).is(";")
    }

    /// A function of a C library, in a file of COM.
    fn function(&mut self, doc: Doc, attrs: Vec<Attr>) -> Parsed<Item> {
        match self.operation(doc, attrs)? {
            Item::Operation(op) => Ok(Item::Unsendable(op.name, Unsendable::Function)),
            other => Ok(other),
        }
    }
}
