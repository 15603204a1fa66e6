//! The end of the analysis: everything complete, in the order that the model promises.
//!
//! Types come after those they contain by value, and where possible after those they point to.
//! Interfaces come after their bases. Numbers given on the way are replaced by final ones.

use std::collections::{HashSet, VecDeque};

use super::analyzer::{Analyzed, Analyzer};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Interface, InterfaceId, Module, PtrClass, Ty, TypeId, TypeKind};
use crate::layout::{self, Known};
use crate::source::Span;

/// Largest value in place, in bytes.
const IN_PLACE_MAX: u64 = 1 << 28;

/// Most descriptors of one message.
const DESCRIPTORS_MAX: u64 = 16;

impl Analyzer<'_> {
    pub(super) fn finish(mut self) -> Analyzed {
        self.settle();
        self.check_complete();
        self.check_type_names();
        let types = TypeOrder::new(&self).run();
        for id in &types.recursive {
            let pending = &self.types[id.0 as usize];
            self.sink.push(
                Diagnostic::error(
                    codes::RECURSIVE_TYPE,
                    pending.span,
                    format!("`{}` contains itself", pending.def.name),
                )
                .help("put a `unique` or `ptr` pointer in between"),
            );
        }
        let interfaces = self.interface_order();
        let spans: Vec<Span> =
            types.order.iter().map(|id| self.types[id.0 as usize].span).collect();
        let places: Vec<Span> =
            interfaces.iter().map(|id| self.interfaces[id.0 as usize].span).collect();
        let mut numbers = Numbers {
            types: inverse(&types.order, self.types.len()),
            interfaces: inverse_interfaces(&interfaces, self.interfaces.len()),
        };
        let mut module = std::mem::take(&mut self.module);
        for id in &types.order {
            let mut def = self.types[id.0 as usize].def.clone();
            numbers.kind(&mut def.kind);
            module.types.push(def);
        }
        for id in &interfaces {
            if let Some(mut interface) = self.interfaces[id.0 as usize].interface.take() {
                numbers.interface(&mut interface);
                module.interfaces.push(interface);
            }
        }
        if !self.sink.has_errors() {
            self.check_nesting(&module, &spans);
        }
        if !self.sink.has_errors() {
            self.check_sizes(&module, &spans, &places);
        }
        let named = module.types.iter().map(|t| t.name.clone()).zip(spans);
        self.places.extend(named);
        self.places.extend(module.interfaces.iter().map(|i| i.name.clone()).zip(places));
        Analyzed { module, places: self.places }
    }

    /// Types and interfaces that are used must have been defined.
    fn check_complete(&mut self) {
        let (mut types, mut interfaces) = (HashSet::new(), HashSet::new());
        for pending in self.types.iter().filter(|t| t.is_defined) {
            for_each_in_kind(&pending.def.kind, &mut |ty| note(ty, &mut types, &mut interfaces));
        }
        for interface in self.interfaces.iter().filter_map(|i| i.interface.as_ref()) {
            for_each_in_interface(interface, &mut |ty| note(ty, &mut types, &mut interfaces));
        }
        for (i, pending) in self.types.iter().enumerate().filter(|(_, t)| !t.is_defined) {
            if types.contains(&i) {
                self.sink.push(
                    Diagnostic::error(
                        codes::INCOMPLETE_TYPE,
                        pending.span,
                        format!("`{}` is used but never defined", pending.def.name),
                    )
                    .help("define it, or import the file that does"),
                );
            }
        }
        for (i, pending) in self.interfaces.iter().enumerate() {
            if pending.interface.is_none() && interfaces.contains(&i) {
                self.sink.push(
                    Diagnostic::error(
                        codes::INCOMPLETE_TYPE,
                        pending.span,
                        format!("interface `{}` is used but never defined", pending.name),
                    )
                    .help("define it, or import the file that does"),
                );
            }
        }
    }

    /// A tag that became a type's name must not be another type's name too.
    fn check_type_names(&mut self) {
        let mut seen: std::collections::HashMap<&str, Span> = std::collections::HashMap::new();
        for pending in self.types.iter().filter(|t| t.is_defined) {
            if let Some(first) = seen.insert(&pending.def.name, pending.span) {
                self.sink.push(
                    Diagnostic::error(
                        codes::DUPLICATE_NAME,
                        pending.span,
                        format!("there are two types called `{}`", pending.def.name),
                    )
                    .label(first, "the other one")
                    .help("tags and typedef names share one space in the output: rename one"),
                );
            }
        }
    }

    fn interface_order(&self) -> Vec<InterfaceId> {
        let mut order: Vec<InterfaceId> = Vec::new();
        for i in 0..self.interfaces.len() {
            let mut chain = Vec::new();
            let mut next = u32::try_from(i).ok().map(InterfaceId);
            while let Some(id) = next.filter(|id| !order.contains(id) && !chain.contains(id)) {
                let interface = self.interfaces[id.0 as usize].interface.as_ref();
                if interface.is_none() {
                    break;
                }
                chain.push(id);
                next = interface.and_then(|i| i.base);
            }
            order.extend(chain.into_iter().rev());
        }
        order
    }

    fn check_sizes(&mut self, module: &Module, spans: &[Span], places: &[Span]) {
        for (def, span) in module.types.iter().zip(spans) {
            if let TypeKind::Struct(s) = &def.kind {
                self.check_size(layout::struct_layout(module, s).size, *span, &def.name);
            }
            if let TypeKind::Alias(ty) = &def.kind {
                self.check_size(layout::in_place(module, ty).size, *span, &def.name);
            }
        }
        for (interface, span) in module.interfaces.iter().zip(places) {
            for op in &interface.operations {
                self.check_size(layout::request_layout(module, op).size, *span, &op.name);
                self.check_size(layout::reply_layout(module, op).size, *span, &op.name);
                let request = op.params.iter().filter(|p| p.is_in()).map(|p| &p.ty);
                let reply = op.params.iter().filter(|p| p.is_out()).map(|p| &p.ty);
                let sent = all_descriptors(module, request);
                let back = all_descriptors(module, reply.chain(op.result.iter()));
                self.check_descriptors(std::cmp::max(sent, back), *span, &op.name);
            }
        }
    }

    fn check_size(&mut self, size: u64, span: Span, name: &str) {
        if size > IN_PLACE_MAX {
            self.error(
                codes::TOO_LARGE,
                span,
                format!("`{name}` takes {size} bytes in place"),
                "use arrays with size_is: at most 2^28 bytes stand in one place",
            );
        }
    }

    fn check_descriptors(&mut self, count: u64, span: Span, name: &str) {
        if count > DESCRIPTORS_MAX {
            self.error(
                codes::TOO_MANY_DESCRIPTORS,
                span,
                format!("`{name}` passes {count} descriptors at a time"),
                "a message carries at most 16: divide the operation",
            );
        }
    }
}

