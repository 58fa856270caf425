# about: rdma-core's rping as client and server, IPv4 and IPv6: the reference for iwping
# fabric: rxe siw
# alternate: yes
# timeout: 40
ping() { # ping ADDRESS SIZE COUNT
  start server rping -s -a "$1" -S "$2" -C "$3"
  eventually 5 listening 7174 || fail "rping's server does not listen on $1"
  rping_client 15 "$3" -a "$1" -S "$2"
  finish server 5
}
ping "$ADDR" 64 5
ping "$ADDR" 65535 3
# siw of Linux 7.3: rping's server waits for ever, and its client as well.
if [ "$FABRIC" = siw ] && is_linux_7; then log "not over IPv6 with Linux 7"; else ping "$ADDR6" 64 2; fi
