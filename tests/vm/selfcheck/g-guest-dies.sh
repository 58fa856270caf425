# about: the guest reboots during the case
# fabric: rxe
# timeout: 20
echo b >/proc/sysrq-trigger
sleep 20
