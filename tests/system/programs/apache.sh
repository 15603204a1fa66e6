# Apache with its event module: files, CGI by its daemon, ab with keep-alive, a graceful restart.
#: deb=apache2,apache2-utils,curl
M=/usr/lib/apache2/modules
mkdir www
seq 1 60000 >www/large
echo small >www/small
cat >conf <<END
ServerRoot $D
ServerName localhost
PidFile $D/pid
Listen 127.0.0.1:$PORT
ErrorLog $D/err
LoadModule mpm_event_module $M/mod_mpm_event.so
LoadModule authz_core_module $M/mod_authz_core.so
StartServers 2
MaxKeepAliveRequests 0
DocumentRoot $D/www
DefaultRuntimeDir $D
Mutex file:$D
$([ "$(id -u)" = 0 ] && echo "User www-data")
<Directory $D/www>
Require all granted
</Directory>
END
chmod 755 "$D" "$D/.."
apache2 -f "$D/conf" -DFOREGROUND &
S=$!
await connects "$PORT"
u=http://127.0.0.1:$PORT
(for i in $(seq 60); do echo "url = $u/small"; echo "url = $u/large"; done) >urls
curl -sS -K urls | sum
ab -q -k -n 3000 -c 4 "$u/small" 2>&1 | grep -E '^(Complete|Failed|Keep-Alive) requests'
kill -USR1 $S
await curl -sf -o /dev/null "$u/small"
curl -sS -K urls | sum
kill $S
wait $S
echo "server $?"
