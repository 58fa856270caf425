//! `rpcping --call`, which calls a procedure of a specification with arguments and results in JSON.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::Path,
    process::ExitCode,
};

use bytes::Bytes;
use rpcrdma::{
    client::CallOptions,
    service::{ProcedureId, ReplyBounds},
    xdr::{EncodeError, Sink, XdrEncode, XdrType},
};
use rpcrdma_examples::command::Stop;
use rpcrdma_xdrgen::{
    Compiler,
    decode::{EncodedPart, JsonCall, JsonProcedure},
    ir::Spec,
};
use serde_json::{Value, json};

use crate::{
    cli::Cli,
    connect,
    failure::{Failure, Kind, call_failure},
    lookup,
};

/// Calls the procedure, and prints the result or the failure, unless a signal comes first. Returns the exit code.
pub(crate) async fn run(mut cli: Cli, stop: &mut Stop) -> ExitCode {
    let result = tokio::select! {
        result = call(&mut cli) => result,
        () = stop.next() => return ExitCode::from(Kind::NoReply as u8),
    };
    match result {
        Ok(value) => {
            // Ignore write errors: the reader of standard output may have exited.
            let shown = if cli.json { json!({ "url": cli.url, "result": value }) } else { value };
            let _ = writeln!(io::stdout(), "{shown:#}");
            ExitCode::SUCCESS
        }
        Err(failure) => connect::failed(&cli, &failure),
    }
}

fn wrong_usage(message: impl Into<String>) -> Failure {
    Failure { kind: Kind::Usage, message: message.into() }
}

async fn call(cli: &mut Cli) -> Result<Value, Failure> {
    let [file, name, arguments @ ..] = &cli.call[..] else {
        return Err(wrong_usage("--call needs a FILE and a PROCEDURE"));
    };
    let spec = compile(cli, Path::new(file))?;
    let version = (cli.version != 0).then_some(cli.version);
    let procedure = JsonProcedure::find(&spec, name, version).map_err(|error| wrong_usage(error.to_string()))?;
    let arguments = read_arguments(arguments.first().map(String::as_str))?;
    let mut read_file = |name: &str| fs::read(name).map_err(|error| format!("cannot read {name}: {error}"));
    let call = procedure
        .encode(&arguments, &mut read_file)
        .map_err(|error| wrong_usage(format!("invalid arguments of {name}: {error}")))?;
    (cli.program, cli.version) = (procedure.program(), procedure.version());
    cli.url = lookup::find(cli).await?;
    let channel = connect::connect(cli, connect::builder(cli)?).await?;
    let mut bounds = ReplyBounds::new(call.max_inline, &call.max_items);
    bounds.total = call.max_total;
    let bounds = if call.is_estimate { bounds.estimated() } else { bounds };
    let mut options = CallOptions::new().timeout(cli.timeout).reply_bounds(bounds);
    if procedure.is_idempotent() {
        options = options.repeatable();
    }
    let id = ProcedureId::new(cli.program, cli.version, procedure.number());
    let arguments = Arguments::new(call);
    let reply = channel.call_dynamic(id, "PROCEDURE", &arguments, options, |decoder| {
        let (inline, chunks) = decoder.take_rest();
        Ok((inline.to_vec(), chunks.iter().map(|chunk| chunk.data.clone()).collect::<Vec<_>>()))
    });
    let (inline, chunks) = reply.await.map_err(|error| call_failure(&error, 0, cli))?;
    channel.close().await;
    let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
    let invalid = |error: &dyn std::fmt::Display| Failure {
        kind: Kind::NotRpc,
        message: format!("invalid result of {name} from {}: {error}", cli.url),
    };
    let result = procedure.decode(&inline, &chunks).map_err(|error| invalid(&error))?;
    serde_json::from_str(&result).map_err(|error| invalid(&error))
}

/// Compiles the specification in `file`, with the bindings and include folders of the command line.
fn compile(cli: &Cli, file: &Path) -> Result<Spec, Failure> {
    let compiler = cli.ulb.iter().fold(Compiler::new().file(file), Compiler::ulb);
    let compiler = cli.include.iter().fold(compiler, Compiler::include_dir);
    let compiled = compiler.compile().map_err(|errors| wrong_usage(format!("invalid specification\n{errors}")))?;
    Ok(compiled.spec)
}

/// Returns the JSON text of the arguments. `text` is the JSON itself, `@FILE` for a file, or `-` for standard input.
/// `None` stands for the arguments `null`.
fn read_arguments(text: Option<&str>) -> Result<String, Failure> {
    match text {
        None => Ok("null".to_owned()),
        Some("-") => {
            let mut text = String::new();
            let read = io::stdin().lock().read_to_string(&mut text);
            read.map_err(|error| wrong_usage(format!("cannot read standard input: {error}")))?;
            Ok(text)
        }
        Some(text) => match text.strip_prefix('@') {
            Some(file) => fs::read_to_string(file).map_err(|error| wrong_usage(format!("cannot read {file}: {error}"))),
            None => Ok(text.to_owned()),
        },
    }
}

/// Encoded arguments. The engine may send the eligible items in them as Read chunks.
struct Arguments(Vec<ArgumentPart>);

enum ArgumentPart {
    Inline(Vec<u8>),
    Eligible(Bytes),
}

impl Arguments {
    fn new(call: JsonCall) -> Self {
        let parts = call.parts.into_iter().filter_map(|part| match part {
            EncodedPart::Inline(bytes) => Some(ArgumentPart::Inline(bytes)),
            EncodedPart::Eligible(bytes) => Some(ArgumentPart::Eligible(bytes.into())),
            _ => None,
        });
        Self(parts.collect())
    }
}

impl XdrType for Arguments {
    const MIN_LEN: usize = 0;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = None;
    const MAX_DDP_ITEMS: Option<u32> = None;
}

impl XdrEncode for Arguments {
    fn encoded_len(&self) -> usize {
        let len = |part: &ArgumentPart| match part {
            ArgumentPart::Inline(bytes) => bytes.len(),
            ArgumentPart::Eligible(bytes) => bytes.len().next_multiple_of(4),
        };
        self.0.iter().map(len).sum()
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        for part in &self.0 {
            match part {
                ArgumentPart::Inline(bytes) => sink.put(bytes),
                ArgumentPart::Eligible(bytes) if sink.reduce(bytes) => {}
                ArgumentPart::Eligible(bytes) => {
                    sink.put(bytes);
                    sink.put_padding(bytes.len());
                }
            }
        }
        Ok(())
    }
}
