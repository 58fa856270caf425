//! Values of constants and enumerators, independent of the order of declaration.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

use super::{
    errors::{cycle, did_you_mean, duplicate},
    names::{ItemBody, NameEntry},
};
use crate::{
    ast::{DefinitionKind, Dialect, File, Ident, Value, ValueKind},
    const_expr,
    diag::{Code, Diagnostic},
    ir::Name,
    parse,
    source::Span,
};

/// The origin of the value of a constant or enumerator.
enum ConstantOrigin<'a> {
    Value(&'a Value),
    /// An enumerator without a value. The index is the node of the enumerator before it.
    After(usize),
    Zero,
}

/// A name in the value of a constant, or the enumerator before an enumerator without a value.
enum Dependency {
    Node(usize),
    /// The name is not declared.
    Elsewhere,
}

#[derive(Clone, Copy, PartialEq)]
enum VisitState {
    New,
    /// The node waits for the values of the nodes that it depends on.
    Open,
    /// The node is evaluated. The value is `None` for a string constant, and after an error.
    Done(Option<i128>),
}

struct ConstantNode<'a> {
    name: Name,
    origin: ConstantOrigin<'a>,
    /// The name of the enumeration, if the node is an enumerator.
    of: Option<&'a str>,
    /// `true` if a value that is too large is an error only if the constant is used.
    may_be_unused: bool,
}

/// The values of all constants and enumerators.
pub(super) struct Constants<'a> {
    nodes: Vec<ConstantNode<'a>>,
    by_name: HashMap<&'a str, usize>,
    /// Names of types.
    types: HashSet<&'a str>,
    /// Enumerators by enumeration and name.
    scoped: HashMap<(&'a str, &'a str), usize>,
    /// Names that several enumerations use for an enumerator, with the names of these enumerations.
    ambiguous: HashMap<&'a str, Vec<&'a str>>,
    states: Vec<VisitState>,
    /// The string value of each node. `None` if the node is not a string constant.
    texts: Vec<Option<&'a str>>,
    /// The node of the first enumerator of each enumeration, by the index of the enumeration among the items.
    first_of: HashMap<usize, usize>,
    /// Words in definitions with syntax errors.
    failed_words: &'a HashSet<String>,
    /// Errors about constants, by node. An error is reported when its constant is used.
    waiting: RefCell<HashMap<usize, Diagnostic>>,
    /// Uses of names that RFC 4506 and RFC 5531 do not allow.
    pub(super) dialects: Vec<Dialect>,
}

