//! Startup, operation and shutdown of the server.

use std::{
    env, fs,
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use rpcrdma::{config::ConnectionConfig, engine::ConnectionCounters, server::Server, transport::Url};
use rpcrdma_examples::{
    command::{self, Health, Stop},
    nfs3d::{
        Export,
        acl::AclService,
        identity::{Identities, Squash},
        key::Secret,
        mount::MountService,
        principals::Principals,
        service::{NfsService, duplicate_requests},
    },
};
use rpcrdma_specs::{
    mount3::mount_v3::{self, MountV3Server},
    nfs3::{
        self,
        nfs_v3::{self, NfsV3Server},
    },
    nfsacl3::nfs_acl_v3::{self, NfsAclV3Server},
};

use crate::{cli::Cli, locks::Locks};

/// Maximum number of connections to the MOUNT service. A client needs one only briefly, when it mounts or unmounts.
const MAX_MOUNTING: usize = 64;

/// Starts all services, serves until a signal stops the server, and prints the totals.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<()> {
    let health = cli.metrics.start().await?;
    let export = Arc::new(open(&cli)?);
    let name = cli.export.clone().map_or_else(|| export.path().as_os_str().as_bytes().to_vec(), String::into_bytes);

    let service = NfsService::new(Arc::clone(&export));
    let pool = cli.connections.pool();
    let config = ConnectionConfig::new().credits(cli.credits).pool(pool.clone());
    let nfs = Server::builder();
    let nfs = if cli.acl { nfs.service(NfsAclV3Server::new(AclService::new(service.clone()))) } else { nfs };
    let nfs = nfs
        .service(NfsV3Server::new(service.clone()))
        .health(&rpcrdma::health::Health::new())
        .duplicate_requests(nfs3::nfs_v3::PROGRAM, duplicate_requests())
        .connection(config);
    // The export decides which flavors are accepted for which call.
    let secure = cli.sec.authenticator(false)?;
    let tls = cli.tls.read()?;
    let nfs = cli.connections.apply(cli.drain.apply(cli.introspection.apply(tls.apply(secure(nfs)))), &cli.listen);
    let (nfs, threads) = cli.threads.bind(nfs, &cli.listen).await?;
    let mount = MountService::new(Arc::clone(&export), name.clone());
    // MOUNT is served over TCP (RFC 8267 §5.1).
    let mount = Server::builder().service(MountV3Server::new(mount)).max_connections(MAX_MOUNTING);
    let mount = cli.drain.apply(tls.apply(secure(mount)));
    let mount = mount.listen(&cli.mount).bind().await?;
    let locks = match &cli.locks {
        Some(url) => {
            let settings = |server| cli.drain.apply(tls.apply(server));
            Some(Locks::bind(&export, &state(&cli)?, url, cli.grace, &cli.register, settings).await?)
        }
        None => None,
    };

    // Install the signal handlers before printing the URLs: whoever reads them may send a signal at once.
    let stop = Stop::new().context("cannot catch signals")?;
    announce(&export, &name, [&nfs, &mount], locks.as_ref(), &health)?;

    let (nfs_handle, mount_handle) = (nfs.handle(), mount.handle());
    let (lock_handle, lock_manager) = (locks.as_ref().map(Locks::handle), locks.as_ref().map(Locks::manager));
    let mut registered = match &locks {
        Some(locks) => Vec::from(locks.register(&cli.register).await?),
        None => Vec::new(),
    };
    let mut programs = vec![(nfs_v3::PROGRAM, nfs_v3::VERSION)];
    if cli.acl {
        programs.push((nfs_acl_v3::PROGRAM, nfs_acl_v3::VERSION));
    }
    registered.extend([
        cli.register.register(&programs, nfs.urls(), &nfs_handle).await?,
        cli.register
            .register_with_rpcbind(&[(mount_v3::PROGRAM, mount_v3::VERSION)], mount.urls(), &mount_handle)
            .await?,
    ]);
    let serving = async {
        let serve_locks = async {
            if let Some(locks) = locks {
                locks.serve().await;
            }
        };
        tokio::join!(nfs.serve(), mount.serve(), serve_locks);
        threads.end().await;
    };
    let shut_down = || {
        for connection in nfs_handle.connections() {
            tracing::info!(peer = %connection.peer_addr, counters = ?connection.counters, "connection");
        }
        nfs_handle.shutdown();
        mount_handle.shutdown();
        if let Some(handle) = &lock_handle {
            handle.shutdown();
        }
    };
    command::serve(serving, stop, &health, shut_down).await;
    for registered in registered {
        registered.removed().await;
    }
    // Ignore write errors: the reader of standard output may have exited.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "served: {}", service.counters());
    let stats = nfs_handle.stats();
    let _ = writeln!(out, "connections: {stats}");
    if let Some(manager) = lock_manager {
        let (files, locks) = manager.totals();
        let _ = writeln!(out, "locks: {locks} still held on {files} files");
    }
    let held = pool.stats().outstanding;
    let ConnectionCounters { exposed_regions: exposed, registered_bytes: registered, .. } = stats.counters;
    let _ = writeln!(
        out,
        "memory: {held} buffers still held, {exposed} regions still exposed, {registered} bytes still registered"
    );
    Ok(())
}

