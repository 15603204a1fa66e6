//! The wire functions of an operation: measure, write and read its request and its reply.
//!
//! They know neither client nor server nor transport; benchmarks and tests call them directly.

use crate::ir::Allocate;
use crate::layout::{self, BlockLayout};

use super::decode::Keep;
use super::encode::Env;
use super::model::{Gen, Shape};
use super::op::{Op, OutValue};
use super::siblings::{Buffer, Sibling};
use super::text::{unused_params, used};

/// One direction of an operation, ready to be written.
struct Direction {
    /// `request` or `reply`.
    what: &'static str,
    size: u64,
    measure: String,
    place: String,
    follow: String,
    /// Name and type of the values, without those only measuring needs.
    params: Vec<(String, String)>,
}

impl<'a> Gen<'a> {
    /// The wire functions of an operation.
    pub(super) fn messages(&self, op: &Op<'a>) -> String {
        let mut out = self.request_struct(op);
        out.push_str(&writers(op, &self.request_direction(op)));
        out.push_str(&self.request_reader(op));
        if !op.op.oneway {
            out.push_str(&self.reply_struct(op));
            out.push_str(&writers(op, &self.reply_direction(op)));
            out.push_str(&self.reply_reader(op));
        }
        out
    }

    fn request_struct(&self, op: &Op<'a>) -> String {
        let mut fields = String::new();
        for s in op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none()) {
            let ty = self.stored(s, op.deferred);
            fields.push_str(&format!("/// `{}`.\npub {}: {ty},\n", bare(&s.name), s.name));
        }
        let life = if fields.contains("'m") { "<'m>" } else { "" };
        format!(
            "/// What a request of `{}` carries.\n#[derive(Debug)]\n\
             pub struct {}Request{life} {{ {fields} }}\n",
            op.op.name, op.prefix
        )
    }

    fn reply_struct(&self, op: &Op<'a>) -> String {
        let fields = op.outs(true).iter().fold(String::new(), |out, o| {
            format!("{out}/// `{}`.\npub {}: {},\n", bare(o.name), o.name, self.owned_param(o.ty))
        });
        format!(
            "/// What a reply of `{}` carries.\n#[derive(Debug)]\n\
             pub struct {}Reply {{ {fields} }}\n",
            op.op.name, op.prefix
        )
    }

    fn request_direction(&self, op: &Op<'a>) -> Direction {
        let layout = layout::request_layout(self.module, op.op);
        let list = &op.wire_list;
        let is_there = |s: &Sibling<'_>| s.is_in() && s.folded.is_none();
        let texts: Vec<Option<String>> =
            list.iter().map(|s| is_there(s).then(|| s.name.clone())).collect();
        let values = self.values(list, &texts);
        let mut d = direction("request", &layout);
        for (index, s) in list.iter().enumerate() {
            let Some(slot) = &layout.params[index] else { continue };
            let env =
                Env { values: values.clone(), threshold: op.threshold(op.op.params.get(index)) };
            self.one(&mut d, s, slot.offset, &texts, index, &env);
        }
        d
    }

    fn reply_direction(&self, op: &Op<'a>) -> Direction {
        let layout = layout::reply_layout(self.module, op.op);
        let list = &op.wire_list;
        let texts: Vec<Option<String>> = list
            .iter()
            .map(|s| (s.is_out() && s.folded.is_none()).then(|| s.name.clone()))
            .collect();
        let values = self.reply_values(op, &texts);
        let mut d = direction("reply", &layout);
        for index in op.reply_siblings(self) {
            d.params.push((op.sibling_arg(index), "i128".to_owned()));
        }
        if let (Some(slot), Some(ty)) = (&layout.result, &op.op.result) {
            let env = Env { values: values.clone(), threshold: op.threshold(None) };
            let shape = self.shape(ty);
            d.params.push(("ret".to_owned(), self.borrowed(shape, "'d ")));
            d.measure.push_str(&self.measure(shape, "ret", &env));
            d.place.push_str(&self.place(shape, slot.offset, "ret", &env));
            d.follow.push_str(&self.follow(shape, "ret", &env));
        }
        for (index, s) in list.iter().enumerate() {
            let Some(slot) = &layout.params[index] else { continue };
            let env =
                Env { values: values.clone(), threshold: op.threshold(op.op.params.get(index)) };
            self.one(&mut d, s, slot.offset, &texts, index, &env);
        }
        d
    }

    /// Name and type of what the functions that measure and write a reply take.
    pub(super) fn reply_params(&self, op: &Op<'a>) -> Vec<(String, String)> {
        without_life(&self.reply_direction(op).params).collect()
    }

    fn one(
        &self,
        d: &mut Direction,
        s: &Sibling<'a>,
        at: u64,
        texts: &[Option<String>],
        index: usize,
        env: &Env,
    ) {
        if s.folded.is_some() {
            d.measure.push_str(&self.measure_folded(s, texts));
            d.place.push_str(&self.place_folded(s, at, texts));
            return;
        }
        let text = texts[index].clone().unwrap_or_default();
        let shape = self.shape(s.ty);
        d.params.push((s.name.clone(), self.borrowed(shape, "'d ")));
        d.measure.push_str(&self.measure_range(s.ty, s.range, &text));
        d.measure.push_str(&self.measure(shape, &text, env));
        d.place.push_str(&self.place(shape, at, &text, env));
        d.follow.push_str(&self.follow(shape, &text, env));
    }

    fn request_reader(&self, op: &Op<'a>) -> String {
        let layout = layout::request_layout(self.module, op.op);
        let list = &op.wire_list;
        let slots: Vec<Option<u64>> =
            layout.params.iter().map(|s| s.as_ref().map(|s| s.offset)).collect();
        let words = self.block_slots(op, &layout);
        let mut body = open(&layout, &words);
        let one = |s: &Sibling<'_>, at: u64, env: &Env| match self.provider(s) {
            Some(provider) => self.get_provided(s, at, &provider, env),
            None => {
                let borrows = !op.deferred && !s.is_out() || self.is_fd(s.ty);
                let keep = if borrows { Keep::Borrow } else { Keep::Own };
                self.get_one(s, at, keep, env)
            }
        };
        body.push_str(&self.get_list(list, &slots, &[], &one));
        body.push_str("decoder_.finish()?;");
        let fields: Vec<&str> = list
            .iter()
            .filter(|s| s.is_in() && s.folded.is_none())
            .map(|s| s.name.as_str())
            .collect();
        let life = if self.request_struct(op).contains("<'m>") { "<'m>" } else { "" };
        let decoder = if life.is_empty() { "'_" } else { "'m" };
        let mutable = mutable(&layout);
        format!(
            "/// Reads a request of `{0}`.\n///\n/// # Errors\n/// What breaks the rules.\n\
             #[inline]\npub fn get_{1}_request{life}({mutable}decoder_: rt::Decoder<{decoder}>) \
             -> Result<{2}Request{life}, rt::DecodeError> {{ {body} \
             Ok({2}Request {{ {3} }}) }}\n",
            op.op.name,
            op.plain,
            op.prefix,
            fields.join(", ")
        )
    }

    fn reply_reader(&self, op: &Op<'a>) -> String {
        let layout = layout::reply_layout(self.module, op.op);
        let words = self.block_slots(op, &layout);
        let mut body = open(&layout, &words);
        if let (Some(slot), Some(ty)) = (&layout.result, &op.op.result) {
            let env = Env { values: self.reply_known(op), threshold: String::new() };
            let keep = if self.is_fd(ty) { Keep::Borrow } else { Keep::Own };
            let get = self.get(self.shape(ty), slot.offset, keep, &env);
            body.push_str(&format!("let ret = {get};"));
        }
        let slots: Vec<Option<u64>> =
            layout.params.iter().map(|s| s.as_ref().map(|s| s.offset)).collect();
        let one = |s: &Sibling<'_>, at: u64, env: &Env| match (s.buffer, self.provider(s)) {
            (Some(buffer), _) => self.get_into(s, at, buffer, env),
            (None, Some(provider)) => self.get_provided(s, at, &provider, env),
            (None, None) => {
                let keep = if self.is_fd(s.ty) { Keep::Borrow } else { Keep::Own };
                self.get_one(s, at, keep, env)
            }
        };
        body.push_str(&self.get_list(&op.wire_list, &slots, &self.reply_known(op), &one));
        body.push_str("decoder_.finish()?;");
        let mut params = Vec::new();
        for index in op.reply_siblings(self) {
            params.push((op.sibling_arg(index), "i128".to_owned()));
        }
        for s in &op.list {
            match s.buffer {
                Some(Buffer::Slice) => {
                    params.push((s.name.clone(), format!("&mut [{}]", self.buffer_element(s))));
                }
                Some(Buffer::Vec) => {
                    params.push((s.name.clone(), format!("&mut Vec<{}>", self.buffer_element(s))));
                }
                None => {}
            }
        }
        let mutable = mutable(&layout);
        let fields: Vec<&str> = op.outs(true).iter().map(|o: &OutValue<'_, '_>| o.name).collect();
        format!(
            "/// Reads a reply of `{0}`.\n///\n/// # Errors\n/// What breaks the rules.\n\
             #[inline]\npub fn get_{1}_reply({mutable}decoder_: rt::Decoder<'_>, {3}) \
             -> Result<{2}Reply, rt::DecodeError> {{ {body} Ok({2}Reply {{ {4} }}) }}\n",
            op.op.name,
            op.plain,
            op.prefix,
            unused_params(&params, &body),
            fields.join(", ")
        )
    }

    fn is_fd(&self, ty: &crate::ir::Ty) -> bool {
        matches!(self.shape(ty), Shape::Descriptor)
    }

    /// `allocate(pool(name))` and `allocate(fn(name))`: what makes an empty vector.
    pub(super) fn provider(&self, s: &Sibling<'_>) -> Option<String> {
        let Shape::Array(array) = self.shape(s.ty) else { return None };
        if !Self::is_pod(self.shape(&array.element)) {
            return None;
        }
        match s.acf?.allocate.as_ref()? {
            Allocate::Pool(name) => Some(format!("{name}.take")),
            Allocate::Fn(name) => Some(name.clone()),
            Allocate::Arena | Allocate::Caller => None,
        }
    }

    /// Reads an array into a vector of the user's.
    fn get_provided(&self, s: &Sibling<'_>, at: u64, provider: &str, env: &Env) -> String {
        let Shape::Array(array) = self.shape(s.ty) else { return String::new() };
        let (header, element) =
            (self.array_header(array, at, env, false), self.owned(&array.element));
        format!(
            "let {} = {{ let h_ = {header}; let x_ = d_.pods::<{element}>(h_)?; \
             let mut y_: Vec<{element}> = {provider}(x_.len()); rt::extend(&mut y_, &x_); y_ }};",
            s.name
        )
    }

    /// Reads an array into the caller's buffer.
    fn get_into(&self, s: &Sibling<'_>, at: u64, buffer: Buffer, env: &Env) -> String {
        let Shape::Array(array) = self.shape(s.ty) else { return String::new() };
        let (header, element) =
            (self.array_header(array, at, env, false), self.owned(&array.element));
        let name = &s.name;
        match buffer {
            Buffer::Slice => format!("let h_ = {header}; d_.pods_into(h_, {name})?;"),
            Buffer::Vec => format!(
                "let h_ = {header}; let x_ = d_.pods::<{element}>(h_)?; \
                 {name}.clear(); rt::extend({name}, &x_);"
            ),
        }
    }

    /// The words of a primary block, as a slice expression.
    fn block_slots(&self, op: &Op<'a>, layout: &BlockLayout) -> String {
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
    fn reply_known(&self, op: &Op<'a>) -> Vec<Option<String>> {
        let named = op.reply_siblings(self);
        (0..op.list.len()).map(|i| named.contains(&i).then(|| op.sibling_arg(i))).collect()
    }
}

