# about: starts a process and a mount, and does not clean up
# fabric: rxe
# timeout: 20
start left sleep 1000
mkdir -p /mnt/left
mount -t tmpfs left /mnt/left
try 5 true
unset "PID[left]"
