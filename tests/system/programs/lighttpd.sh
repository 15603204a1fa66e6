# lighttpd: files, a CGI program by pipes, a proxied server.
#: deb=lighttpd,curl,python3
mkdir www
seq 1 60000 >www/large
echo small >www/small
printf '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\n"; wc -c; seq 1 2000\n' >www/run.cgi
chmod +x www/run.cgi
cat >conf <<END
server.document-root = "$D/www"
server.bind = "127.0.0.1"
server.port = $PORT
server.errorlog = "$D/err"
server.upload-dirs = ("$D")
server.modules = ("mod_cgi")
cgi.assign = (".cgi" => "")
END
lighttpd -D -f conf &
S=$!
await connects "$PORT"
u=http://127.0.0.1:$PORT
(for i in $(seq 100); do echo "url = $u/small"; echo "url = $u/large"; done) >urls
curl -sS -K urls | sum
seq 1 40000 >post
for i in $(seq 10); do curl -sS --data-binary @post "$u/run.cgi" | sum; done | uniq -c
kill -INT $S
wait $S
echo "server $?"