fn direction(what: &'static str, layout: &BlockLayout) -> Direction {
    let place =
        layout.padding.iter().map(|(at, len)| format!("b_.zero::<{at}, {len}>();")).collect();
    Direction {
        what,
        size: layout.size,
        measure: String::new(),
        place,
        follow: String::new(),
        params: Vec::new(),
    }
}

/// An empty block is not read.
fn mutable(layout: &BlockLayout) -> &'static str {
    if layout.size == 0 { "" } else { "mut " }
}

/// Takes the primary block and checks its padding.
fn open(layout: &BlockLayout, words: &str) -> String {
    if layout.size == 0 {
        return String::new();
    }
    let mut out =
        format!("let d_ = &mut decoder_; let v_ = d_.primary::<{}>({words})?;", layout.size);
    for (at, len) in &layout.padding {
        out.push_str(&format!("v_.zero::<{at}, {len}>()?;"));
    }
    out
}

fn writers(op: &Op<'_>, d: &Direction) -> String {
    let (what, size) = (d.what, d.size);
    let visit = if d.measure.is_empty() {
        format!("Ok(rt::Measured {{ body_len: {size}, forms: forms_ }})")
    } else {
        let m = used(&d.measure, "m_");
        format!("rt::measure({size}, forms_, |{m}| {{ {} Ok(()) }})", d.measure)
    };
    let mut sized = vec![("forms_".to_owned(), "rt::Forms".to_owned())];
    sized.extend(without_life(&d.params));
    let open = if size == 0 { String::new() } else { format!("let b_ = w_.object::<{size}>()?;") };
    let body = format!("{open} {} {}", d.place, d.follow);
    let w = used(&body, "w_");
    let life = if d.params.iter().any(|(_, t)| t.contains("'d")) { "<'d>" } else { "" };
    let writer = if life.is_empty() { "'_" } else { "'d" };
    format!(
        "/// The size of a {what} of `{0}`.\n///\n/// # Errors\n/// Values that must not travel.\n\
         #[inline]\npub fn {1}_{what}_size({2}) -> Result<rt::Measured, rt::EncodeError> {{ {visit} }}\n\
         /// Writes a {what} of `{0}`.\n///\n/// # Errors\n\
         /// [`rt::EncodeError::Overflow`] if the body has another size.\n\
         #[inline]\npub fn put_{1}_{what}{life}({w}: &mut rt::Writer<'_, {writer}>, {3}) \
         -> Result<(), rt::EncodeError> {{ {body} Ok(()) }}\n",
        op.op.name,
        op.plain,
        unused_params(&sized, &visit),
        unused_params(&d.params, &body),
    )
}

/// Parameters whose lifetimes nobody has to name.
fn without_life(params: &[(String, String)]) -> impl Iterator<Item = (String, String)> {
    params.iter().map(|(n, t)| (n.clone(), t.replace("'d ", "").replace("<'d>", "<'_>")))
}

fn bare(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}
