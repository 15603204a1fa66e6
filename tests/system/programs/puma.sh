# Puma with threads, then with two workers, over TCP and a Unix socket; keep-alive and uploads.
#: deb=puma,ruby,curl limit=90
cat >config.ru <<'END'
run ->(env) { body = env["rack.input"].read; n = env["QUERY_STRING"].to_i; [200, {"Content-Type" => "text/plain"}, [body.size.to_s, " ", "y" * n, "\n"]] }
END
seq 1 30000 >post
for w in 0 2; do
    puma -q -e production -w $w -t 2:4 -b "tcp://127.0.0.1:$PORT" -b "unix://$D/s$w" config.ru >log$w 2>&1 &
    S=$!
    await curl -sf "http://127.0.0.1:$PORT/"
    (for i in $(seq 40); do echo "url = http://127.0.0.1:$PORT/?$((i * 13))"; done) >urls
    curl -sS -K urls | sum
    curl -sS --unix-socket "$D/s$w" -K urls | sum
    for i in 1 2 3; do curl -sS --data-binary @post "http://127.0.0.1:$PORT/?5"; done
    kill -TERM $S
    wait $S
    echo "workers $w"
done
