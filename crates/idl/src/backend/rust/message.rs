//! The wire functions of an operation: measure, write and read its request and its reply.
//!
//! They know neither client nor server nor transport; benchmarks and tests call them directly.

use crate::ir::{Allocate, Ty};
use crate::layout::{self, BlockLayout};
use quote::quote;

use super::codec::{are_zero, zeroes};
use super::decode::Keep;
use super::encode::Env;
use super::model::{Gen, Shape};
use super::op::Op;
use super::siblings::{Buffer, Sibling};
use super::tokens::{Code, Param, bare, code, docs, has_lifetime, ident, num, unused_params, used};

/// One direction of an operation, ready to be written.
struct Direction {
    /// `request` or `reply`.
    what: &'static str,
    size: u64,
    measure: Code,
    place: Code,
    follow: Code,
    /// The values, without those that only measuring needs, as writing takes them: for `'d`.
    params: Vec<Param>,
    /// The same as measuring takes them.
    measured: Vec<Param>,
}

impl<'a> Gen<'a> {
    /// The wire functions of an operation.
    pub(super) fn messages(&self, op: &Op<'a>) -> Code {
        let fields = self.request_fields(op);
        let mut out = request_struct(op, &fields);
        out.extend(writers(op, &self.request_direction(op)));
        out.extend(self.request_reader(op, has_lifetime(&fields, "m")));
        if !op.op.oneway {
            out.extend(self.reply_struct(op));
            out.extend(writers(op, &self.reply_direction(op)));
            out.extend(self.reply_reader(op));
        }
        out
    }

