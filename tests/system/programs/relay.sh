# iperf3; socat between Unix sockets and TCP; 20 MB through it both ways by curl.
#: deb=iperf3,socat,curl,python3
iperf3 -s -1 -p "$PORT" >server.out 2>&1 &
S=$!
sleep 0.3
iperf3 -c 127.0.0.1 -p "$PORT" -n 100M -J >client.out
echo "iperf3 $?"
wait $S
echo "server $?"
python3 -c 'import json
end = json.load(open("client.out"))["end"]
# Bytes in transit when the client ends are not counted as received.
print(end["sum_sent"]["bytes"] >= 100 << 20, 50 << 20 < end["sum_received"]["bytes"] <= end["sum_sent"]["bytes"])'
seq 1 3000000 | head -c 20000000 >data
sum <data
socat TCP-LISTEN:"$PORT2",bind=127.0.0.1,reuseaddr UNIX-CONNECT:"$D/u" &
R=$!
socat -u UNIX-LISTEN:"$D/u" OPEN:"$D/up",creat,trunc &
W=$!
await test -S "$D/u"
sleep 0.2
socat -u OPEN:data TCP:127.0.0.1:"$PORT2",retry=50,interval=0.05
echo "sent $?"
wait $R $W
echo "relay $?"
sum <up
python3 "$PROGRAMS/upload.py" "$D/w" &
H=$!
await test -S "$D/w"
socat TCP-LISTEN:"$PORT",bind=127.0.0.1,reuseaddr,fork UNIX-CONNECT:"$D/w" &
await connects "$PORT"
for i in 1 2 3; do
    curl -sS -T data -H 'Expect:' "http://127.0.0.1:$PORT/x" | sum
    curl -sS "http://127.0.0.1:$PORT/data" | sum
done
