# about: the guest reboots in the middle
# fabric: rxe
# timeout: 20
echo b >/proc/sysrq-trigger
sleep 20
