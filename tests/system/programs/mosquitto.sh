# Mosquitto: subscribers, many messages, retained ones.
#: deb=mosquitto,mosquitto-clients
printf 'listener %s 127.0.0.1\nallow_anonymous true\npersistence false\n' "$PORT" >conf
[ "$(id -u)" = 0 ] && echo 'user root' >>conf
mosquitto -c conf >log 2>&1 &
S=$!
await mosquitto_pub -h 127.0.0.1 -p "$PORT" -t x -m x
mosquitto_pub -h 127.0.0.1 -p "$PORT" -t kept -r -m kept
for n in 1 2; do mosquitto_sub -h 127.0.0.1 -p "$PORT" -t 'a/#' -t kept -q 1 -C 1001 >got$n & done
both() { [ -s got1 ] && [ -s got2 ]; }
await both
seq 1 3000 | mosquitto_pub -h 127.0.0.1 -p "$PORT" -t a/b -q 1 -l
echo "published $?"
kept() { [ "$(wc -l <got1)" = 1001 ] && [ "$(wc -l <got2)" = 1001 ]; }
await kept
sum <got1
sum <got2
kill $S
wait $S
echo "server $?"
