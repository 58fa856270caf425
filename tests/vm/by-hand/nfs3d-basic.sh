# about: a table, for an idle machine and --jobs 1, on two processors: the operations of cthon04's basic tests and 1,500 statfs by Linux's client, with Linux's server and with nfs3d
# fabric: rxe
# programs: nfs3d
# timeout: 900
. /suite/guest/perf.sh
. /suite/guest/nfs3d.sh
# As with cthon04, the client caches attributes.
knfsd_up
nfs_mount 3 "$SCRATCH/kernel"
nfs3d_up basic "rdma://$ADDR:20100" 20101 --no-root-squash
nfs3d_mount "$SCRATCH/ours" 20100 20101
chmod 1777 /srv/nfs "$SCRATCH/export-basic"
chmod 755 "$SCRATCH"
rounds=5

# One process makes many calls, and the shell itself creates files and lists folders, so that the time is that of the calls.
cat >"$SCRATCH/tests" <<'TESTS'
set -euo pipefail
repeat() { # repeat COUNT WORD..
  local count=$1
  shift
  for ((; count > 0; count--)); do printf '%s\n' "$@"; done
}
# A tree of 5 levels, with 62 folders and 155 files.
folders=() files=() level=('')
for depth in 1 2 3 4 5; do
  next=()
  for folder in "${level[@]}"; do
    for nth in 1 2 3 4 5; do files+=("$folder""file.$nth"); done
    for nth in 1 2; do folders+=("$folder""dir.$nth") next+=("$folder""dir.$nth/"); done
  done
  level=("${next[@]}")
done
case $1 in
  create | remove) ;;
  *) mkdir "$1" && cd "$1" ;;
esac
case $1 in
  create) mkdir "${folders[@]}" && for name in "${files[@]}"; do : >"$name"; done ;;
  remove) rm -r dir.1 dir.2 file.* ;;
  cwd) stat $(repeat 500 "$PWD") ;;
  attributes) # 1,000 of each, on 10 files
    for name in {1..10}; do : >"$name"; done
    for mode in 600 666; do
      chmod $mode $(repeat 50 {1..10})
      stat $(repeat 50 {1..10})
    done
    ;;
  write) for nth in {1..10}; do dd if=/dev/zero of=../big bs=8k count=128 status=none; done ;;
  read) for nth in {1..10}; do dd if=../big of=/dev/null bs=8k iflag=direct status=none; done ;;
  readdir)
    for name in {1..200}; do : >"file.$name"; done
    # Each new file makes the client list the folder again.
    for nth in {1..50}; do
      : >"new.$nth"
      set -- *
      [ $# -eq $((200 + nth)) ]
    done
    ;;
  rename) # and link
    mkdir there back
    for name in {1..100}; do : >"$name"; done
    ln {1..100} there
    mv {1..100} back
    mv there/* .
    ln -f back/* there
    ;;
  symlink) mkdir links && ln -s target.{1..200} links && readlink links/* links/* ;;
  statfs) stat -f $(repeat 1500 .) ;;
esac
TESTS
declare -A took=() switched=()
# The context switches of the whole guest depend less on other load than the time.
switches() { awk '/^ctxt/ { print $2 }' /proc/stat; }
timed() { # timed SERVER TEST
  local switches begun took_us
  switches=$(switches) begun=${EPOCHREALTIME//./}
  "${as[@]}" bash "$SCRATCH/tests" "$2" >"$SCRATCH/timed.out" 2>&1 || fail "$1: $2: $(tail -n 1 "$SCRATCH/timed.out")"
  took_us=$((${EPOCHREALTIME//./} - begun))
  switches=$(($(switches) - switches))
  took[$1,$2]+=" $took_us" switched[$1,$2]+=" $switches"
  [ "$2" = statfs ] || sum=$((sum + took_us)) all_switches=$((all_switches + switches))
}
tests='create remove cwd attributes write read readdir rename symlink statfs'
table "user" "test" "Linux (ms)" "nfs3d (ms)" "ratio" "ratios of the rounds" "switches, Linux" "switches, nfs3d" "ratio"
for user in root other; do
  as=()
  [ $user = root ] || as=(setpriv --reuid=1000 --regid=1000 --clear-groups)
  took=() switched=()
  # Alternate, so that other load affects both alike.
  for round in $(seq $rounds); do
    servers='kernel ours'
    [ $((round % 2)) -eq 1 ] || servers='ours kernel'
    for server in $servers; do
      mkdir -m 777 "$SCRATCH/$server/$user$round"
      cd "$SCRATCH/$server/$user$round"
      sum=0 all_switches=0
      for test in $tests; do timed $server "$test"; done
      took[$server,all but statfs]+=" $sum" switched[$server,all but statfs]+=" $all_switches"
      cd "$SCRATCH"
      rm -r "${SCRATCH:?}/$server/$user$round"
    done
    log "$user: round $round done"
  done
  for test in $tests 'all but statfs'; do
    read -ra linux <<<"${took[kernel,$test]}"
    read -ra ours <<<"${took[ours,$test]}"
    ratios=()
    for nth in "${!linux[@]}"; do ratios+=("$(ratio "${ours[nth]}" "${linux[nth]}")"); done
    log "$user, $test: Linux ${linux[*]}; nfs3d ${ours[*]} (us)"
    # shellcheck disable=SC2086
    few=$(median ${switched[kernel,$test]}) many=$(median ${switched[ours,$test]})
    row $user "$test" "$(scale "$(median "${linux[@]}")" 0.001)" "$(scale "$(median "${ours[@]}")" 0.001)" "$(median "${ratios[@]}")" "${ratios[*]}" \
      "$few" "$many" "$(ratio "$many" "$few")"
  done
done
log "results"
cat "$REPORT"
for server in kernel ours; do umount "$SCRATCH/$server"; done
nfs3d_down basic
