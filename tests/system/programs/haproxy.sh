# HAProxy before two servers, by HTTP and by TCP, one behind a Unix socket; keep-alive, uploads, its own socket for orders.
#: deb=haproxy,python3,curl,socat
mkdir www
seq 1 60000 >www/large
echo small >www/small
(cd www && exec python3 -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 "$PORT2") >log 2>&1 &
python3 "$PROGRAMS/upload.py" "$D/w" &
await connects "$PORT2"
await test -S "$D/w"
cat >conf <<END
global
  stats socket $D/stats level admin
  maxconn 100
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend f
  bind 127.0.0.1:$PORT
  bind unix@$D/front
  use_backend up if { method PUT }
  default_backend files
backend files
  server one 127.0.0.1:$PORT2
backend up
  server two unix@$D/w
END
haproxy -W -db -f conf >ha.log 2>&1 &
S=$!
await connects "$PORT"
u=http://127.0.0.1:$PORT
await curl -sf "$u/small"
(for i in $(seq 12); do echo "url = $u/small"; echo "url = $u/large"; done) >urls
curl -sS -K urls | sum
curl -sS --unix-socket "$D/front" -K urls | sum
seq 1 300000 >data
for i in 1 2 3; do curl -sS -T data -H 'Expect:' "$u/x" | sum; done
for i in $(seq 12); do echo "show info" | socat - "UNIX-CONNECT:$D/stats" | grep -c '^Name: HAProxy'; done | sort | uniq -c
kill -USR1 $S
wait $S
echo "server $?"
