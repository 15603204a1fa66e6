# Varnish before a server: hits, misses, passes, purges by its command line.
#: deb=varnish,python3,curl limit=90
mkdir www
seq 1 60000 >www/large
echo small >www/small
(cd www && exec python3 -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 "$PORT2") >log 2>&1 &
await connects "$PORT2"
varnishd -F -n "$D/v" -j none -a "127.0.0.1:$PORT" -T none -b "127.0.0.1:$PORT2" -s malloc,20m -p vsl_space=1m -p thread_pool_min=5 -p vcc_allow_inline_c=off >varnish.log 2>&1 &
S=$!
u=http://127.0.0.1:$PORT
await curl -sf "$u/small"
(for i in $(seq 15); do echo "url = $u/small"; echo "url = $u/large"; echo "url = $u/large?$i"; done) >urls
curl -sS -K urls | sum
curl -sS -o /dev/null -w '%{http_code} %{num_connects}\n' "$u/missing" "$u/small"
(for i in $(seq 60); do echo "url = $u/large"; done) >urls
curl -sS -K urls | sum
kill $S
wait $S
echo "server $?"
