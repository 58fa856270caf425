# about: kernel siw as client, userspace iWARP as server: sizes, FPDU sizes, CRC on and off, IPv6, many connections
# fabric: siw
# programs: iwping
# timeout: 150
capture rping-to-iwping
port=7200
ping() { # ping ADDRESS SIZE COUNT [OPTIONS..]: from rping's client to iwping's server with OPTIONS
  local address=$1 host=${1//[\[\]]/} size=$2 count=$3
  shift 3
  port=$((port + 1))
  start iwping "$BIN/iwping" server "$address:$port" --connections 1 "$@"
  eventually 5 grep -q listening "$SCRATCH/iwping.out" || fail "iwping does not listen: $(last_words iwping)"
  rping_client 15 "$count" -a "$host" -p $port -S "$size"
  finish iwping 5
  grep -q "$count pings" "$SCRATCH/iwping.out" || fail "iwping did not see $count pings: $(last_words iwping)"
}
ping "$ADDR" 64 5 --verbose
ping "$ADDR" 65535 10
ping "$ADDR" 65535 3 --fpdu segment
ping "$ADDR" 1001 5 --fpdu 128
ping "$ADDR" 4097 3 --no-crc
ping "[$ADDR6]" 3333 3
stop tcpdump

log "many connections to one server"
start iwping "$BIN/iwping" server "$ADDR:7199" --connections 20
eventually 5 grep -q listening "$SCRATCH/iwping.out"
for _ in {1..20}; do rping_client 10 3 -a "$ADDR" -p 7199 -S 4096; done
finish iwping 5
