# about: the device exists, its port is active, and its transport is that of the fabric
# fabric: rxe siw
# timeout: 20
try 10 ibv_devinfo -d "$DEVICE" -v
grep -q 'state:.*PORT_ACTIVE' try.out || fail "$DEVICE has no active port"
case $FABRIC in
  siw) grep -q 'transport:.*iWARP' try.out || fail "$DEVICE is not an iWARP device" ;;
  rxe) grep -q 'transport:.*InfiniBand' try.out || fail "$DEVICE is not an InfiniBand device" ;;
esac
