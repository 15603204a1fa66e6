# Four streams each way, then one both ways. What is on its way when the sender ends is not counted as received.
serve() { iperf3 -s -B "$ADDRESS" -p "$PORT" >server.out 2>&1 & }
call() {
    for way in "-P 4" "-R -P 4" "--bidir"; do
        # The server may still be busy with the end of the previous test.
        for try in $(seq 100); do
            iperf3 -c "$ADDRESS" -p "$PORT" -n 160M -J $way >client.out
            status=$?
            grep -q "server is busy" client.out || break
            sleep 0.1
        done
        echo "iperf3 $way: $status"
        # In both directions at once, the bytes are divided between the two.
        python3 -c 'import json
end = json.load(open("client.out"))["end"]
least = 1 << 20 if "sum_sent_bidir_reverse" in end else 80 << 20
print(*(end[name]["bytes"] >= least for name in sorted(end) if name.startswith("sum")))'
    done
}