fn open(cli: &Cli) -> anyhow::Result<Export> {
    let mount: Url = cli.mount.parse().context("--mount")?;
    // RFC 8267 §5.1
    if mount.scheme() != rpcrdma::transport::Scheme::TCP {
        bail!("--mount {}: MOUNT is served over TCP only; use tcp://ADDRESS:PORT", cli.mount);
    }
    let root = cli.root.canonicalize().with_context(|| format!("cannot export {}", cli.root.display()))?;
    let state = state(cli)?;
    let secret = Secret::keep_in(&state)
        .with_context(|| format!("cannot store the file handle key in {} (see --state)", state.display()))?;
    if state.canonicalize().is_ok_and(|state| state.starts_with(&root)) {
        bail!("{} is in the export, where clients could read the file handle key (see --state)", state.display());
    }
    let squash = match (cli.no_root_squash, cli.all_squash) {
        (_, true) => Squash::All,
        (true, _) => Squash::None,
        _ => Squash::Root,
    };
    let uses_devices = cli.listen.iter().any(|url| url.starts_with("rdma:"));
    let mut identities = Identities::new(squash, cli.anon_uid, cli.anon_gid).with_any_thread(!uses_devices);
    if let Some(file) = &cli.principals {
        let failed = || format!("cannot use the principals in {}", file.display());
        let text = fs::read_to_string(file).with_context(failed)?;
        identities = identities.with_principals(Principals::parse(&text).with_context(failed)?);
    }
    identities.check()?;
    if !identities.enforced() && !cli.all_squash {
        tracing::warn!("not running as root: only calls of the server's own user are accepted (see --all-squash)");
    }
    let export = Export::open(&root, &secret, identities);
    let export = export.with_context(|| format!("cannot export {}", root.display()))?;
    let export = export.with_max_transfer(cli.connections.max_data());
    Ok(export.with_flavors(cli.sec.sec.clone().unwrap_or_default()))
}

/// Returns the directory of the file handle key and of the list of hosts with locks.
fn state(cli: &Cli) -> anyhow::Result<PathBuf> {
    if let Some(state) = &cli.state {
        return Ok(state.clone());
    }
    let folder = |variable: &str| env::var_os(variable).filter(|path| Path::new(path).is_absolute()).map(PathBuf::from);
    if let Some(state) = folder("STATE_DIRECTORY") {
        return Ok(state);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/nfs3d"));
    }
    let home = || folder("HOME").map(|home| home.join(".local/state"));
    let folder = folder("XDG_STATE_HOME").or_else(home);
    Ok(folder.context("no directory for the file handle key: use --state STATE_DIR")?.join("nfs3d"))
}

/// Prints the exported path, and the URLs of the services and of the metrics.
fn announce(
    export: &Export,
    name: &[u8],
    [nfs, mount]: [&Server; 2],
    locks: Option<&Locks>,
    health: &Health,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "exporting {} as {}", export.path().display(), name.escape_ascii())?;
    for url in nfs.urls() {
        writeln!(out, "NFS on {url}")?;
    }
    if let Some(locks) = locks {
        let (urls, udp) = locks.urls();
        for url in urls {
            writeln!(out, "NLM and NSM on {url}")?;
        }
        writeln!(out, "NSM on {udp}")?;
    }
    for url in mount.urls() {
        writeln!(out, "MOUNT on {url}")?;
    }
    if let Some(url) = health.url() {
        writeln!(out, "metrics on {url}")?;
    }
    out.flush()?;
    Ok(())
}
