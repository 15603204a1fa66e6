//! Attribute lists: `[in, size_is(n), string]`.

use super::cursor::{Bail, Parsed};
use super::keys::{ATTRIBUTES, Attribute, Form};
use super::parser::Parser;
use crate::ast::{Args, Attr, Expr, Text};
use crate::diag::{Diagnostic, codes, nearest};
use crate::lex::Kind;

impl Parser<'_> {
    /// Zero or more attribute lists. What is wrong inside one is reported and skipped.
    pub(crate) fn attrs(&mut self) -> Vec<Attr> {
        let mut attrs = Vec::new();
        while self.cursor.is("[") {
            self.cursor.advance();
            self.attr_list(&mut attrs);
        }
        attrs
    }

    fn attr_list(&mut self, attrs: &mut Vec<Attr>) {
        // A macro that stands for nothing may leave a comma over.
        while self.is_com && self.cursor.eat(",") {}
        while !self.cursor.eat("]") {
            let read = self.attr();
            let is_read = read.is_ok();
            match read {
                Ok(attr) => attrs.push(attr),
                Err(Bail) => self.cursor.skip_to(&[",", "]"]),
            }
            if self.cursor.eat(",") {
                continue;
            }
            if self.cursor.eat("]") {
                return;
            }
            if is_read {
                self.cursor.unexpected("`,` or `]` after an attribute");
                self.cursor.skip_to(&[",", "]"]);
            }
            if !self.cursor.eat(",") {
                self.cursor.eat("]");
                return;
            }
        }
    }

    fn attr(&mut self) -> Parsed<Attr> {
        // Attributes are words of their own: `default` and `switch` are no reserved words here.
        let token = self.cursor.peek();
        let Some(text) = token.ident() else { return Err(self.cursor.unexpected("an attribute")) };
        self.cursor.advance();
        let name = crate::ast::Name { text: text.to_owned(), span: token.span };
        let Some(known) = ATTRIBUTES.iter().find(|a| a.name == text) else {
            self.unknown_attribute(&name);
            if self.cursor.is("(") {
                self.cursor.skip_balanced();
            }
            return Ok(Attr { span: name.span, name, args: Args::Skipped });
        };
        let args = self.args(*known)?;
        let end = self.cursor.previous().map_or(name.span, |t| t.span);
        Ok(Attr { span: name.span.to(end), name, args })
    }

    fn unknown_attribute(&mut self, name: &crate::ast::Name) {
        let near = nearest(&name.text, ATTRIBUTES.iter().map(|a| a.name));
        let local = crate::acf::is_key(&name.text)
            .then(|| "this is a key of the ACF: it belongs into the .acf file".to_owned());
        let help = local.or_else(|| near.map(|n| format!("did you mean `{n}`?")));
        self.cursor.sink.push(
            Diagnostic::error(
                codes::UNKNOWN_ATTRIBUTE,
                name.span,
                format!("there is no attribute `{}`", name.text),
            )
            .maybe_help(help.or_else(|| {
                Some(
                    "docs/reference/idl-language.md lists all attributes; take this one out"
                        .to_owned(),
                )
            })),
        );
    }

    fn args(&mut self, attribute: Attribute) -> Parsed<Args> {
        if attribute.form == Form::Flag {
            return self.no_args(attribute);
        }
        if attribute.form == Form::Anything {
            if self.cursor.is("(") {
                self.cursor.skip_balanced();
            }
            return Ok(Args::None);
        }
        self.cursor.expect("(", &format!("`{}`", attribute.name))?;
        let args = match attribute.form {
            Form::Sizes => Args::Exprs(self.sizes()?),
            Form::Exprs(n) => self.exactly(attribute.name, n)?,
            Form::Cases => Args::Exprs(self.sizes()?),
            Form::Uuid => Args::Uuid(self.uuid()?),
            Form::Version => Args::Version(self.version()?),
            Form::Type => Args::Type(Box::new(self.type_spec()?)),
            Form::Word => {
                // `iid_is(*p)` where p points to the identifier, which `iid_is(p)` means too.
                self.cursor.eat("*");
                Args::Word(self.cursor.name("a name")?)
            }
            Form::Strings => Args::Strings(self.strings()?),
            Form::Flag | Form::Anything => Args::None,
        };
        self.cursor.expect(")", &format!("the arguments of `{}`", attribute.name))?;
        Ok(args)
    }

    fn no_args(&mut self, attribute: Attribute) -> Parsed<Args> {
        if self.cursor.is("(") {
            let span = self.cursor.peek().span;
            self.cursor.skip_balanced();
            self.cursor.error(
                codes::ATTRIBUTE_ARGUMENTS,
                span,
                format!("`{}` takes no arguments", attribute.name),
                "take the parentheses out",
            );
        }
        Ok(Args::None)
    }

    fn sizes(&mut self) -> Parsed<Vec<Option<Expr>>> {
        let mut list = Vec::new();
        loop {
            let hole = self.cursor.is(",") || self.cursor.is(")");
            list.push(if hole { None } else { Some(self.expr()?) });
            if !self.cursor.eat(",") {
                return Ok(list);
            }
        }
    }

    fn exactly(&mut self, name: &str, count: usize) -> Parsed<Args> {
        let start = self.cursor.peek().span;
        let list = self.sizes()?;
        if list.len() != count || list.iter().any(Option::is_none) {
            let end = self.cursor.previous().map_or(start, |t| t.span);
            self.cursor.error(
                codes::ATTRIBUTE_ARGUMENTS,
                start.to(end),
                format!(
                    "`{name}` takes exactly {count} argument{}",
                    if count == 1 { "" } else { "s" }
                ),
                &format!("sojourn-idl --explain {} shows the forms", codes::ATTRIBUTE_ARGUMENTS),
            );
            return Ok(Args::Skipped);
        }
        Ok(Args::Exprs(list))
    }

    fn uuid(&mut self) -> Parsed<Text> {
        let token = self.cursor.peek();
        let text = match &token.kind {
            Kind::Uuid(text) => text.clone(),
            Kind::Str(text) => String::from_utf8_lossy(text).into_owned(),
            _ => return Err(self.cursor.unexpected("a uuid")),
        };
        self.cursor.advance();
        Ok(Text { text, span: token.span })
    }

    fn version(&mut self) -> Parsed<Text> {
        let token = self.cursor.peek();
        let text = match &token.kind {
            Kind::Int(n) => n.to_string(),
            Kind::Float(_) => self.cursor.raw(token.span).to_owned(),
            _ => return Err(self.cursor.unexpected("a version like 1.0")),
        };
        self.cursor.advance();
        Ok(Text { text, span: token.span })
    }

    pub(crate) fn strings(&mut self) -> Parsed<Vec<Text>> {
        let mut list = vec![self.text("a string")?];
        while self.cursor.eat(",") {
            list.push(self.text("a string")?);
        }
        Ok(list)
    }

    /// One string; adjacent ones are joined.
    pub(crate) fn text(&mut self, what: &str) -> Parsed<Text> {
        let first = self.cursor.peek();
        let mut text = String::new();
        let mut span = first.span;
        let mut any = false;
        while let Kind::Str(part) = &self.cursor.peek().kind {
            text.push_str(&String::from_utf8_lossy(part));
            span = span.to(self.cursor.advance().span);
            any = true;
        }
        if any { Ok(Text { text, span }) } else { Err(self.cursor.unexpected(what)) }
    }
}
