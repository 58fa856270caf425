# Functions for cases. A case ends at the first command that fails; `fail` gives a reason. It is the first process of its
# PID namespace, so that all that it has started ends with it.
#
#   $BIN   the project's programs           $TOP   the repository
#   $PEER  what was prepared: for packages of Debian, $PEER/root has the unpacked packages
#   $WORK  a folder for files and logs, empty at the start. It is /case in the peer's root

cd "$WORK"
ip link set lo up

log() { echo "[$SECONDS s] $*"; }
fail() { # fail WHY..
  trap - ERR
  echo "$*" >"$WORK/reason"
  log "FAIL: $*"
  exit 1
}
# not_run WHY..: ends a case that cannot run here
not_run() {
  echo "$*" >"$WORK/reason"
  exit 3
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR

# start NAME COMMAND..: runs a command in the background, with its output in NAME.log; ${PID[NAME]} is its process
declare -A PID=()
start() {
  local name=$1
  shift
  log "start $name: $*"
  "$@" >"$name.log" 2>&1 &
  PID[$name]=$!
}

# listening NAME PORT: waits until a process that was started listens on a port
listening() {
  local _
  for _ in {1..600}; do
    if (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; then return 0; fi
    kill -0 "${PID[$1]}" 2>/dev/null || fail "$1 has ended: $(tail -n 1 "$1.log")"
    sleep 0.1
  done
  fail "$1 does not listen on port $2: $(tail -n 1 "$1.log")"
}

# refused PATTERN COMMAND..: runs a command that must fail with a message that matches
refused() {
  local pattern=$1
  shift
  if "$@" >refused.out 2>&1; then fail "was not refused: $*"; fi
  grep -qE -- "$pattern" refused.out || fail "refused for another reason than $pattern: $(tail -n 1 refused.out)"
}

# same FILE FILE
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

# make_files FOLDER SIZE..: makes files of noise, named after their sizes
make_files() {
  local folder=$1 size
  shift
  mkdir -p "$folder"
  for size in "$@"; do head -c "$size" /dev/urandom >"$folder/$size"; done
}

# ---- the peer's root ----

# mount_root: makes the root usable. Its own files stay as they were unpacked.
mount_root() {
  local folder
  mount --rbind /dev "$PEER/root/dev"
  mount --rbind /proc "$PEER/root/proc"
  for folder in run tmp var/lib/nfs; do mount -t tmpfs tmpfs "$PEER/root/$folder"; done
  mkdir -p "$PEER"/root/run/{ganesha,rpcbind} "$PEER/root/var/lib/nfs/ganesha"
  mount --bind "$WORK" "$PEER/root/case"
}

# in_root COMMAND..: runs a program of the peer. Files of the case are in /case.
in_root() { chroot "$PEER/root" "$@"; }

# can_run_rpcbind: rpcbind changes to a user of its own, which fails if only one user is mapped
can_run_rpcbind() { [ "$(cat /proc/self/setgroups)" = allow ]; }

# start_rpcbind: runs rpcbind, also for programs outside of the peer's root
start_rpcbind() {
  can_run_rpcbind || not_run "needs root, or a range of users for namespaces (/etc/subuid and the package uidmap)"
  mount --bind "$PEER/root/run" /run
  start rpcbind in_root rpcbind -f -w
  listening rpcbind 111
}

# start_ganesha FSAL SEC BLOCK..: runs nfs-ganesha on ports 2049 and 20048. The export is /export, or the
# folder /case/export of a file system
start_ganesha() {
  local fsal=$1 sec=$2 path=/export
  shift 2
  case $fsal in
    VFS) path=/case/export ;;
    # The longest data that a file in memory can have.
    MEM) set -- "MEM { Inode_Size = 0x200000; }" "$@" ;;
  esac
  [[ $sec == *krb5* ]] || set -- "NFS_KRB5 { Active_krb5 = false; }" "$@"
  cat >ganesha.conf <<CONF
NFS_CORE_PARAM {
  Protocols = 3; NFS_Port = 2049; MNT_Port = 20048;
  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
  allow_set_io_flusher_fail = true;
}
EXPORT {
  Export_Id = 1; Path = $path; Pseudo = /export; Protocols = 3; Transports = TCP;
  Access_Type = RW; Squash = All_Squash; Anonymous_Uid = 0; Anonymous_Gid = 0; SecType = $sec; ${EXPORT_OPTIONS:-}
  FSAL { Name = $fsal; }
}
$(printf '%s\n' "$@")
CONF
  start_rpcbind
  start ganesha in_root ganesha.nfsd -F -L /dev/stderr -N EVENT -f /case/ganesha.conf -p /run/ganesha/pid
  listening ganesha 2049
  listening ganesha 20048
}

# nfscp ARGUMENT..: runs nfscp; a case may replace this function
nfscp() { "$BIN/nfscp" "$@"; }

# round_trip URL FOLDER OPTION..: copies files to a server and back with nfscp, and compares
round_trip() {
  local url=$1 files=$2 file
  shift 2
  log "nfscp $* $url"
  rm -rf back && mkdir back
  nfscp -q --verify "$@" "$files"/* "$url/"
  for file in "$files"/*; do nfscp -q --verify "$@" "$url/$(basename "$file")" back/; done
  diff -r "$files" back || fail "the files copied back differ"
}

# tree_round_trip URL OPTION..: copies a tree with a long listing and links to a server and back, and compares
tree_round_trip() {
  local url=$1
  shift
  log "nfscp -rp $* $url"
  if [ ! -d tree ]; then
    make_files tree/a/b 0 1 5000
    mkdir tree/empty
    ln -s '../a/b/1' tree/a/link
    ln -s 'nothing there' tree/dangling
    chmod 751 tree/a/b/1
    mkdir tree/many
    seq -f 'tree/many/entry number %04.0f of a long listing' 400 | xargs -d '\n' touch -d '2001-02-03 04:05:06.789'
  fi
  rm -rf back-tree
  nfscp -q -rp "$@" tree "$url/"
  nfscp -q -rp "$@" "$url/tree" back-tree
  diff -r --no-dereference tree back-tree || fail "the tree copied back differs"
  diff <(facts tree) <(facts back-tree) || fail "modes, times or links of the tree copied back differ"
}

# facts FOLDER: prints names, types, modes, link targets, and the sizes and times of files
facts() { (cd "$1" && find . -mindepth 1 \( -type f -printf '%p f %m %s %T@\n' -o -printf '%p %y %m %l\n' \) | sort); }

# ---- the project's server ----

# start_nfs3d OPTION..: runs nfs3d on ports 2049 and 20048, with the folder `export` as the export /e
start_nfs3d() {
  mkdir -p export
  start nfs3d "$BIN/nfs3d" --root export --state state --export /e --no-root-squash --listen tcp://127.0.0.1:2049 \
    --mount tcp://127.0.0.1:20048 "$@"
  listening nfs3d 2049
  listening nfs3d 20048
}

# start_realm: makes a realm with its KDC, a ticket of alice, and a keytab of nfs/localhost and host/localhost
start_realm() {
  "$TOP/tests/krb5/realm" "$WORK/realm" 8888
  set -a
  # shellcheck disable=SC1091 # made by the line above
  . "$WORK/realm/env"
  set +a
  echo alice | kinit alice >/dev/null
}
