//! Writes protocols with random types and random eligible items, and the code that serves and calls them. The seeds are
//! fixed.
#![forbid(unsafe_code)]

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use fastrand::Rng;
use rpcrdma_xdrgen::Build;

/// Number of protocols.
const PROTOCOLS: u64 = 12;
/// Number of procedures of each protocol, apart from NULL.
const PROCEDURES: u64 = 3;
/// Program number of the first protocol.
const FIRST_PROGRAM: u64 = 0x2010_0C00;
/// Maximum nesting depth of types.
const MAX_DEPTH: u32 = 3;
/// The maximum lengths that eligible items can have, in bytes.
const ELIGIBLE: [u32; 4] = [16, 900, 4000, 20_000];

/// The XDR description of one protocol, which grows with each type.
#[derive(Default)]
struct Protocol {
    xdr: String,
    /// Number of types that were named so far.
    types: u32,
    /// Number of eligible items of the message that is being written.
    eligible: u32,
}

/// A declaration without its name: the text before and after the name, and the Rust expression of the declaration's
/// shape.
struct Declaration {
    before: String,
    behind: String,
    shape: String,
}

fn declaration(before: &str, behind: &str, shape: impl Into<String>) -> Declaration {
    Declaration { before: before.into(), behind: behind.into(), shape: shape.into() }
}

impl Declaration {
    fn named(&self, name: &str) -> String {
        let Self { before, behind, .. } = self;
        format!("    {before} {name}{behind};\n")
    }
}

impl Protocol {
    fn name(&mut self) -> String {
        self.types += 1;
        format!("type_{}", self.types)
    }

    /// Returns the name and the shape of a random type that can be an element of a list or an array.
    fn element(&mut self, rng: &mut Rng, depth: u32) -> (String, String) {
        match rng.u32(..if depth > 0 { 8 } else { 5 }) {
            0 => ("int".into(), "Shape::Word".into()),
            1 => ("unsigned int".into(), "Shape::Word".into()),
            2 => ("hyper".into(), "Shape::Hyper".into()),
            3 => ("unsigned hyper".into(), "Shape::Hyper".into()),
            4 => self.enumeration(rng),
            5 => self.union(rng, depth - 1),
            _ => self.structure(rng, depth - 1),
        }
    }

    fn enumeration(&mut self, rng: &mut Rng) -> (String, String) {
        let name = self.name();
        let values: Vec<u32> = (0..rng.u32(1..=4)).map(|index| 10 * index + rng.u32(..10)).collect();
        let upper = name.to_uppercase();
        let items: Vec<_> = values.iter().map(|value| format!("{upper}_{value} = {value}")).collect();
        let _ = writeln!(self.xdr, "enum {name} {{ {} }};\n", items.join(", "));
        (name, format!("Shape::Enum(&{values:?})"))
    }

    /// Returns a random declaration. One in three is eligible, until the message has four eligible items.
    fn declaration(&mut self, rng: &mut Rng, depth: u32) -> Declaration {
        if rng.u32(..3) == 0 && self.eligible < 4 {
            self.eligible += 1;
            return self.eligible(rng);
        }
        match rng.u32(..10) {
            0 => declaration("bool", "", "Shape::Bool"),
            1 => declaration("float", "", "Shape::Word"),
            2 => declaration("double", "", "Shape::Hyper"),
            3 => {
                let len = rng.u32(1..30);
                declaration("opaque", &format!("[{len}]"), format!("Shape::FixedOpaque({len})"))
            }
            4 => {
                let max = rng.u32(1..300);
                declaration("opaque", &format!("<{max}>"), format!("Shape::Opaque({max})"))
            }
            5 => {
                let max = rng.u32(1..300);
                declaration("string", &format!("<{max}>"), format!("Shape::Text({max})"))
            }
            kind => {
                let (name, shape) = self.element(rng, depth);
                let count = rng.u32(1..=4);
                match kind {
                    6 => declaration(&name, &format!("[{count}]"), format!("Shape::Array(&{shape}, {count})")),
                    7 => declaration(&name, &format!("<{count}>"), format!("Shape::List(&{shape}, {count})")),
                    8 => declaration(&format!("{name} *"), "", format!("Shape::Optional(&{shape})")),
                    _ => declaration(&name, "", shape),
                }
            }
        }
    }

    fn eligible(&mut self, rng: &mut Rng) -> Declaration {
        let max = ELIGIBLE[rng.usize(..ELIGIBLE.len())];
        match rng.u32(..5) {
            0 => declaration("@ddp string", &format!("<{max}>"), format!("Shape::Text({max})")),
            1 => declaration("@ddp opaque", &format!("[{max}]"), format!("Shape::FixedOpaque({max})")),
            2 => {
                let max = max / 8;
                declaration("@ddp unsigned hyper", &format!("<{max}>"), format!("Shape::List(&Shape::Hyper, {max})"))
            }
            _ => declaration("@ddp opaque", &format!("<{max}>"), format!("Shape::Opaque({max})")),
        }
    }

    fn structure(&mut self, rng: &mut Rng, depth: u32) -> (String, String) {
        let fields: Vec<_> = (0..rng.u32(1..=5)).map(|_| self.declaration(rng, depth)).collect();
        let name = self.name();
        let _ = writeln!(self.xdr, "struct {name} {{");
        for (index, field) in fields.iter().enumerate() {
            self.xdr += &field.named(&format!("field_{index}"));
        }
        self.xdr += "};\n\n";
        let shapes: Vec<_> = fields.into_iter().map(|field| field.shape).collect();
        (name, format!("Shape::Struct(&[{}])", shapes.join(", ")))
    }

