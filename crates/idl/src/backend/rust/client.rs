//! Clients: one structure an interface, one method an operation.

use crate::ir::{Inproc, Interface, Sync};

use super::model::{Gen, Shape};
use super::names;
use super::op::Op;
use super::siblings::{Buffer, Sibling, Source};
use super::text::unref;
use super::types::doc;

impl<'a> Gen<'a> {
    /// Every operation of an interface, those of its bases first, with the interface it is from.
    pub(super) fn all_ops(&self, interface: &'a Interface) -> Vec<Op<'a>> {
        let mut all = match interface.base.and_then(|base| self.interface(base)) {
            Some(base) => self.all_ops(base),
            None => Vec::new(),
        };
        all.extend(self.own_ops(interface));
        all
    }

    /// The operations that an interface adds to its base.
    pub(super) fn own_ops(&self, interface: &'a Interface) -> Vec<Op<'a>> {
        let ops: Vec<Op<'a>> =
            interface.operations.iter().map(|op| Op::new(self, interface, op)).collect();
        let names = names::unique(ops.iter().map(|op| op.name.clone()).collect());
        ops.into_iter().zip(names).map(|(op, name)| Op { name, ..op }).collect()
    }

    /// Whether any operation is called directly when the server is in this address space.
    pub(super) fn is_inproc(&self, interface: &'a Interface) -> bool {
        self.all_ops(interface).iter().any(is_by_ref)
    }

    pub(super) fn client(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let snake = names::plain_snake(&interface.name);
        let inproc = self.is_inproc(interface);
        let local_field =
            if inproc { format!("local: Option<{name}Local>,") } else { String::new() };
        let bind_local = if inproc {
            format!("let local = transport.local::<{name}Local>().map(|l_| (*l_).clone());")
        } else {
            String::new()
        };
        let local_init = if inproc { "local," } else { "" };
        let mut methods = String::new();
        for op in self.all_ops(interface).iter().filter(|op| !op.op.is_local) {
            methods.push_str(&self.method(&name, op));
        }
        let text = doc(&interface.doc, &format!("Client of interface `{}`.", interface.name));
        let upper = snake.to_ascii_uppercase();
        format!(
            "{text}#[derive(Debug)]\npub struct {name}Client<T_: rt::Transport = \
             sojourn_ipc::Connection> {{ transport: T_, base: u16, \
             deadline: Option<rt::Deadline>, {local_field} }}\n\
             impl<T_: rt::Transport> {name}Client<T_> {{\n\
             /// Binds: asks the server for this interface.\n///\n/// # Errors\n\
             /// [`rt::Fault::UNKNOWN_INTERFACE`] if it does not serve it; those of the transport.\n\
             pub fn bind(transport: T_) -> Result<Self, rt::CallError> {{ \
             Self::bind_by(transport, rt::Deadline::NEVER) }}\n\
             /// As [`Self::bind`], until `deadline`.\n///\n/// # Errors\n/// As [`Self::bind`].\n\
             pub fn bind_by(mut transport: T_, deadline: rt::Deadline) -> \
             Result<Self, rt::CallError> {{ \
             let base = rt::stub::bind(&mut transport, &{upper}_ID, deadline)?; {bind_local} \
             Ok(Self {{ transport, base, deadline: None, {local_init} }}) }}\n\
             /// The next call ends at `deadline` instead of the default.\n\
             pub fn with_deadline(&mut self, deadline: rt::Deadline) -> &mut Self {{ \
             self.deadline = Some(deadline); self }}\n\
             /// The transport below.\npub fn transport(&mut self) -> &mut T_ {{ \
             &mut self.transport }}\n\
             /// Gives the transport back.\n#[must_use]\npub fn into_inner(self) -> T_ {{ \
             self.transport }}\n\
             {methods} }}\n"
        )
    }

    /// Options of connections and endpoints as the ACF wants them.
    pub(super) fn ipc_options(&self, interface: &'a Interface) -> String {
        let acf = &interface.acf;
        let mut common = String::new();
        if let Some(sync) = acf.sync {
            common.push_str(&format!("wait: {}, ", wait(sync)));
        }
        if let Some(bytes) = acf.max_message {
            common.push_str(&format!("max_message: {bytes}, "));
        }
        if let Some(n) = acf.max_inflight {
            common.push_str(&format!("max_inflight: {n}, "));
        }
        let snake = names::plain_snake(&interface.name);
        let value = |ty: &str| match common.is_empty() {
            true => format!("sojourn_ipc::{ty}::default()"),
            false => format!("sojourn_ipc::{ty} {{ {common} ..Default::default() }}"),
        };
        let mut out = String::new();
        for (what, ty, on) in [
            ("connect", "ConnectOptions", self.options.client),
            ("server", "ServerOptions", self.options.server),
        ] {
            if on {
                out.push_str(&format!(
                    "/// Options for interface `{}` as its ACF wants them.\n#[must_use]\n\
                     pub fn {snake}_{what}_options() -> sojourn_ipc::{ty} {{ {} }}\n",
                    interface.name,
                    value(ty)
                ));
            }
        }
        out
    }

    fn method(&self, client: &str, op: &Op<'a>) -> String {
        let params = self.signature(op, false);
        let list = params.iter().fold(String::new(), |out, (n, t)| format!("{out}{n}: {t}, "));
        let args = params.iter().fold(String::new(), |out, (n, _)| format!("{out}{n}, "));
        let ret = op.return_type(self);
        let inline = match op.op.acf.in_line {
            Some(true) => "#[inline]\n",
            Some(false) => "#[inline(never)]\n",
            None => "",
        };
        let many = "#[allow(clippy::too_many_arguments, reason = \"the interface's\")]\n";
        let many = if params.len() > 6 { many } else { "" };
        let text = doc(&op.op.doc, &format!("Operation `{}`.", op.op.name));
        let errors = "///\n/// # Errors\n/// [`rt::CallError`]: why there is no result.\n";
        let result = format!("Result<{ret}, rt::CallError>");
        let body = self.with_status(op, &self.body(op));
        let hand_written = op.op.acf.impl_client.as_ref();
        let mut out = String::new();
        if let Some(path) = hand_written {
            out.push_str(&format!(
                "{text}{errors}{inline}{many}pub fn {}(&mut self, {list}) -> {result} {{ \
                 {path}(self, {args}) }}\n",
                op.name
            ));
        }
        if op.op.acf.code == Some(false) {
            return out;
        }
        let (name, text) = match hand_written {
            Some(_) => (
                format!("{}_generated", op.plain),
                format!(
                    "/// What `{client}Client::{}` would be if it were not hand-written.\n",
                    op.plain
                ),
            ),
            None => (op.name.clone(), text),
        };
        out.push_str(&format!(
            "{text}{errors}{inline}{many}pub fn {name}(&mut self, {list}) -> {result} {{ {body} }}\n"
        ));
        out
    }

    /// `comm_status`, `fault_status`: failures become values.
    fn with_status(&self, op: &Op<'a>, body: &str) -> String {
        let acf = &op.op.acf;
        let returned = op.returned();
        let of_param = |index: usize, fault: bool| {
            op.list
                .get(index)
                .and_then(|s| s.acf)
                .is_some_and(|a| if fault { a.fault_status } else { a.comm_status })
        };
        let holder = |fault: bool| {
            let on_op = if fault { acf.fault_status } else { acf.comm_status };
            returned.iter().position(|o| match o.param {
                None => on_op && matches!(self.shape(o.ty), Shape::Scalar(_)),
                Some(index) => of_param(index, fault),
            })
        };
        let arm = |fault: bool| {
            let Some(at) = holder(fault) else { return String::new() };
            let values: Vec<String> = returned
                .iter()
                .enumerate()
                .map(|(i, o)| {
                    let status = format!("error_.status() as {}", self.owned_param(o.ty));
                    (i, o, status)
                })
                .map(|(i, o, status)| {
                    let value = if i == at { status } else { self.blank_param(o.ty) };
                    if returned.len() == 1 { value } else { format!("{}: {value}", o.name) }
                })
                .collect();
            let value = match returned.len() {
                1 => values.join(""),
                _ => format!("{} {{ {} }}", op.return_type(self), values.join(", ")),
            };
            let not = if fault { "" } else { "!" };
            format!("Err(error_) if {not}error_.is_fault() => Ok({value}),")
        };
        let (comm, fault) = (arm(false), arm(true));
        if comm.is_empty() && fault.is_empty() {
            return body.to_owned();
        }
        let ret = op.return_type(self);
        format!(
            "let mut attempt_ = || -> Result<{ret}, rt::CallError> {{ {body} }}; \
             match attempt_() {{ {comm} {fault} result_ => result_ }}"
        )
    }

    fn body(&self, op: &Op<'a>) -> String {
        let mut out = match op.op.acf.timeout_ms {
            Some(ms) => format!(
                "let deadline_ = self.deadline.take().unwrap_or_else(|| \
                 rt::Deadline::after(core::time::Duration::from_millis({ms})));"
            ),
            None => {
                "let deadline_ = self.deadline.take().unwrap_or(rt::Deadline::NEVER);".to_owned()
            }
        };
        if is_by_ref(op) {
            out.push_str(&self.direct_call(op));
        }
        out.push_str(&self.buffer_counts(op));
        let args = self.request_args(op);
        let (wire, plain) = (&op.wire, &op.plain);
        let number = op.op.opnum;
        out.push_str(&format!(
            "let size_ = {wire}::{plain}_request_size(rt::Forms::machine(), {args})?;"
        ));
        if let Some(bytes) = op.op.acf.max_message {
            out.push_str(&format!(
                "if size_.body_len > {bytes} {{ return Err(rt::CallError::TooLarge); }}"
            ));
        }
        let opnum = format!("self.base.wrapping_add({number})");
        let put = format!("{wire}::put_{plain}_request(w_, {args})");
        let write = match op.op.acf.max_message {
            Some(bytes) => format!("|w_| {{ {put}?; w_.within({bytes}) }}"),
            None => format!("|w_| {put}"),
        };
        let transport = match op.op.acf.sync {
            Some(sync) => {
                format!("&mut *rt::stub::waiting(&mut self.transport, {})", wait(sync))
            }
            None => "&mut self.transport".to_owned(),
        };
        if op.op.oneway {
            out.push_str(&format!(
                "rt::stub::send({transport}, {opnum}, size_, deadline_, {write})"
            ));
            return out;
        }
        let read = self.reply_args(op);
        let reader = if read.is_empty() {
            format!("{wire}::get_{plain}_reply")
        } else {
            format!("|d_| {wire}::get_{plain}_reply(d_, {read})")
        };
        out.push_str(&format!(
            "let reply_ = rt::stub::call({transport}, {opnum}, size_, deadline_, \
             {write}, {reader})?;"
        ));
        for (_, s) in op.inouts() {
            out.push_str(&format!("*{0} = reply_.{0};", s.name));
        }
        if op.outs(true).is_empty() {
            out = out.replace("let reply_ = ", "");
            out.push_str("Ok(())");
            return out;
        }
        out.push_str(&format!("Ok({})", self.returned_from(op, "reply_")));
        out
    }

    /// What the operation returns, from the fields of `from`.
    pub(super) fn returned_from(&self, op: &Op<'a>, from: &str) -> String {
        match op.returned().as_slice() {
            [] => "()".to_owned(),
            [one] => format!("{from}.{}", one.name),
            many => {
                let fields: Vec<String> =
                    many.iter().map(|o| format!("{0}: {from}.{0}", o.name)).collect();
                format!("{} {{ {} }}", op.return_type(self), fields.join(", "))
            }
        }
    }

    /// Counters that are the length of a caller's buffer.
    fn buffer_counts(&self, op: &Op<'a>) -> String {
        let mut out = String::new();
        for s in &op.list {
            if let Some(Source::Len(other)) = s.folded
                && op.list[other].buffer == Some(Buffer::Slice)
            {
                out.push_str(&format!(
                    "let {} = {}::try_from({}.len())\
                     .map_err(|_| rt::EncodeError::TooLong)?;",
                    s.name,
                    self.owned(s.ty),
                    op.list[other].name
                ));
            }
        }
        out
    }

    /// The request's values as wire functions want them, from the method's arguments.
    fn request_args(&self, op: &Op<'a>) -> String {
        let is_there = |s: &&Sibling<'_>| s.is_in() && s.folded.is_none();
        op.wire_list.iter().filter(is_there).fold(String::new(), |out, s| {
            let text = if s.is_out() && !op.deferred {
                self.borrow_param(s.ty, &format!("(*{})", s.name))
            } else {
                s.name.clone()
            };
            format!("{out}{text}, ")
        })
    }

    /// What the reply's reader wants to know.
    fn reply_args(&self, op: &Op<'a>) -> String {
        let texts: Vec<Option<String>> = op
            .wire_list
            .iter()
            .map(|s| (s.folded.is_none() && s.is_in()).then(|| s.name.clone()))
            .collect();
        let values = self.values(&op.wire_list, &texts);
        let mut out = String::new();
        for index in op.reply_siblings(self) {
            let value = values[index].clone().unwrap_or_else(|| "0_i128".to_owned());
            out.push_str(&format!("{value}, "));
        }
        for s in op.list.iter().filter(|s| s.buffer.is_some()) {
            out.push_str(&format!("{}, ", s.name));
        }
        out
    }

    /// The call without a message, when the server is in this address space.
    fn direct_call(&self, op: &Op<'a>) -> String {
        let mut args = String::new();
        for s in op.list.iter().filter(|s| s.folded.is_none()) {
            if !s.is_in() && s.buffer.is_none() {
                continue;
            }
            let shape = self.shape(s.ty);
            let text = match shape {
                Shape::Descriptor if !s.is_out() || op.deferred => format!(
                    "{}.map(|f_| f_.try_clone_to_owned()).transpose()\
                     .map_err(|e_| rt::CallError::System(e_.raw_os_error().unwrap_or(0)))?",
                    s.name
                ),
                _ if op.deferred => self.own(shape, &s.name),
                _ => s.name.clone(),
            };
            args.push_str(&format!("{text}, "));
        }
        let name = &op.name;
        let call = format!("(*local_.0).{name}(&rt::Caller::default(), {args}");
        if op.deferred {
            return format!(
                "if let Some(local_) = &self.local {{ let (sender_, mailbox_) = rt::mailbox(); \
                 {call} {}DeferredReply::local(sender_)); return mailbox_.wait(deadline_); }}",
                op.prefix
            );
        }
        if op.op.oneway {
            return format!("if let Some(local_) = &self.local {{ {call}); return Ok(()); }}");
        }
        format!(
            "if let Some(local_) = &self.local {{ \
             return {call}).map_err(rt::CallError::Fault); }}"
        )
    }

    /// An owned value from the borrowed one.
    pub(super) fn own(&self, shape: Shape<'_>, at: &str) -> String {
        match shape {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => at.to_owned(),
            Shape::Array(_) => format!("{at}.to_vec()"),
            Shape::Str(s) if s.wide => format!("{at}.to_vec()"),
            Shape::Str(_) => format!("{at}.to_owned()"),
            Shape::Unique(target) => match self.shape(target) {
                inner @ (Shape::Array(_) | Shape::Str(_)) => {
                    format!("{at}.map(|x_| {})", self.own(inner, "x_"))
                }
                inner => format!("{at}.map(|x_| Box::new({}))", self.own(inner, "x_")),
            },
            Shape::Interface(_) => format!("{at}.cloned()"),
            _ => format!("{}.clone()", unref(at)),
        }
    }
}

/// A way to wait, as Rust.
fn wait(sync: Sync) -> String {
    let wait = match sync {
        Sync::Spin(None) => "Spin(None)".to_owned(),
        Sync::Spin(Some(us)) => format!("Spin(Some(core::time::Duration::from_micros({us})))"),
        Sync::Park => "Park".to_owned(),
        Sync::Adaptive => "Adaptive".to_owned(),
    };
    format!("sojourn_ipc::Wait::{wait}")
}

/// Whether an operation is called directly when the server is in this address space.
pub(super) fn is_by_ref(op: &Op<'_>) -> bool {
    op.op.acf.inproc == Some(Inproc::ByRef) && !op.op.is_local && op.op.acf.impl_server.is_none()
}
