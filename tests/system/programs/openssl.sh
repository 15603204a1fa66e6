# openssl s_server and s_client, stunnel before a plain server, curl by TLS.
#: deb=openssl,stunnel4,curl,python3
openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 30 -subj /CN=localhost >/dev/null 2>&1
openssl s_server -quiet -accept "127.0.0.1:$PORT" -key key -cert cert -WWW >s.log 2>&1 &
seq 1 100000 >large
await connects "$PORT"
for i in 1 2 3 4; do curl -sS -k --http1.0 "https://localhost:$PORT/large" | sum; done
printf 'GET /large HTTP/1.0\r\n\r\n' | openssl s_client -quiet -connect "127.0.0.1:$PORT" -CAfile cert 2>/dev/null | tail -n 1
mkdir www
seq 1 60000 >www/file
(cd www && exec python3 -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 0) >web.log 2>&1 &
W=$!
has_port() { P=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' web.log) && [ -n "$P" ]; }
export PYTHONUNBUFFERED=1
kill $W
(cd www && exec python3 -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 0) >web.log 2>&1 &
for _ in $(seq 400); do has_port && break; sleep 0.03; done
cat key cert >pem
printf 'foreground = yes\npid =\nsyslog = no\noutput = %s/st.log\n[web]\naccept = 127.0.0.1:%s\nconnect = 127.0.0.1:%s\ncert = %s/pem\n' "$D" "$PORT2" "$P" "$D" >st.conf
stunnel st.conf >st.out 2>&1 &
await connects "$PORT2"
(for i in $(seq 20); do echo "url = https://localhost:$PORT2/file"; done) >urls
curl -sS -k -K urls | sum
