# about: userspace iWARP as client, kernel siw as server: sizes, FPDU sizes, CRC on and off, IPv6, many connections
# fabric: siw
# programs: iwping
# timeout: 90
capture iwping-to-rping
port=7200
ping() { # ping ADDRESS SIZE COUNT [OPTIONS..]: from iwping's client to a new rping server
  local address=$1 host=${1//[\[\]]/} size=$2 count=$3
  shift 3
  port=$((port + 1))
  start rping rping -s -a "$host" -p $port -S "$size"
  eventually 5 listening $port || fail "rping's server does not listen on $host port $port"
  try 15 "$BIN/iwping" client "$address:$port" --size "$size" --count "$count" "$@"
  finish rping 5
}
ping "$ADDR" 64 5 --verbose
ping "$ADDR" 65535 10
ping "$ADDR" 65535 3 --fpdu segment
ping "$ADDR" 1001 5 --fpdu 128
ping "$ADDR" 4097 3 --no-crc
ping "[$ADDR6]" 3333 3
stop tcpdump

log "many connections to one server"
start persistent rping -s -P -a "$ADDR" -p 7199 -S 4096
eventually 5 listening 7199
try 30 "$BIN/iwping" client "$ADDR:7199" --size 4096 --count 3 --connections 50
