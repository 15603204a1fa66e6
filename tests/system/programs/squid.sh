# Squid between curl and nginx: hits and misses, keep-alive, a tunnel, a large object.
#: deb=squid,curl,nginx limit=120
mkdir www tmp
chmod 777 "$D"
seq 1 100000 >www/large
for i in $(seq 20); do seq 1 $((i * 300)) >www/f$i; done
[ "$(id -u)" = 0 ] && U='user root;' R='cache_effective_user proxy' || U='' R=''
echo "$U daemon off; worker_processes 1; pid $D/pid; error_log $D/err; events {}
http { access_log off; client_body_temp_path $D/tmp; proxy_temp_path $D/tmp; fastcgi_temp_path $D/tmp; uwsgi_temp_path $D/tmp; scgi_temp_path $D/tmp; server { listen 127.0.0.1:$PORT2; root $D/www; add_header Cache-Control max-age=600; } }" >conf
nginx -e "$D/err" -c "$D/conf" &
await connects "$PORT2"
cat >squid.conf <<END
http_port 127.0.0.1:$PORT
$R
visible_hostname localhost
pid_filename $D/squid.pid
cache_log $D/cache.log
access_log none
cache_store_log none
coredump_dir $D
netdb_filename none
pinger_enable off
cache_mem 16 MB
memory_cache_shared off
memory_replacement_policy lru
maximum_object_size_in_memory 2 MB
shutdown_lifetime 0 seconds
acl tunnels port $PORT2
http_access allow tunnels
http_access deny all
END
squid -n "s$PORT" -N -f "$D/squid.conf" >squid.log 2>&1 &
S=$!
await connects "$PORT"
u=http://127.0.0.1:$PORT2
(for n in 1 2 3; do for i in $(seq 20); do echo "url = $u/f$i"; done; echo "url = $u/large"; done) >urls
for i in 1 2 3; do curl -sS -x "http://127.0.0.1:$PORT" -K urls | sum; done
curl -sS -x "http://127.0.0.1:$PORT" -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:1/"
curl -sS -p -x "http://127.0.0.1:$PORT" -K urls | sum
curl -sS -x "http://127.0.0.1:$PORT" -I "$u/f3" | grep -c '^X-Cache: HIT'
kill $S
wait $S
echo "squid $?"