/// Least number of descriptors that values with nothing null carry in place.
fn all_descriptors<'t>(module: &Module, types: impl Iterator<Item = &'t Ty>) -> u64 {
    let mut known = Known::default();
    types.fold(0, |n, ty| descriptors(module, ty, &mut known).saturating_add(n))
}

fn descriptors(module: &Module, ty: &Ty, known: &mut Known<u64>) -> u64 {
    match ty {
        Ty::Descriptor | Ty::Interface(_) => 1,
        Ty::Fixed(element, n) => descriptors(module, element, known).saturating_mul(u64::from(*n)),
        Ty::Pointer(PtrClass::Ref, target) => descriptors(module, target, known),
        Ty::Named(id) => known.of(*id, 0, |known| match layout::kind(module, *id) {
            Some(TypeKind::Alias(target)) => descriptors(module, target, known),
            Some(TypeKind::Struct(s)) => s
                .fields
                .iter()
                .filter(|f| !f.ignore)
                .fold(0, |n, f| descriptors(module, &f.ty, known).saturating_add(n)),
            _ => 0,
        }),
        _ => 0,
    }
}

fn note(ty: &Ty, types: &mut HashSet<usize>, interfaces: &mut HashSet<usize>) {
    match ty {
        Ty::Named(id) | Ty::Union(id, _) => {
            types.insert(id.0 as usize);
        }
        Ty::Interface(reference) => {
            interfaces.extend(reference.interface.map(|id| id.0 as usize));
        }
        _ => {}
    }
}

