# Gunicorn with two workers, sync and threads, over TCP and a Unix socket.
#: deb=python3-venv,curl pip=gunicorn
cat >app.py <<'END'
def app(env, start):
    body = env["wsgi.input"].read(); n = int(env["QUERY_STRING"] or 0)
    start("200 OK", [("Content-Length", str(n + 9))]); return [b"%08d\n" % len(body), b"g" * n]
END
for k in sync gthread; do
    "$py" -m gunicorn --log-level critical -w 2 -k $k --threads 2 -b "127.0.0.1:$PORT" -b "unix:$D/$k" app:app >log 2>&1 &
    S=$!
    await curl -sf "http://127.0.0.1:$PORT/"
    (for i in $(seq 150); do echo "url = http://127.0.0.1:$PORT/?$((i * 50))"; done) >urls
    curl -sS -K urls | sum
    curl -sS --unix-socket "$D/$k" -K urls | sum
    seq 1 50000 | curl -sS --data-binary @- "http://127.0.0.1:$PORT/?3"
    kill $S
    wait $S
    echo "$k $?"
done
