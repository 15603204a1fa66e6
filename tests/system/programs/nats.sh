# NATS: publishers and subscribers, requests, queue groups, by a small client.
#: deb=nats-server,python3 load=on runs=nats-server limit=90
nats-server -a 127.0.0.1 -p "$PORT" -l log &
S=$!
await connects "$PORT"
busy timeout 60 python3 "$PROGRAMS/nats.py" "$PORT"
echo "clients $?"
kill $S
wait $S
echo "server $?"
