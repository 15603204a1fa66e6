//! Operations: what travels in each direction, the argument structure, how a body's size becomes
//! known.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::ir::{
    Allocate, Dir, IntRange, Interface, InterfaceId, Operation, Param, PtrClass, Threshold, Ty,
    TypeId, TypeKind,
};
use crate::layout::{self, BlockLayout};

use super::ctype::result_name;
use super::emit::{ContextNumber, Scope};
use super::expr::Sibling;
use super::model::{Model, Passing, visit_exprs, visit_vars};
use super::template::{Code, c};

/// Directions of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Reply,
}

impl Direction {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Reply => "reply",
        }
    }
}

/// A parameter or the result as part of a body.
pub(super) struct Part<'a> {
    pub(super) param: Option<&'a Param>,
    pub(super) name: String,
    pub(super) ty: &'a Ty,
    pub(super) range: Option<IntRange>,
    pub(super) passing: Passing,
    pub(super) offset: u64,
    pub(super) lv: String,
}

/// An operation under the name of the interface it is called by.
#[derive(Clone, Copy)]
pub(super) struct Op<'a> {
    pub(super) model: Model<'a>,
    pub(super) interface: &'a Interface,
    pub(super) op: &'a Operation,
}

/// Operations of an interface with those of its bases first.
pub(super) fn operations<'a>(model: Model<'a>, interface: &'a Interface) -> Vec<Op<'a>> {
    let mut chain = vec![interface];
    let mut base = interface.base;
    while let Some(InterfaceId(i)) = base {
        let Some(b) = model.m.interfaces.get(i as usize) else { break };
        if chain.len() > model.m.interfaces.len() {
            break;
        }
        chain.push(b);
        base = b.base;
    }
    chain
        .iter()
        .rev()
        .flat_map(|i| i.operations.iter())
        .filter(|op| !op.is_local)
        .map(|op| Op { model, interface, op })
        .collect()
}

/// Names of the members of an interface's table of implementations.
pub(super) struct Table {
    operations: Vec<String>,
    members: Vec<String>,
    pub(super) rundowns: Vec<Rundown>,
}

/// What is called when a client is gone that held a context handle.
pub(super) struct Rundown {
    /// The handle's type.
    pub(super) id: TypeId,
    pub(super) member: String,
}

impl Table {
    pub(super) fn of(model: Model<'_>, interface: &Interface) -> Self {
        let ops = operations(model, interface);
        let operations: Vec<String> = ops.iter().map(|op| op.op.name.clone()).collect();
        let contexts = contexts(model, interface);
        let names: Vec<String> = contexts.iter().map(|id| model.type_name(*id)).collect();
        let mut members = super::names::table(model.m, &operations, &names);
        let rundowns = members.split_off(operations.len());
        let rundowns = contexts.into_iter().zip(rundowns);
        let rundowns = rundowns.map(|(id, member)| Rundown { id, member }).collect();
        Self { operations, members, rundowns }
    }

    /// The member that implements an operation.
    pub(super) fn member(&self, op: &Op<'_>) -> &str {
        let at = self.operations.iter().position(|name| *name == op.op.name);
        at.and_then(|at| self.members.get(at)).map_or("", String::as_str)
    }
}

impl<'a> Op<'a> {
    /// `calc_add`
    pub(super) fn name(&self) -> String {
        format!("{}_{}", self.interface.name, self.op.name)
    }

    pub(super) fn args(&self) -> String {
        format!("struct sj_of_{}_args", self.name())
    }

    pub(super) fn layout(&self, way: Direction) -> BlockLayout {
        match way {
            Direction::Request => layout::request_layout(self.model.m, self.op),
            Direction::Reply => layout::reply_layout(self.model.m, self.op),
        }
    }