    fn request_fields(&self, op: &Op<'a>) -> Code {
        let there = op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none());
        there.map(|s| field(&s.name, &self.stored(s, op.deferred))).collect()
    }

    fn reply_struct(&self, op: &Op<'a>) -> Code {
        let outs = op.outs(true);
        let fields = outs.iter().map(|o| field(o.name, &self.owned_param(o.ty)));
        let text = docs(&format!("What a reply of `{}` carries.", op.op.name));
        let name = op.type_of("Reply");
        quote!(#text #[derive(Debug)] pub struct #name { #(#fields)* })
    }

    fn request_direction(&self, op: &Op<'a>) -> Direction {
        let layout = layout::request_layout(self.module, op.op);
        let texts = texts(op, |s| s.is_in());
        let values = self.values(&op.wire_list, &texts);
        let mut d = Direction::new("request", &layout);
        self.params(&mut d, op, &layout, &texts, &values);
        d
    }

    fn reply_direction(&self, op: &Op<'a>) -> Direction {
        let layout = layout::reply_layout(self.module, op.op);
        let texts = texts(op, |s| s.is_out());
        let values = self.reply_values(op, &texts);
        let mut d = Direction::new("reply", &layout);
        for arg in op.sibling_args(self) {
            let param = Param { name: arg, ty: quote!(i128) };
            d.param(param.clone(), param);
        }
        if let (Some(slot), Some(ty)) = (&layout.result, &op.op.result) {
            let env = Env { values: values.clone(), threshold: op.threshold(None) };
            self.value(&mut d, ty, "ret", slot.offset, &env);
        }
        self.params(&mut d, op, &layout, &texts, &values);
        d
    }

    /// The parameters of the functions that measure and write a reply.
    pub(super) fn reply_params(&self, op: &Op<'a>) -> Vec<Param> {
        self.reply_direction(op).measured
    }

    /// Everything that travels but the result.
    fn params(
        &self,
        d: &mut Direction,
        op: &Op<'a>,
        layout: &BlockLayout,
        texts: &[Option<Code>],
        values: &[Option<Code>],
    ) {
        for (index, s) in op.wire_list.iter().enumerate() {
            let Some(slot) = &layout.params[index] else { continue };
            if s.folded.is_some() {
                d.measure.extend(self.measure_folded(s, texts));
                d.place.extend(self.place_folded(s, slot.offset, texts));
                continue;
            }
            let env =
                Env { values: values.to_vec(), threshold: op.threshold(op.op.params.get(index)) };
            let name = s.ident();
            d.measure.extend(self.measure_range(s.ty, s.range, &quote!(#name)));
            self.value(d, s.ty, &s.name, slot.offset, &env);
        }
    }

    /// A value with its name and its place.
    fn value(&self, d: &mut Direction, ty: &Ty, name: &str, at: u64, env: &Env) {
        let (shape, name) = (self.shape(ty), ident(name));
        let text = quote!(#name);
        let lent = self.borrowed(shape, &quote!('d));
        let measured = Param { name: name.clone(), ty: self.borrowed(shape, &Code::new()) };
        d.param(Param { name, ty: lent }, measured);
        d.measure.extend(self.measure(shape, &text, env));
        d.place.extend(self.place(shape, at, &text, env));
        d.follow.extend(self.follow(shape, &text, env));
    }

    fn request_reader(&self, op: &Op<'a>, borrows: bool) -> Code {
        let layout = layout::request_layout(self.module, op.op);
        let one = |s: &Sibling<'_>, at: u64, env: &Env| match self.provider(s) {
            Some(provider) => self.get_provided(s, at, &provider, env),
            None => {
                let borrows = !op.deferred && !s.is_out() || self.is_fd(s.ty);
                let keep = if borrows { Keep::Borrow } else { Keep::Own };
                self.get_one(s, at, keep, env)
            }
        };
        let open = self.open(op, &layout);
        let get = self.get_list(&op.wire_list, &offsets(&layout), &[], &one);
        let there = op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none());
        let fields = there.map(Sibling::ident);
        let (life, decoder) =
            if borrows { (quote!(<'m>), quote!('m)) } else { (Code::new(), quote!('_)) };
        let text = docs(&format!("Reads a request of `{}`.", op.op.name));
        let (function, name) = (op.function("get", "_request"), op.type_of("Request"));
        let mutable = mutable(&layout);
        quote! {
            #text
            ///
            /// # Errors
            /// What breaks the rules.
            #[inline]
            pub fn #function #life(
                #mutable decoder_: rt::Decoder<#decoder>
            ) -> Result<#name #life, rt::DecodeError> {
                #open
                #get
                decoder_.finish()?;
                Ok(#name { #(#fields),* })
            }
        }
    }

    fn reply_reader(&self, op: &Op<'a>) -> Code {
        let layout = layout::reply_layout(self.module, op.op);
        let open = self.open(op, &layout);
        let result = layout.result.as_ref().zip(op.op.result.as_ref()).map(|(slot, ty)| {
            let env = Env::reading(self.reply_known(op));
            let get = self.get(self.shape(ty), slot.offset, self.kept(ty), &env);
            quote!(let ret = #get;)
        });
        let one = |s: &Sibling<'_>, at: u64, env: &Env| match (s.buffer, self.provider(s)) {
            (Some(buffer), _) => self.get_into(s, at, buffer, env),
            (None, Some(provider)) => self.get_provided(s, at, &provider, env),
            (None, None) => self.get_one(s, at, self.kept(s.ty), env),
        };
        let get = self.get_list(&op.wire_list, &offsets(&layout), &self.reply_known(op), &one);
        let body = quote!(#open #result #get decoder_.finish()?;);
        let args = op.sibling_args(self).into_iter().map(|name| Param { name, ty: quote!(i128) });
        let buffer =
            |s: &Sibling<'_>| Some(Param { name: s.ident(), ty: self.buffer_type(s, s.buffer?) });
        let buffers = op.list.iter().filter_map(buffer);
        let params: Vec<Param> = args.chain(buffers).collect();
        let params = unused_params(&params, &body);
        let outs = op.outs(true);
        let fields = outs.iter().map(|o| o.ident());
        let text = docs(&format!("Reads a reply of `{}`.", op.op.name));
        let (function, name) = (op.function("get", "_reply"), op.type_of("Reply"));
        let mutable = mutable(&layout);
        quote! {
            #text
            ///
            /// # Errors
            /// What breaks the rules.
            #[inline]
            pub fn #function(
                #mutable decoder_: rt::Decoder<'_>, #params
            ) -> Result<#name, rt::DecodeError> {
                #body
                Ok(#name { #(#fields),* })
            }
        }
    }

    fn is_fd(&self, ty: &Ty) -> bool {
        matches!(self.shape(ty), Shape::Descriptor)
    }

    /// Who owns what a reply carries.
    fn kept(&self, ty: &Ty) -> Keep {
        if self.is_fd(ty) { Keep::Borrow } else { Keep::Own }
    }

    /// `allocate(pool(name))` and `allocate(fn(name))`: what makes an empty vector.
    pub(super) fn provider(&self, s: &Sibling<'_>) -> Option<Code> {
        let Shape::Array(array) = self.shape(s.ty) else { return None };
        if !Self::is_pod(self.shape(&array.element)) {
            return None;
        }
        match s.acf?.allocate.as_ref()? {
            Allocate::Pool(name) => {
                let pool = code(name);
                Some(quote!(#pool.take))
            }
            Allocate::Fn(name) => Some(code(name)),
            Allocate::Arena | Allocate::Caller => None,
        }
    }

    /// Reads an array into a vector of the user's.
    fn get_provided(&self, s: &Sibling<'_>, at: u64, provider: &Code, env: &Env) -> Code {
        let Shape::Array(array) = self.shape(s.ty) else { return Code::new() };
        let (header, element) =
            (self.array_header(array, at, env, false), self.owned(&array.element));
        let name = s.ident();
        quote! {
            let #name = {
                let h_ = #header;
                let x_ = d_.pods::<#element>(h_)?;
                let mut y_: Vec<#element> = #provider(x_.len());
                rt::extend(&mut y_, &x_);
                y_
            };
        }
    }

    /// Reads an array into the caller's buffer.
    fn get_into(&self, s: &Sibling<'_>, at: u64, buffer: Buffer, env: &Env) -> Code {
        let Shape::Array(array) = self.shape(s.ty) else { return Code::new() };
        let (header, element) =
            (self.array_header(array, at, env, false), self.owned(&array.element));
        let name = s.ident();
        match buffer {
            Buffer::Slice => quote!(let h_ = #header; d_.pods_into(h_, #name)?;),
            Buffer::Vec => quote! {
                let h_ = #header;
                let x_ = d_.pods::<#element>(h_)?;
                #name.clear();
                rt::extend(#name, &x_);
            },
        }
    }

    /// Takes the primary block and checks its padding.
    fn open(&self, op: &Op<'a>, layout: &BlockLayout) -> Code {
        if layout.size == 0 {
            return Code::new();
        }
        let (size, words) = (num(layout.size), self.block_slots(op, layout));
        let padding = are_zero(&layout.padding);
        quote! {
            let d_ = &mut decoder_;
            let v_ = d_.primary::<#size>(#words)?;
            #padding
        }
    }

    /// The words of a primary block, as a slice expression.
    fn block_slots(&self, op: &Op<'a>, layout: &BlockLayout) -> Code {
        let result = layout.result.as_ref().zip(op.op.result.as_ref());
        let params = op.wire_list.iter().zip(&layout.params);
        let params = params.filter_map(|(s, slot)| Some((slot.as_ref()?, s.ty)));
        let (mut words, mut has_numbers) = (Vec::new(), false);
        for (slot, ty) in result.into_iter().chain(params) {
            words.extend(self.slot_list(ty, slot.offset));
            has_numbers |= self.has_numbers(ty);
        }
        Self::marked(words, has_numbers)
    }

    /// What siblings are worth while a reply is read, before its own have been.
    fn reply_known(&self, op: &Op<'a>) -> Vec<Option<Code>> {
        let named = op.reply_siblings(self);
        let value = |index: usize| {
            let arg = op.sibling_arg(index);
            named.contains(&index).then(|| quote!(#arg))
        };
        (0..op.list.len()).map(value).collect()
    }
}

impl Direction {
    fn new(what: &'static str, layout: &BlockLayout) -> Self {
        Self {
            what,
            size: layout.size,
            measure: Code::new(),
            place: zeroes(&layout.padding),
            follow: Code::new(),
            params: Vec::new(),
            measured: Vec::new(),
        }
    }

    fn param(&mut self, written: Param, measured: Param) {
        self.params.push(written);
        self.measured.push(measured);
    }
}

/// The names of the siblings that travel by themselves.
fn texts(op: &Op<'_>, is_there: impl Fn(&Sibling<'_>) -> bool) -> Vec<Option<Code>> {
    let text = |s: &Sibling<'_>| {
        let name = s.ident();
        (is_there(s) && s.folded.is_none()).then(|| quote!(#name))
    };
    op.wire_list.iter().map(text).collect()
}

/// Where the parameters are in their block.
fn offsets(layout: &BlockLayout) -> Vec<Option<u64>> {
    layout.params.iter().map(|s| s.as_ref().map(|s| s.offset)).collect()
}

fn field(name: &str, ty: &Code) -> Code {
    let (text, name) = (docs(&format!("`{}`.", bare(name))), ident(name));
    quote!(#text pub #name: #ty,)
}

fn request_struct(op: &Op<'_>, fields: &Code) -> Code {
    let life = has_lifetime(fields, "m").then(|| quote!(<'m>));
    let text = docs(&format!("What a request of `{}` carries.", op.op.name));
    let name = op.type_of("Request");
    quote!(#text #[derive(Debug)] pub struct #name #life { #fields })
}

/// An empty block is not read.
fn mutable(layout: &BlockLayout) -> Code {
    if layout.size == 0 { Code::new() } else { quote!(mut) }
}

fn writers(op: &Op<'_>, d: &Direction) -> Code {
    let size_function = sizer(op, d);
    let size = num(d.size);
    let open = (d.size != 0).then(|| quote!(let b_ = w_.object::<#size>()?;));
    let (place, follow) = (&d.place, &d.follow);
    let body = quote!(#open #place #follow);
    let w = used(&body, "w_");
    let borrows = d.params.iter().any(|param| has_lifetime(&param.ty, "d"));
    let (life, writer) =
        if borrows { (quote!(<'d>), quote!('d)) } else { (Code::new(), quote!('_)) };
    let text = docs(&format!("Writes a {} of `{}`.", d.what, op.op.name));
    let function = op.function("put", &format!("_{}", d.what));
    let params = unused_params(&d.params, &body);
    quote! {
        #size_function
        #text
        ///
        /// # Errors
        /// [`rt::EncodeError::Overflow`] if the body has another size.
        #[inline]
        pub fn #function #life(
            #w: &mut rt::Writer<'_, #writer>, #params
        ) -> Result<(), rt::EncodeError> {
            #body
            Ok(())
        }
    }
}

/// The function that tells how large a message will be.
fn sizer(op: &Op<'_>, d: &Direction) -> Code {
    let (size, measure) = (num(d.size), &d.measure);
    let visit = if measure.is_empty() {
        quote!(Ok(rt::Measured { body_len: #size, forms: forms_ }))
    } else {
        let m = used(measure, "m_");
        quote!(rt::measure(#size, forms_, |#m| { #measure Ok(()) }))
    };
    let mut params = vec![Param { name: ident("forms_"), ty: quote!(rt::Forms) }];
    params.extend(d.measured.iter().cloned());
    let params = unused_params(&params, &visit);
    let text = docs(&format!("The size of a {} of `{}`.", d.what, op.op.name));
    let function = op.function("", &format!("_{}_size", d.what));
    quote! {
        #text
        ///
        /// # Errors
        /// Values that must not travel.
        #[inline]
        pub fn #function(#params) -> Result<rt::Measured, rt::EncodeError> {
            #visit
        }
    }
}
