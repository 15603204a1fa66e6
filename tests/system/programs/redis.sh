# Scripted commands, binary values, MULTI, a BGSAVE while clients go on, redis-benchmark to its end.
#: deb=redis-server,redis-tools
redis-server --port "$PORT" --bind 127.0.0.1 --save '' --dir "$D" --logfile "$D/log" --daemonize no &
S=$!
c="redis-cli -p $PORT"
await $c ping
for i in $(seq 2000); do echo "rpush l v$i"; done | $c | tail -1
for i in $(seq 500); do echo "lindex l $i"; done | $c | sum
seq 1 60000 | gzip -9n >bin
sum <bin
$c -x set bin <bin
$c strlen bin
$c --raw get bin | head -c -1 | sum
{ echo multi; for i in $(seq 200); do echo "incr n"; done; echo exec; } | $c | tail -1
# Before the fork, so that these sessions move.
redis-benchmark -p "$PORT" -q -n 60000 -c 20 -t get --csv >first
echo "first $?"
(for i in $(seq 4000); do echo "incr m"; done | $c | tail -1 >m) &
M=$!
redis-benchmark -p "$PORT" -q -n 20000 -c 20 -t set,get,incr -d 200 --csv >bench 2>bench.err &
B=$!
$c bgsave
wait $M $B
echo "benchmark $?"
cat m
wc -l <bench
saved() { $c info persistence | grep -q bgsave_in_progress:0; }
await saved
$c info persistence | grep -o 'last_bgsave_status:ok'
redis-check-rdb dump.rdb | grep -c 'looks OK'
$c shutdown nosave
wait $S
echo "server $?"
