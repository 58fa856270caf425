# about: a command fails
# fabric: rxe
# timeout: 20
inner() { cmp /etc/passwd /etc/group >/dev/null; }
inner
