//! The ACF parser.

use super::tree::{Arg, ArgKind, File, Interface, Item, Key, Keyed};
use crate::ast::{Name, Text};
use crate::diag::Sink;
use crate::lex::{Kind, Tokens};
use crate::parse::{Bail, Cursor, Parsed};

/// Reads one ACF.
pub(super) fn parse(tokens: &Tokens, text: &str, sink: &mut Sink) -> File {
    let mut parser = Parser { cursor: Cursor::new(tokens, text, sink), file: File::default() };
    parser.file();
    parser.file
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    file: File,
}

impl Parser<'_> {
    fn file(&mut self) {
        while !self.cursor.at_end() && !self.cursor.sink.is_full() {
            let before = self.cursor.position();
            if self.cursor.eat(";") {
                continue;
            }
            let read =
                if self.cursor.is_word("include") { self.include() } else { self.interface() };
            if read.is_err() {
                self.cursor.skip_item();
            }
            if self.cursor.position() == before {
                self.cursor.skip_balanced();
            }
        }
    }

    /// `include "a.h", "b.h";`
    fn include(&mut self) -> Parsed<()> {
        self.cursor.advance();
        loop {
            let token = self.cursor.peek();
            let Kind::Str(text) = &token.kind else {
                return Err(self.cursor.unexpected("the name of a header file, as a string"));
            };
            let text = String::from_utf8_lossy(text).into_owned();
            self.file.includes.push(Text { text, span: token.span });
            self.cursor.advance();
            if !self.cursor.eat(",") {
                return self.cursor.expect_end(";", "the names of header files");
            }
        }
    }

    fn interface(&mut self) -> Parsed<()> {
        let keys = self.keys();
        if !self.cursor.eat_word("interface") {
            return Err(self.cursor.unexpected("`interface NAME { ... }`"));
        }
        let name = self.cursor.name("the name of an interface")?;
        self.cursor.expect("{", "the name of the interface")?;
        let mut items = Vec::new();
        while !self.cursor.is("}") && !self.cursor.at_end() && !self.cursor.sink.is_full() {
            let before = self.cursor.position();
            if self.cursor.eat(";") {
                continue;
            }
            match self.item() {
                Ok(item) => items.extend(item),
                Err(Bail) => self.cursor.skip_item(),
            }
            if self.cursor.position() == before {
                self.cursor.skip_balanced();
            }
        }
        let closed = self.cursor.expect("}", "the settings of the interface").map(|_| ());
        self.cursor.eat(";");
        self.file.interfaces.push(Interface { keys, name, items });
        closed
    }

    fn item(&mut self) -> Parsed<Option<Item>> {
        if self.cursor.is_word("include") {
            return self.include().map(|()| None);
        }
        if self.cursor.eat_word("typedef") {
            let keys = self.keys();
            let mut names = vec![self.cursor.name("the name of a type")?];
            while self.cursor.eat(",") {
                names.push(self.cursor.name("the name of a type")?);
            }
            self.cursor.expect_end(";", "the names of types")?;
            return Ok(Some(Item::Typedef(keys, names)));
        }
        let keys = self.keys();
        let name = self.cursor.name("the name of an operation")?;
        let params = if self.cursor.eat("(") { self.params()? } else { Vec::new() };
        self.cursor.expect_end(";", "the operation")?;
        Ok(Some(Item::Operation(Keyed { keys, name }, params)))
    }

    fn params(&mut self) -> Parsed<Vec<Keyed>> {
        let mut params = Vec::new();
        while !self.cursor.eat(")") {
            let keys = self.keys();
            params.push(Keyed { keys, name: self.cursor.name("the name of a parameter")? });
            if !self.cursor.eat(",") {
                self.cursor.expect(")", "the parameters")?;
                break;
            }
        }
        Ok(params)
    }

    fn keys(&mut self) -> Vec<Key> {
        let mut keys = Vec::new();
        while self.cursor.eat("[") {
            loop {
                if self.cursor.eat("]") {
                    break;
                }
                match self.key() {
                    Ok(key) => keys.push(key),
                    Err(Bail) => self.cursor.skip_to(&[",", "]"]),
                }
                if self.cursor.eat(",") {
                    continue;
                }
                if !self.cursor.eat("]") {
                    self.cursor.unexpected("`,` or `]` after a key");
                    self.cursor.skip_to(&["]"]);
                    self.cursor.eat("]");
                }
                break;
            }
        }
        keys
    }

    fn key(&mut self) -> Parsed<Key> {
        let token = self.cursor.peek();
        let Some(text) = token.ident() else { return Err(self.cursor.unexpected("a key")) };
        let name = Name { text: text.to_owned(), span: token.span };
        self.cursor.advance();
        let args = if self.cursor.eat("(") { self.args()? } else { Vec::new() };
        let end = self.cursor.previous().map_or(name.span, |t| t.span);
        Ok(Key { span: name.span.to(end), name, args })
    }

    fn args(&mut self) -> Parsed<Vec<Arg>> {
        self.cursor.enter()?;
        let args = self.args_here();
        self.cursor.leave();
        args
    }

    fn args_here(&mut self) -> Parsed<Vec<Arg>> {
        let mut args = Vec::new();
        while !self.cursor.eat(")") {
            args.push(self.arg()?);
            if !self.cursor.eat(",") {
                self.cursor.expect(")", "the arguments")?;
                break;
            }
        }
        Ok(args)
    }

    fn arg(&mut self) -> Parsed<Arg> {
        let token = self.cursor.peek();
        let kind = match &token.kind {
            Kind::Int(n) => ArgKind::Number(*n),
            Kind::Str(text) => ArgKind::Text(String::from_utf8_lossy(text).into_owned()),
            Kind::Ident(_) => return self.path(),
            _ => return Err(self.cursor.unexpected("a number, a name or a string")),
        };
        self.cursor.advance();
        Ok(Arg { kind, span: token.span })
    }

    /// `a::b::c` or `a(...)`.
    fn path(&mut self) -> Parsed<Arg> {
        let start = self.cursor.peek().span;
        let mut path = String::new();
        loop {
            let token = self.cursor.peek();
            let Some(word) = token.ident() else { return Err(self.cursor.unexpected("a name")) };
            path.push_str(word);
            self.cursor.advance();
            if !self.cursor.eat("::") {
                break;
            }
            path.push_str("::");
        }
        let kind = if self.cursor.eat("(") {
            ArgKind::Call(path, self.args()?)
        } else {
            ArgKind::Path(path)
        };
        let end = self.cursor.previous().map_or(start, |t| t.span);
        Ok(Arg { kind, span: start.to(end) })
    }
}
