# Test suites for file systems on a mount. $BIN/suites has them: `tests/vm/suites/build`.
#
# Each function runs a suite in a folder of a mount, with other accesses to it only by the suite, and writes a line for each test to
# a file: `ok NAME`, or `not ok NAME`.

SUITES=$SCRATCH/suites

# suites_up: copies the suites to memory
suites_up() {
  mkdir -p "$SUITES/tools"
  cp -r "$BIN"/suites/{pjdfstest,cthon04,fsx,fsstress} "$SUITES/"
  # pjdfstest needs random names.
  printf '%s\n' '#!/bin/bash' 'md5sum | cut -d" " -f1' >"$SUITES/tools/openssl"
  chmod +x "$SUITES/tools/openssl"
  # The suites run commands with sh, and bash's process substitution needs /dev/fd.
  [ -e /bin/sh ] || ln -s bash /bin/sh
  [ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
}

# told NAME RESULTS COMMAND..: runs a test, which succeeds if the command does
told() {
  local name=$1 results=$2
  shift 2
  if "$@"; then echo "ok $name" >>"$results"; else echo "not ok $name" >>"$results"; fi
}

# pjdfstest FOLDER RESULTS: a test is `pjdfstest/FILE:NUMBER`
pjdfstest() {
  local folder=$1 results=$2 test name
  while read -r test; do
    name=${test#"$SUITES/pjdfstest/tests/"}
    (cd "$folder" && PATH=$SUITES/tools:$PATH timeout 600 bash "$test") >"$results.out" 2>"$results.err" </dev/null ||
      echo "not ok pjdfstest/$name" >>"$results"
    sed -nE "s#^(not ok|ok) ([0-9]+).*#\1 pjdfstest/$name:\2#p" "$results.out" >>"$results"
    # A test with fewer lines than it announced has ended early.
    [ "$(sed -nE 's/^1\.\.([0-9]+).*/\1/p' "$results.out" | head -n 1)" -le "$(grep -cE '^(not )?ok ' "$results.out")" ] ||
      echo "not ok pjdfstest/$name" >>"$results"
    sed -n "s|^not ok|$name: &|p" "$results.out"
  done < <(find "$SUITES/pjdfstest/tests" -name '*.t' | sort)
}

# connectathon FOLDER RESULTS: cthon04's basic, general and special tests
connectathon() {
  local folder=$1 results=$2 test at
  # The second test removes what the first one created.
  for test in 1 2 3 4 5 5a 5b 6 7 7a 7b 8 9; do
    told "cthon04/basic/test$test" "$results" env -C "$SUITES/cthon04/basic" NFSTESTDIR="$folder/basic" timeout 300 "./test$test"
  done
  at=$folder/special
  mkdir "$at"
  while read -r test; do
    # shellcheck disable=SC2086 # a command with arguments
    told "cthon04/special/${test%% *}" "$results" env -C "$at" TMPDIR= timeout 600 "$SUITES/cthon04/special/"$test </dev/null
  done <<'TESTS'
op_unlk
op_ren
op_chmod
dupreq 100 testfile
excltest
negseek testfile
rename 100
truncate
holey
nfsidem 50 testdir
rewind
telldir
freesp
bigfile -s 30 bigfile
bigfile2 bigfile2
TESTS
  # The general tests compile and format, so they run where there is a compiler.
  at=$folder/general
  mkdir "$at"
  cp "$SUITES"/cthon04/general/* "$at/"
  # shellcheck disable=SC2016 # the inner shells expand these
  told cthon04/general "$results" unshare --mount bash -ec '
    mount --bind "$1" "$2/mnt"
    mount --bind /dev "$2/dev"
    mount -t tmpfs tmpfs "$2/tmp"
    export CC=gcc CFLAGS=-w NFSTESTDIR=/mnt PATH=/usr/bin:/usr/sbin:.
    exec timeout 1500 chroot "$2" /bin/bash -c "cd /mnt && exec bash ./runtests.wrk FROM_RUNTESTS"
  ' - "$at" "$BIN/suites/root"
}

# random_operations FOLDER RESULTS: fsx and fsstress, with seeds
random_operations() {
  local folder=$1 results=$2 seed
  for seed in 1 2 3; do
    told "fsx/$seed" "$results" timeout 600 "$SUITES/fsx" -q -N 3000 -S $seed "$folder/fsx-$seed"
    told "fsx-direct/$seed" "$results" timeout 600 "$SUITES/fsx" -q -N 2000 -S $seed -Z -r 4096 -w 4096 -t 4096 "$folder/fsx-direct-$seed"
    mkdir "$folder/fsstress-$seed"
    told "fsstress/$seed" "$results" timeout 900 "$SUITES/fsstress" -d "$folder/fsstress-$seed" -n 300 -p 4 -s $seed
    told "fsstress-removed/$seed" "$results" timeout 300 rm -r "$folder/fsstress-$seed"
  done
}
