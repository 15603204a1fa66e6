# memcached asked by a small client, over TCP and a Unix socket.
#: deb=memcached,python3
[ "$(id -u)" = 0 ] && U='-u root' || U=
memcached $U -l 127.0.0.1 -p "$PORT" -U 0 -t 2 &
memcached $U -s "$D/m" -t 2 &
await connects "$PORT"
await test -S "$D/m"
python3 "$PROGRAMS/memcached.py" "$PORT" "$D/m"
