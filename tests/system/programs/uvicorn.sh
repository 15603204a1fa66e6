# Uvicorn with an application that streams; keep-alive, uploads, a Unix socket.
#: deb=python3-venv,curl pip=uvicorn
cat >app.py <<'END'
async def app(scope, receive, send):
    if scope["type"] != "http": return
    n = 0
    while True:
        m = await receive(); n += len(m.get("body", b""))
        if not m.get("more_body"): break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for i in range(int(scope["query_string"] or 0)): await send({"type": "http.response.body", "body": b"%d," % i * 20, "more_body": True})
    await send({"type": "http.response.body", "body": b"%d\n" % n})
END
for at in "--host 127.0.0.1 --port $PORT" "--uds $D/u"; do
    "$py" -m uvicorn --log-level critical $at app:app &
    S=$!
    case $at in --uds*) o="--unix-socket $D/u" ;; *) o= ;; esac
    u=http://127.0.0.1:$PORT/
    await curl -sf $o "$u"
    (for i in $(seq 120); do echo "url = $u?$i"; done) >urls
    curl -sS $o -K urls | sum
    seq 1 90000 | curl -sS $o --data-binary @- "$u?1"
    kill $S
    wait $S
    echo "ended"
done