/// Calls `f` with `ty` and every type inside it, without following names.
pub(super) fn for_each(ty: &Ty, f: &mut dyn FnMut(&Ty)) {
    f(ty);
    match ty {
        Ty::Fixed(inner, _) | Ty::Pointer(_, inner) => for_each(inner, f),
        Ty::Array(array) => for_each(&array.element, f),
        _ => {}
    }
}

pub(super) fn for_each_in_kind(kind: &TypeKind, f: &mut dyn FnMut(&Ty)) {
    match kind {
        TypeKind::Alias(ty) => for_each(ty, f),
        TypeKind::Struct(s) => s.fields.iter().for_each(|field| for_each(&field.ty, f)),
        TypeKind::Union(u) => {
            for_each(&u.switch, f);
            u.arms.iter().filter_map(|a| a.field.as_ref()).for_each(|field| for_each(&field.ty, f));
        }
        TypeKind::Enum(_) | TypeKind::Opaque { .. } | TypeKind::ContextHandle => {}
    }
}

fn for_each_in_interface(interface: &Interface, f: &mut dyn FnMut(&Ty)) {
    for op in &interface.operations {
        op.result.iter().chain(op.params.iter().map(|p| &p.ty)).for_each(|ty| for_each(ty, f));
    }
}

/// Depth-first order of types.
struct TypeOrder<'a> {
    kinds: Vec<Option<&'a TypeKind>>,
    /// By type: those it contains by value.
    by_value: Vec<Vec<TypeId>>,
    state: Vec<State>,
    order: Vec<TypeId>,
    recursive: Vec<TypeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// What a type's visit goes on with.
#[derive(Clone, Copy, Debug)]
enum Visit {
    Target(TypeId),
    Part(TypeId),
}

/// A type whose visit has begun.
struct OpenType {
    id: TypeId,
    /// What comes before it.
    steps: VecDeque<Visit>,
}

struct Ordered {
    order: Vec<TypeId>,
    recursive: Vec<TypeId>,
}

impl<'a> TypeOrder<'a> {
    fn new(analyzer: &'a Analyzer<'_>) -> Self {
        let kinds: Vec<Option<&TypeKind>> =
            analyzer.types.iter().map(|t| t.is_defined.then_some(&t.def.kind)).collect();
        let by_value = kinds.iter().map(|k| k.map_or_else(Vec::new, contained)).collect();
        let state = vec![State::New; kinds.len()];
        Self { kinds, by_value, state, order: Vec::new(), recursive: Vec::new() }
    }

    fn run(mut self) -> Ordered {
        for i in 0..self.kinds.len() {
            self.visit(TypeId(u32::try_from(i).unwrap_or(u32::MAX)));
        }
        Ordered { order: self.order, recursive: self.recursive }
    }

    /// Depth first, with a stack of its own: types can point on and on. `needs_open` keeps pointers
    /// from closing circles.
    fn visit(&mut self, id: TypeId) {
        let mut open: Vec<OpenType> = self.enter(id).into_iter().collect();
        while let Some(OpenType { id, steps }) = open.last_mut() {
            let next = match steps.pop_front() {
                Some(Visit::Part(part)) => Some(part),
                Some(Visit::Target(target)) => {
                    let new = self.state[target.0 as usize] == State::New;
                    (new && !self.needs_open(target)).then_some(target)
                }
                None => {
                    self.state[id.0 as usize] = State::Done;
                    self.order.push(*id);
                    open.pop();
                    continue;
                }
            };
            open.extend(next.and_then(|next| self.enter(next)));
        }
    }

    /// Opens a type that is new.
    fn enter(&mut self, id: TypeId) -> Option<OpenType> {
        let i = id.0 as usize;
        let Some(kind) = self.kinds[i].filter(|_| self.state[i] == State::New) else {
            if self.state[i] == State::Open {
                self.recursive.push(id);
            }
            return None;
        };
        self.state[i] = State::Open;
        let targets = pointed_at(kind).into_iter().map(Visit::Target);
        let parts = self.by_value[i].iter().copied().map(Visit::Part);
        Some(OpenType { id, steps: targets.chain(parts).collect() })
    }

