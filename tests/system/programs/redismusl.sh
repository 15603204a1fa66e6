# Redis built with musl, server, client and benchmark: pipelines, large values, a BGSAVE meanwhile.
#: made=redis-musl load=on runs=redis-server-musl,redis-cli-musl,redis-benchmark-musl limit=90
R=$TOOLS/made
"$R/redis-server-musl" --port "$PORT" --bind 127.0.0.1 --save '' --dir "$D" --logfile "$D/log" --daemonize no --loglevel warning &
S=$!
c="$R/redis-cli-musl -p $PORT"
await $c ping
for i in $(seq 2000); do echo "rpush l v$i"; done | $c | tail -1
seq 1 60000 | gzip -9n >bin
$c -x set bin <bin
$c strlen bin
$c --raw get bin | head -c -1 | cmp - bin && echo same
bench() { "$R/redis-benchmark-musl" -p "$PORT" -q --csv "$@" | cut -d, -f1; }
busy bench -n 12000 -c 50 -t set,get
busy bench -n 50000 -c 20 -P 16 -t get,incr
bench -n 20000 -c 20 -t get -d 2000 &
B=$!
$c bgsave
wait $B
saved() { $c info persistence | grep -q bgsave_in_progress:0; }
await saved
$c info persistence | grep -o 'last_bgsave_status:ok'
$c shutdown nosave
wait $S
echo "server $?"
