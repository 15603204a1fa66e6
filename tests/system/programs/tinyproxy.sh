# tinyproxy between curl and a server.
#: deb=tinyproxy,curl,nginx
mkdir www tmp
seq 1 100000 >www/large
echo small >www/small
[ "$(id -u)" = 0 ] && U='user root;' || U=
echo "$U daemon off; worker_processes 1; pid $D/pid; error_log $D/err; events {}
http { access_log off; client_body_temp_path $D/tmp; proxy_temp_path $D/tmp; fastcgi_temp_path $D/tmp; uwsgi_temp_path $D/tmp; scgi_temp_path $D/tmp; server { listen 127.0.0.1:$PORT2; root $D/www; } }" >conf
nginx -e "$D/err" -c "$D/conf" &
await connects "$PORT2"
printf 'Port %s\nListen 127.0.0.1\nTimeout 60\nLogFile "%s/t.log"\nLogLevel Error\nMaxClients 20\nAllow 127.0.0.1\n' "$PORT" "$D" >t.conf
tinyproxy -d -c t.conf >/dev/null 2>&1 &
await connects "$PORT"
export http_proxy=http://127.0.0.1:$PORT
u=http://127.0.0.1:$PORT2
for i in $(seq 25); do curl -sS "$u/small" "$u/large"; done | sum
for i in 1 2 3; do curl -sS -p "$u/large" "$u/small" "$u/large" | sum; done
