# One question after the other, many in a row, large values, twenty connections at once, one that waits and one that is told.
serve() {
    redis-server --port "$PORT" --bind "$ADDRESS" --save '' --protected-mode no --daemonize no >redis.log 2>&1 &
}
call() {
    r="redis-cli -h $ADDRESS -p $PORT"
    seq 1 20000 | sed 's/.*/SET key:& value:&/' | $r --pipe
    seq 1 3000 | sed 's/.*/INCR count/' | $r | sum
    seq 1 2000 | sed 's/.*/GET key:&/' | $r | sum
    seq 1 700000 | head -c 4000000 | $r -x SET large
    for i in 1 2 3; do $r GET large | sum; done
    echo "$($r STRLEN large) $($r DBSIZE)"
    for words in "-c 1" "-c 20" "-c 20 -P 16"; do
        # Only the names are printed, because the rates depend on the machine.
        redis-benchmark -h "$ADDRESS" -p "$PORT" $words -n 4000 -t set,get,lpush,lrange_100 --csv | cut -d, -f1
    done
    $r SUBSCRIBE news >told &
    until [ "$($r PUBSUB NUMSUB news | tail -n 1)" = 1 ]; do sleep 0.01; done
    seq 1 1000 | sed 's/.*/PUBLISH news number:&/' | $r | sum
    until [ "$(grep -c '^number' told)" = 1000 ]; do sleep 0.01; done
    kill $!
    wait $! 2>/dev/null
    sum <told
    for i in $(seq 20); do
        $r BLPOP queue 20 >popped &
        until $r CLIENT LIST | grep -q 'cmd=blpop'; do sleep 0.01; done
        $r RPUSH queue "item $i" >pushed
        wait $!
        tail -n 1 popped
    done | sum
}