    /// Returns true if `from` needs, by value, anything that is open now.
    fn needs_open(&self, from: TypeId) -> bool {
        let mut seen = HashSet::from([from]);
        let mut queue = vec![from];
        while let Some(id) = queue.pop() {
            if self.state[id.0 as usize] == State::Open {
                return true;
            }
            queue.extend(self.by_value[id.0 as usize].iter().copied().filter(|p| seen.insert(*p)));
        }
        false
    }
}

/// Types that are part of a value of this kind, in memory or (behind `ref` pointers) in place on
/// the wire.
pub(super) fn contained(kind: &TypeKind) -> Vec<TypeId> {
    let mut list = Vec::new();
    let mut add = |ty: &Ty| {
        let mut ty = ty;
        while let Ty::Fixed(inner, _) | Ty::Pointer(PtrClass::Ref, inner) = ty {
            ty = inner;
        }
        if let Ty::Named(id) | Ty::Union(id, _) = ty {
            list.push(*id);
        }
    };
    match kind {
        TypeKind::Alias(ty) => add(ty),
        TypeKind::Struct(s) => s.fields.iter().for_each(|f| add(&f.ty)),
        TypeKind::Union(u) => {
            add(&u.switch);
            u.arms.iter().filter_map(|a| a.field.as_ref()).for_each(|f| add(&f.ty));
        }
        TypeKind::Enum(_) | TypeKind::Opaque { .. } | TypeKind::ContextHandle => {}
    }
    list
}

/// All types that are mentioned.
fn pointed_at(kind: &TypeKind) -> Vec<TypeId> {
    let mut list = Vec::new();
    for_each_in_kind(kind, &mut |ty| {
        if let Ty::Named(id) | Ty::Union(id, _) = ty {
            list.push(*id);
        }
    });
    let parts = contained(kind);
    list.retain(|id| !parts.contains(id));
    list
}

fn inverse(order: &[TypeId], count: usize) -> Vec<u32> {
    let mut numbers = vec![0; count];
    for (new, old) in (0..).zip(order) {
        numbers[old.0 as usize] = new;
    }
    numbers
}

fn inverse_interfaces(order: &[InterfaceId], count: usize) -> Vec<u32> {
    let mut numbers = vec![0; count];
    for (new, old) in (0..).zip(order) {
        numbers[old.0 as usize] = new;
    }
    numbers
}

/// Final numbers by provisional ones.
struct Numbers {
    types: Vec<u32>,
    interfaces: Vec<u32>,
}

impl Numbers {
    fn ty(&mut self, ty: &mut Ty) {
        match ty {
            Ty::Named(id) | Ty::Union(id, _) => id.0 = self.types[id.0 as usize],
            Ty::Fixed(inner, _) | Ty::Pointer(_, inner) => self.ty(inner),
            Ty::Array(array) => self.ty(&mut array.element),
            Ty::Interface(reference) => {
                if let Some(id) = &mut reference.interface {
                    id.0 = self.interfaces[id.0 as usize];
                }
            }
            Ty::Scalar(_) | Ty::String(_) | Ty::Descriptor => {}
        }
    }

    fn kind(&mut self, kind: &mut TypeKind) {
        match kind {
            TypeKind::Alias(ty) => self.ty(ty),
            TypeKind::Struct(s) => s.fields.iter_mut().for_each(|f| self.ty(&mut f.ty)),
            TypeKind::Union(u) => {
                self.ty(&mut u.switch);
                u.arms.iter_mut().filter_map(|a| a.field.as_mut()).for_each(|f| self.ty(&mut f.ty));
            }
            TypeKind::Enum(_) | TypeKind::Opaque { .. } | TypeKind::ContextHandle => {}
        }
    }

    fn interface(&mut self, interface: &mut Interface) {
        if let Some(base) = &mut interface.base {
            base.0 = self.interfaces[base.0 as usize];
        }
        for op in &mut interface.operations {
            op.result.iter_mut().for_each(|ty| self.ty(ty));
            op.params.iter_mut().for_each(|p| self.ty(&mut p.ty));
        }
    }
}