    /// What travels, in the order of the block.
    pub(super) fn parts(&self, way: Direction) -> Vec<Part<'a>> {
        let l = self.layout(way);
        let mut all = Vec::new();
        if let (Some(ty), Some(slot)) = (&self.op.result, &l.result) {
            let name = result_name(self.op).to_owned();
            all.push(Part {
                param: None,
                lv: format!("(*sj_v->{name})"),
                name,
                ty,
                range: None,
                passing: Passing::Pointer,
                offset: slot.offset,
            });
        }
        for (p, slot) in self.op.params.iter().zip(&l.params) {
            let Some(slot) = slot else { continue };
            all.push(Part {
                param: Some(p),
                name: p.name.clone(),
                ty: &p.ty,
                range: p.range,
                passing: self.model.passing(self.op, p),
                offset: slot.offset,
                lv: self.lv(p),
            });
        }
        all
    }

    fn lv(&self, p: &Param) -> String {
        let name = &p.name;
        match self.model.passing(self.op, p) {
            Passing::Pointer => format!("(*sj_v->{name})"),
            _ => format!("sj_v->{name}"),
        }
    }

    pub(super) fn scope(&self) -> Scope<'a> {
        Scope::new(self.op.params.iter().map(|p| Sibling { lv: self.lv(p), ty: &p.ty }).collect())
    }

    /// The scope of one part: its own threshold, its context handle's number.
    pub(super) fn part_scope(&self, part: &Part<'_>, way: Direction) -> Scope<'a> {
        let mut sc = self.scope();
        let Some(p) = part.param else { return sc };
        if let Some(Threshold::Bytes(n)) = p.acf.reference_above {
            sc.limit = format!("sj_limit(sj_e->limit, {n})");
        }
        if p.is_in() && p.is_out() && self.is_context(part.ty) {
            let id = format!("sj_v->sj_id_{}", part.name);
            let given = if way == Direction::Request { "0".to_owned() } else { id.clone() };
            sc.context = Some(ContextNumber { given, kept: id });
        }
        sc
    }

    fn is_context(&self, ty: &Ty) -> bool {
        matches!(self.model.resolve(ty), Ty::Named(id)
            if matches!(self.model.def(*id).map(|d| &d.kind), Some(TypeKind::ContextHandle)))
    }

    /// The structure that holds the arguments on their way.
    pub(super) fn args_struct(&self) -> Code {
        let mut members = Code::new();
        for p in &self.op.params {
            members += &c!("$member;", member = self.model.member_decl(self.op, p));
            if p.is_in() && p.is_out() && self.is_context(&p.ty) {
                members += &c!("uint64_t sj_id_$name;", name = p.name);
            }
        }
        if let Some(ty) = &self.op.result {
            let member = self.model.decl(ty, &format!("*{}", result_name(self.op)));
            members += &c!("$member;", member);
        }
        if members.is_empty() {
            members = c!("char sj_empty;");
        }
        c!(
            "

            $args {
                $members
            };
            ",
            args = self.args(),
            members,
        )
    }

    /// Returns true if the size of the body is known from a look at the arguments, so that the body
    /// can be written in its place at once.
    pub(super) fn is_planned(&self, way: Direction) -> bool {
        let parts = self.parts(way);
        parts.len() <= 16 && parts.iter().all(|p| self.is_simple(p.ty, way))
    }

    fn is_simple(&self, ty: &Ty, way: Direction) -> bool {
        let model = self.model;
        if model.has_wire_layout(ty) {
            return true;
        }
        match model.resolve(ty) {
            Ty::String(_) | Ty::Descriptor | Ty::Interface(_) => true,
            Ty::Array(a) => model.has_wire_layout(&a.element),
            Ty::Pointer(PtrClass::Ref, _) => false,
            Ty::Pointer(_, t) if model.is_header(t) => match model.resolve(t) {
                Ty::Array(a) => model.has_wire_layout(&a.element),
                Ty::String(_) => true,
                _ => false,
            },
            Ty::Pointer(PtrClass::Unique, t) => model.has_wire_layout(t),
            Ty::Named(_) => way == Direction::Request && self.is_context(ty),
            _ => false,
        }
    }

    /// Returns true if encoding needs memory of its own until the message is sent.
    pub(super) fn needs_arena(&self, way: Direction) -> bool {
        self.parts(way).iter().any(|p| self.model.has_ptr(p.ty) || self.model.has_marshal(p.ty))
    }

    /// Returns true if the service's context handles or conversions take part.
    pub(super) fn needs_service(&self, way: Direction) -> bool {
        self.parts(way).iter().any(|p| {
            self.model.has_marshal(p.ty)
                || self.model.any(p.ty, &|t| matches!(t, Ty::Named(id)
                    if matches!(self.model.def(*id).map(|d| &d.kind), Some(TypeKind::ContextHandle))))
        })
    }

    /// Returns true if nothing but the primary block can come.
    pub(super) fn is_fixed(&self, way: Direction) -> bool {
        self.parts(way)
            .iter()
            .all(|p| !self.model.has_more(p.ty) && !self.model.has_descriptor(p.ty))
    }

    /// Returns true if the reply goes to the caller's variables as it is, without its own memory.
    pub(super) fn reply_has_wire_layout(&self) -> bool {
        self.parts(Direction::Reply).iter().all(|p| self.model.has_wire_layout(p.ty))
    }

    /// C expression of the threshold of this operation, from the client's or the measured one.
    pub(super) fn threshold(&self, auto: &str) -> String {
        match self.op.acf.reference_above {
            Some(Threshold::Bytes(n)) => format!("{n}"),
            _ => auto.to_owned(),
        }
    }

    /// The array or string itself where `ty` is a pointer to one.
    pub(super) fn header<'t>(&'t self, ty: &'t Ty) -> &'t Ty {
        match self.model.resolve(ty) {
            Ty::Pointer(_, t) if self.model.is_header(t) => self.model.resolve(t),
            other => other,
        }
    }

    /// `allocate(caller)`: what the callee determines the size of is copied into a buffer of the
    /// caller's, who says how much room there is.
    pub(super) fn is_callers(&self, p: &Param) -> bool {
        let wanted = p.acf.allocate.as_ref().or(self.op.acf.allocate.as_ref());
        let fits = match self.header(&p.ty) {
            Ty::String(_) => true,
            Ty::Array(a) => self.model.has_wire_layout(&a.element) && !layout::is_varying(a),
            _ => false,
        };
        wanted == Some(&Allocate::Caller)
            && p.dir == Dir::Out
            && fits
            && self.model.passing(self.op, p) == Passing::Pointer
    }

    /// Memory other than the arena for what a part of the reply needs: what is said of it, else of
    /// the operation.
    pub(super) fn memory(&self, part: &Part<'a>) -> Option<&'a Allocate> {
        let own = part.param.and_then(|p| p.acf.allocate.as_ref());
        let wanted = own.or(self.op.acf.allocate.as_ref())?;
        let is_other = matches!(wanted, Allocate::Pool(_) | Allocate::Fn(_));
        (is_other && !self.model.has_wire_layout(part.ty)).then_some(wanted)
    }

    pub(super) fn is_inline(&self) -> bool {
        self.op.acf.in_line.or(self.interface.acf.in_line) == Some(true)
    }

    pub(super) fn has_client(&self) -> bool {
        self.op.acf.code != Some(false)
    }

    /// `in` parameters that the sizes of the reply mention: a deferred reply must be told them
    /// again.
    pub(super) fn reply_inputs(&self) -> Vec<&'a Param> {
        let mut needed = Vec::new();
        for part in self.parts(Direction::Reply) {
            visit_exprs(part.ty, &mut |e| visit_vars(e, &mut |i| needed.push(i as usize)));
        }
        self.op
            .params
            .iter()
            .enumerate()
            .filter(|(i, p)| needed.contains(i) && !p.is_out())
            .map(|(_, p)| p)
            .collect()
    }
}

/// Context handle types that an interface mentions.
pub(super) fn contexts(model: Model<'_>, interface: &Interface) -> Vec<TypeId> {
    let found = RefCell::new(BTreeSet::new());
    for op in operations(model, interface) {
        for ty in op.op.result.iter().chain(op.op.params.iter().map(|p| &p.ty)) {
            let note = |t: &Ty| {
                if let Ty::Named(id) = t
                    && matches!(model.def(*id).map(|d| &d.kind), Some(TypeKind::ContextHandle))
                {
                    found.borrow_mut().insert(*id);
                }
                false
            };
            model.any(ty, &note);
        }
    }
    found.into_inner().into_iter().collect()
}
