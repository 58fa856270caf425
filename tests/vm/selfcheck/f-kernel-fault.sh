# about: all commands succeed, but the kernel logs a warning
# fabric: rxe
# timeout: 20
echo "WARNING: CPU: 0 PID: 1 at a/file.c:1" >/dev/kmsg