impl<'a> Constants<'a> {
    pub(super) fn collect(
        entries: &'a [NameEntry<'a>],
        files: &'a [File],
        failed_words: &'a HashSet<String>,
        out: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut constants = Self {
            nodes: Vec::new(),
            by_name: HashMap::new(),
            types: entries.iter().filter(|entry| entry.is_named_type()).map(|entry| entry.name.text.as_str()).collect(),
            scoped: HashMap::new(),
            ambiguous: HashMap::new(),
            states: Vec::new(),
            texts: Vec::new(),
            first_of: HashMap::new(),
            failed_words,
            waiting: RefCell::default(),
            dialects: Vec::new(),
        };
        for (item, entry) in entries.iter().enumerate() {
            match entry.body {
                ItemBody::Const(_, value) => {
                    constants.add(&entry.name.text, None, entry.name.clone(), ConstantOrigin::Value(value), out);
                }
                ItemBody::Enum(body) => {
                    constants.first_of.insert(item, constants.nodes.len());
                    for (index, enumerator) in body.enumerators.iter().enumerate() {
                        let name = Name { text: enumerator.name.text.clone(), span: enumerator.name.span.clone() };
                        let origin = match (&enumerator.value, index.checked_sub(1)) {
                            (Some(value), _) => ConstantOrigin::Value(value),
                            (None, Some(_)) => ConstantOrigin::After(constants.nodes.len() - 1),
                            (None, None) => ConstantOrigin::Zero,
                        };
                        constants.add(&enumerator.name.text, Some(&entry.name.text), name, origin, out);
                    }
                }
                _ => {}
            }
        }
        constants.numbers_of_programs(files);
        constants.states = vec![VisitState::New; constants.nodes.len()];
        constants.texts = vec![None; constants.nodes.len()];
        for node in 0..constants.nodes.len() {
            constants.compute(node, out);
        }
        constants
    }

    /// Adds a constant, or an enumerator of the enumeration `of`.
    fn add(
        &mut self,
        text: &'a str,
        of: Option<&'a str>,
        name: Name,
        origin: ConstantOrigin<'a>,
        out: &mut Vec<Diagnostic>,
    ) {
        let node = self.nodes.len();
        // RFC 4506 §6.4 (3): constants and types have one name space. Rust has two, so xdrgen needs no error.
        if self.types.contains(text) {
            self.dialects.push(Dialect::new(&name.span, "a constant with the name of a type", "RFC 4506 §6.4"));
        }
        match (self.by_name.get(text).and_then(|&first| self.nodes.get(first)), of) {
            // In xdrpp, enumerators of different enumerations can have the same name.
            (Some(ConstantNode { of: Some(other), .. }), Some(of))
                if *other != of && !self.scoped.contains_key(&(of, text)) =>
            {
                self.ambiguous.entry(text).or_insert_with(|| vec![other]).push(of);
                self.dialects.push(Dialect::new(
                    &name.span,
                    "an enumerator of the same name as another",
                    "RFC 4506 §6.4",
                ));
            }
            (Some(first), _) => out.push(duplicate("constant", text, &first.name.span, &name.span)),
            (None, _) => drop(self.by_name.insert(text, node)),
        }
        if let Some(of) = of {
            self.scoped.entry((of, text)).or_insert(node);
        }
        self.nodes.push(ConstantNode { name, origin, of, may_be_unused: of.is_none() });
    }

    /// Finds a constant or enumerator by `NAME`, `enumeration::NAME` or `::NAME`. Namespaces are not part of a name.
    fn find(&self, name: &str) -> Option<usize> {
        let Some((scope, name)) = name.rsplit_once("::") else { return self.by_name.get(name).copied() };
        let scope = scope.rsplit("::").next().unwrap_or(scope);
        match scope {
            "" => self.by_name.get(name).copied(),
            _ => self.scoped.get(&(scope, name)).copied(),
        }
    }

    /// Defines the names of programs, versions and procedures as constants, as rpcgen does. Declared constants take
    /// precedence. If several procedures have the same name, the first takes precedence.
    fn numbers_of_programs(&mut self, files: &'a [File]) {
        for definition in files.iter().flat_map(|file| &file.definitions) {
            let DefinitionKind::Program(program) = &definition.kind else { continue };
            let name = program.name.text.as_str();
            if self.types.contains(name) || self.by_name.contains_key(name) {
                let what = "a program with the name of a constant or type";
                self.dialects.push(Dialect::new(&program.name.span, what, "RFC 5531 §12.3"));
            }
            self.number_of(&program.name, &program.number);
            for version in &program.versions {
                self.number_of(&version.name, &version.number);
                version.procedures.iter().for_each(|procedure| self.number_of(&procedure.name, &procedure.number));
            }
        }
    }

    /// Returns a description of the dialect if RFC 4506 does not allow `name` as a length at the position `at`.
    // RFC 4506 §6.4 (2): the name of a length is declared previously, by `const`.
    pub(super) fn dialect_of_length(&self, name: &str, at: &Span) -> Option<&'static str> {
        let declared = match self.find(name) {
            Some(node) => Some(&self.nodes[node]).filter(|node| node.may_be_unused),
            None => None,
        };
        match declared {
            None => Some("a length that is not declared by `const`"),
            Some(node) => {
                let is_later = node.name.span.file == at.file && node.name.span.range.start > at.range.start;
                is_later.then_some("a length that is declared later")
            }
        }
    }

    fn number_of(&mut self, name: &'a Ident, number: &'a Value) {
        if !self.by_name.contains_key(name.text.as_str()) {
            self.by_name.insert(&name.text, self.nodes.len());
            let name = Name { text: name.text.clone(), span: name.span.clone() };
            self.nodes.push(ConstantNode {
                name,
                origin: ConstantOrigin::Value(number),
                of: None,
                may_be_unused: false,
            });
        }
    }

    /// Evaluates `node` after the nodes it depends on. Uses an explicit stack, so the depth is unlimited.
    fn compute(&mut self, node: usize, out: &mut Vec<Diagnostic>) {
        // Each entry holds the number of dependencies already visited.
        let mut open = vec![(node, 0)];
        while let Some((at, looked_at)) = open.pop() {
            if matches!(self.states[at], VisitState::Done(_)) {
                continue;
            }
            self.states[at] = VisitState::Open;
            match self.dependency(at, looked_at) {
                Some(Dependency::Node(other)) => {
                    open.push((at, looked_at + 1));
                    match self.states[other] {
                        VisitState::New => open.push((other, 0)),
                        VisitState::Open => {
                            let names = open.iter().map(|(node, _)| *node).skip_while(|node| *node != other);
                            let names: Vec<&Name> = names.map(|node| &self.nodes[node].name).collect();
                            out.push(
                                cycle("constant", "by itself", &names)
                                    .note("a constant stands for a number (RFC 4506 §4.17)"),
                            );
                            self.states[other] = VisitState::Done(None);
                        }
                        VisitState::Done(_) => {}
                    }
                }
                Some(Dependency::Elsewhere) => open.push((at, looked_at + 1)),
                None => {
                    self.texts[at] = self.text_of(at);
                    let value = if self.texts[at].is_some() { None } else { self.evaluate(at, out) };
                    self.states[at] = VisitState::Done(value);
                }
            }
        }
    }

    /// Returns the dependency with the index `index` of a node. Returns `None` if the node has fewer dependencies.
    fn dependency(&self, node: usize, index: usize) -> Option<Dependency> {
        let name = match &self.nodes[node].origin {
            ConstantOrigin::Zero => return None,
            ConstantOrigin::After(previous) => return (index == 0).then_some(Dependency::Node(*previous)),
            ConstantOrigin::Value(value) => match &value.kind {
                ValueKind::Int(_) | ValueKind::Text(_) => return None,
                ValueKind::Name(name) => (index == 0).then_some(name)?,
                ValueKind::Computed(_, names) => &names.get(index)?.text,
            },
        };
        Some(self.find(name).map_or(Dependency::Elsewhere, Dependency::Node))
    }

    /// Returns the string value of a constant. The value may also be the name of another string constant.
    fn text_of(&self, at: usize) -> Option<&'a str> {
        match &self.nodes[at].origin {
            ConstantOrigin::Value(Value { kind: ValueKind::Text(text), .. }) => Some(text),
            ConstantOrigin::Value(Value { kind: ValueKind::Name(name), .. }) => self.text(name),
            _ => None,
        }
    }

    /// Returns the value of the string constant `name`. Returns `None` for a constant of another kind.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.texts.get(self.find(name)?).copied().flatten()
    }

    /// Evaluates a constant whose dependencies have been evaluated. Returns `None` if there is an error.
    fn evaluate(&self, at: usize, out: &mut Vec<Diagnostic>) -> Option<i128> {
        let value = match &self.nodes[at].origin {
            ConstantOrigin::Zero => return Some(0),
            ConstantOrigin::After(previous) => match self.states[*previous] {
                VisitState::Done(value) => return value.and_then(|value| value.checked_add(1)),
                VisitState::New | VisitState::Open => return None,
            },
            ConstantOrigin::Value(value) => value,
        };
        if let ValueKind::Computed(digits, names) = &value.kind
            && names.is_empty()
            && parse::is_too_large(digits)
        {
            self.too_large(at, &format!("`{digits}` does not fit 64 bits"), &value.span, out);
            return None;
        }
        let n = self.number(value, out)?;
        if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&n) {
            return Some(n);
        }
        self.too_large(at, &format!("{n} does not fit 64 bits"), &value.span, out);
        None
    }

    /// Reports a value of more than 64 bits. For a constant, the report is delayed until the constant is used.
    fn too_large(&self, at: usize, message: &str, span: &Span, out: &mut Vec<Diagnostic>) {
        let diagnostic = Diagnostic::new(Code::OutOfRange, message).at(span, "too large");
        if self.nodes[at].may_be_unused {
            self.waiting.borrow_mut().insert(at, diagnostic);
        } else {
            out.push(diagnostic);
        }
    }

    /// Warns about unused constants of more than 64 bits.
    pub(super) fn unused(&self, out: &mut Vec<Diagnostic>) {
        let mut waiting: Vec<(usize, Diagnostic)> = self.waiting.borrow_mut().drain().collect();
        waiting.sort_by_key(|(node, _)| *node);
        out.extend(waiting.into_iter().map(|(node, diagnostic)| Diagnostic {
            code: Code::LeftOut,
            message: format!("constant `{}` has more than 64 bits: it is omitted", self.nodes[node].name.text),
            ..diagnostic.note("nothing uses it, and constants have at most 64 bits (RFC 4506 §4.17, §6.2)")
        }));
    }

    /// Resolves a name that is not declared: `TRUE` or `FALSE`. Reports other names as unknown, unless a definition
    /// with a syntax error contains them.
    fn undeclared(&self, name: &str, at: &Span, out: &mut Vec<Diagnostic>) -> Option<i128> {
        match name {
            // RFC 4506 §4.4: `enum bool { FALSE = 0, TRUE = 1 }`.
            "FALSE" => return Some(0),
            "TRUE" => return Some(1),
            _ => {}
        }
        if !self.failed_words.contains(name) {
            let diagnostic =
                Diagnostic::new(Code::UnknownConstant, format!("no constant is named `{name}`")).at(at, "not declared");
            let diagnostic = did_you_mean(diagnostic, name, self.by_name.keys().copied(), out);
            out.push(diagnostic);
        }
        None
    }

    /// Evaluates `value`. Returns `None` for a string, and for a value with an error. Reports the error unless it was
    /// reported earlier.
    pub(super) fn number(&self, value: &Value, out: &mut Vec<Diagnostic>) -> Option<i128> {
        match &value.kind {
            ValueKind::Int(n) => Some(*n),
            ValueKind::Name(name) => self.named(name, &value.span, out),
            ValueKind::Text(_) => None,
            ValueKind::Computed(text, names) => {
                let mut known = true;
                for name in names {
                    known &= self.named(&name.text, &name.span, out).is_some();
                }
                if !known {
                    return None;
                }
                let computed = const_expr::computed(text, &|name| self.named(name, &value.span, &mut Vec::new()));
                if computed.is_none() && names.is_empty() && parse::is_too_large(text) {
                    out.push(
                        Diagnostic::new(Code::OutOfRange, format!("`{text}` is too large"))
                            .at(&value.span, "numbers have at most 64 bits"),
                    );
                } else if computed.is_none() {
                    out.push(
                        Diagnostic::new(Code::OutOfRange, "this expression has no value")
                            .at(&value.span, "division by zero, or an intermediate result is too large"),
                    );
                }
                computed
            }
        }
    }

    fn named(&self, name: &str, at: &Span, out: &mut Vec<Diagnostic>) -> Option<i128> {
        let Some(node) = self.find(name) else { return self.undeclared(name, at, out) };
        let unscoped = name.strip_prefix("::").unwrap_or(name);
        if let Some(enums) = self.ambiguous.get(unscoped) {
            out.push(ambiguous(unscoped, enums, at));
            return None;
        }
        out.extend(self.waiting.borrow_mut().remove(&node));
        if self.texts[node].is_some() {
            out.push(
                Diagnostic::new(Code::WrongConstant, format!("`{name}` is a string constant"))
                    .at(at, "a number is needed here"),
            );
            return None;
        }
        match self.states[node] {
            VisitState::Done(value) => value,
            VisitState::New | VisitState::Open => None,
        }
    }

    /// Returns the value of the constant or enumerator `name`. Returns `None` if there is none, if it is a string,
    /// or if its value has an error.
    pub(super) fn get(&self, name: &str) -> Option<i128> {
        match self.states.get(self.find(name)?) {
            Some(VisitState::Done(value)) => *value,
            _ => None,
        }
    }

    /// Returns the value of an enumerator by its item and its index.
    pub(super) fn enumerator(&self, item: usize, index: usize) -> Option<i128> {
        match self.states.get(self.first_of.get(&item)? + index) {
            Some(VisitState::Done(value)) => *value,
            _ => None,
        }
    }

    /// Returns the value of the enumerator `name` of the enumeration `of`. Other enumerations may have an enumerator
    /// with the same name.
    pub(super) fn enumerator_named(&self, of: &str, name: &str) -> Option<i128> {
        match self.states.get(*self.scoped.get(&(of, name))?) {
            Some(VisitState::Done(value)) => *value,
            _ => None,
        }
    }

    /// Adds a list of the enumerators of the enumeration `of` to the error about `name`, and suggests a similar
    /// enumerator.
    pub(super) fn list_enumerators(&self, error: Diagnostic, of: &str, name: &str, at: &Span) -> Diagnostic {
        let known = || self.nodes.iter().filter(|node| node.of == Some(of)).map(|node| node.name.text.as_str());
        error.list(&format!("enumerators of `{of}`"), known()).did_you_mean(name, at, known())
    }

    /// Returns the value of each name. Omits string constants, names that are ambiguous, and values with errors.
    pub(super) fn into_values(self) -> HashMap<String, i128> {
        let value = |(name, _): (&&str, &usize)| Some(((*name).to_owned(), self.get(name)?));
        // Ambiguous names have no single value.
        self.by_name.iter().filter(|(name, _)| !self.ambiguous.contains_key(*name)).filter_map(value).collect()
    }
}

/// Creates the error for a name that several enumerations `enums` use for an enumerator.
fn ambiguous(name: &str, enums: &[&str], at: &Span) -> Diagnostic {
    let of = enums.iter().map(|of| format!("`{of}`")).collect::<Vec<_>>().join(" and ");
    let mut diagnostic = Diagnostic::new(Code::UnknownConstant, format!("`{name}` is an enumerator of {of}"))
        .at(at, "it is not clear which of them is meant");
    for of in enums {
        diagnostic = diagnostic.help(format!("write `{of}::{name}`"));
    }
    diagnostic
}
