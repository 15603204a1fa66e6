//! Which attribute may stand where; and what is said of those without effect.

use super::analyzer::Analyzer;
use super::consts::limits;
use crate::ast::{Args, Attr, Name, find};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Doc, IntRange, Scalar, Ty};
use crate::parse::{ATTRIBUTES, Fate};

impl Analyzer<'_> {
    /// Checks the attributes of one declaration. `place` is a letter of [`Fate::At`].
    pub(super) fn check_places(&mut self, attrs: &[Attr], place: char) {
        for (i, attr) in attrs.iter().enumerate() {
            let Some(known) = ATTRIBUTES.iter().find(|a| a.name == attr.name.text) else {
                continue;
            };
            match known.fate {
                Fate::At(places) if places.contains(place) => {}
                Fate::At(places) => self.wrong_place(attr, places, place),
                Fate::Harmless(why) => self.sink.push_once(Diagnostic::note(
                    codes::IGNORED,
                    attr.span,
                    format!("`{}` is accepted without effect: {why}", attr.name.text),
                )),
                Fate::Refused(way_out) => self.error(
                    codes::REFUSED_ATTRIBUTE,
                    attr.span,
                    format!("`{}` does not exist here", attr.name.text),
                    way_out,
                ),
            }
            let first = attrs[..i].iter().find(|a| a.name.text == attr.name.text);
            if let Some(first) = first.filter(|_| !matches!(known.fate, Fate::Harmless(_))) {
                self.sink.push(
                    Diagnostic::error(
                        codes::DUPLICATE_ATTRIBUTE,
                        attr.span,
                        format!("`{}` is given twice", attr.name.text),
                    )
                    .label(first.span, "first here")
                    .help("remove one of them"),
                );
            }
        }
    }

    fn wrong_place(&mut self, attr: &Attr, places: &str, place: char) {
        if self.is_com {
            // COM's compilers take attributes in more places than they mean something at.
            let message = format!(
                "`{}` is accepted without effect before {}",
                attr.name.text,
                place_name(place)
            );
            self.sink.push_once(Diagnostic::note(codes::IGNORED, attr.span, message));
            return;
        }
        let names: Vec<&str> = places.chars().map(place_name).collect();
        let message = format!("`{}` says nothing about {}", attr.name.text, place_name(place));
        let help = format!("it belongs to {}", names.join(", "));
        self.error(codes::ATTRIBUTE_PLACE, attr.span, message, &help);
    }

    /// `range(low, high)` of a declaration of this type.
    pub(super) fn range(&mut self, attrs: &[Attr], ty: &Ty) -> Option<IntRange> {
        let Some(Attr { args: Args::Exprs(args), span, .. }) = find(attrs, "range") else {
            return None;
        };
        let [Some(low), Some(high)] = args.as_slice() else { return None };
        let (low, high) = (self.int_constant(low)?, self.int_constant(high)?);
        let Some(limits) = self.scalar_of(ty).and_then(limits) else {
            self.error(
                codes::RANGE,
                *span,
                "`range` belongs to integers and characters".to_owned(),
                "for the size of an array, put the range on the parameter or field that size_is names",
            );
            return None;
        };
        if low > high || !limits.contains(low) || !limits.contains(high) {
            self.error(
                codes::RANGE,
                *span,
                format!("no value of this type lies between {low} and {high}, or not all do"),
                &format!(
                    "write the smaller bound first, both within {} to {}",
                    limits.low, limits.high
                ),
            );
            return None;
        }
        Some(IntRange { low, high })
    }

    /// Warns of `char *name` without `string` or size.
    pub(super) fn check_text(&mut self, ty: &Ty, is_pointer: bool, name: &Name) {
        let pointee = match ty {
            Ty::Pointer(_, inner) => inner,
            ty if is_pointer => ty,
            _ => return,
        };
        if matches!(pointee, Ty::Scalar(Scalar::Char | Scalar::WChar)) {
            self.sink.push(
                Diagnostic::warning(
                    codes::ONE_CHARACTER,
                    name.span,
                    format!("`{}` points to a single character", name.text),
                )
                .help("for text add `string`, for an array `size_is(n)`; one character is passed by value"),
            );
        }
    }

    /// The documentation comment, or else the text of `helpstring`.
    pub(super) fn doc_with_help(doc: Option<&String>, attrs: &[Attr]) -> Doc {
        let help = || match find(attrs, "helpstring") {
            Some(Attr { args: Args::Strings(texts), .. }) => texts.first().map(|t| t.text.clone()),
            _ => None,
        };
        doc.cloned().or_else(help)
    }
}

fn place_name(place: char) -> &'static str {
    match place {
        'L' => "libraries",
        'I' => "interfaces",
        'T' => "typedefs",
        'O' => "operations",
        'P' => "parameters",
        'F' => "fields",
        'A' => "arms of unions",
        _ => "members of enumerations",
    }
}
