# Names over TCP, one connection for many, and over UDP: dig asks each from a socket of its own, the server answers all from one.
serve() { python3 "$PROGRAMS/net/dns.py" "$ADDRESS" "$PORT" & }
call() {
    d="dig @$ADDRESS -p $PORT +short +tries=2 +time=10"
    for i in $(seq 5); do
        $d +tcp "host$i.example" A
        $d +notcp "host$i.example" A
    done
    for i in $(seq 30); do echo "host$i.example A"; done >names
    $d +tcp +keepopen -f names | sum
    $d +notcp -f names | sum
    # The answer is too long for a datagram, so dig asks again over TCP.
    $d long.example TXT | sum
}