    fn union(&mut self, rng: &mut Rng, depth: u32) -> (String, String) {
        let (count, has_default) = (rng.u32(1..=3), rng.bool());
        let arms: Vec<_> = (0..count).map(|_| (rng.u32(..4) > 0).then(|| self.declaration(rng, depth))).collect();
        let name = self.name();
        let _ = writeln!(self.xdr, "union {name} switch (unsigned int kind) {{");
        let mut shapes = Vec::new();
        for (index, arm) in arms.iter().enumerate() {
            let value = 3 * index + 1;
            let is_default = has_default && index + 1 == arms.len();
            if is_default {
                self.xdr += "default:\n";
            } else {
                let _ = writeln!(self.xdr, "case {value}:");
            }
            self.xdr += &arm.as_ref().map_or("    void;\n".into(), |arm| arm.named(&format!("arm_{index}")));
            let shape = arm.as_ref().map_or("Shape::Void", |arm| &arm.shape);
            shapes.push(format!("({value}, {shape})"));
        }
        self.xdr += "};\n\n";
        (name, format!("Shape::Union(&[{}])", shapes.join(", ")))
    }
}

/// Returns the Rust name that the compiler gives an XDR type.
fn rust_name(name: &str) -> String {
    name.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR")?;
    let (mut modules, mut statics, mut arms, mut services) =
        (String::new(), String::new(), String::new(), String::new());
    for index in 0..PROTOCOLS {
        let (mut rng, mut protocol) = (Rng::with_seed(index), Protocol::default());
        let (mut procedures, mut handlers) = (String::new(), String::new());
        for procedure in 0..PROCEDURES {
            let mut message = || {
                protocol.eligible = 0;
                protocol.structure(&mut rng, MAX_DEPTH)
            };
            let ((args, args_shape), (result, result_shape)) = (message(), message());
            let number = procedure + 1;
            writeln!(procedures, "        @idempotent {result} CALL_{number}({args}) = {number};")?;
            let [args, result] = [args, result].map(|name| rust_name(&name));
            let prefix = format!("P{index}_{number}");
            writeln!(
                statics,
                "static {prefix}_ARGS: Shape = {args_shape};\nstatic {prefix}_REPLY: Shape = {result_shape};"
            )?;
            write!(
                handlers,
                "    async fn call_{number}(&self, _cx: &Context, args: random_{index}::{args})\n        -> Result<random_{index}::{result}, HandlerError> {{\n        self.answer(&args, &{prefix}_REPLY).await\n    }}\n"
            )?;
            write!(
                arms,
                "        ({index}, {procedure}) => Box::pin(async move {{
            let client = random_{index}::random_{index}_v1::Random{index}V1Client::new(caller);
            let args: random_{index}::{args} = match {prefix}_ARGS.value(seed) {{
                Ok(args) => args,
                Err(error) => return Ok(Err(error)),
            }};
            let reply = client.call_{number}_with(&args, options).await?;
            Ok(compared(&args, &reply, &{prefix}_REPLY))
        }}).await,\n"
            )?;
        }
        let number = FIRST_PROGRAM + index;
        let xdr = format!(
            "{}program RANDOM_{index} {{\n    version RANDOM_{index}_V1 {{\n        @idempotent void NULL(void) = 0;\n{procedures}    }} = 1;\n}} = {number};\n",
            protocol.xdr
        );
        let path = Path::new(&out).join(format!("random_{index}.x"));
        fs::write(&path, xdr)?;
        Build::new().file(&path).run()?;
        writeln!(
            modules,
            "#[allow(unreachable_pub, missing_docs, dead_code, clippy::all, clippy::pedantic)]\nmod random_{index} {{\n    include!(concat!(env!(\"OUT_DIR\"), \"/random_{index}.rs\"));\n}}"
        )?;
        write!(
            modules,
            "impl random_{index}::random_{index}_v1::Random{index}V1 for RandomServices {{\n    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {{\n        Ok(())\n    }}\n{handlers}}}\n"
        )?;
        writeln!(
            services,
            "        .service(random_{index}::random_{index}_v1::Random{index}V1Server::new(services.clone()))"
        )?;
    }
    let code = format!(
        "{modules}{statics}
/// Number of random protocols.
pub(crate) const PROTOCOLS: u64 = {PROTOCOLS};
/// Number of procedures of each random protocol.
pub(crate) const PROCEDURES: u64 = {PROCEDURES};

/// Adds the services of all random protocols.
pub(crate) fn serve(builder: ServerBuilder, services: RandomServices) -> ServerBuilder {{
    builder
{services}}}

/// Calls a procedure of a random protocol with arguments that follow from a seed. The inner error describes a wrong
/// value.
pub(crate) async fn call<C: Invoke>(
    caller: C,
    protocol: u64,
    procedure: u64,
    seed: u64,
    options: CallOptions,
) -> Result<Result<u64, String>, CallError> {{
    match (protocol, procedure) {{
{arms}        _ => Ok(Err(\"there is no such protocol\".into())),
    }}
}}
"
    );
    fs::write(Path::new(&out).join("random_protocols.rs"), code)?;
    Ok(())
}
