# Python's own servers and clients, and the ways its processes talk.
#: deb=python3
mkdir www
seq 1 300000 >www/large
echo small >www/small
(cd www && exec python3 -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 "$PORT") >log 2>&1 &
await connects "$PORT"
timeout 40 python3 "$PROGRAMS/processes.py" "$PORT"
