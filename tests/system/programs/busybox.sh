# Static busybox: its httpd and wget, its nc both ways, its shell's pipelines.
#: deb=busybox-static load=on runs=busybox
mkdir -p www/cgi-bin bin
B=/bin/busybox
seq 1 200000 >www/big
head -c 8M /dev/zero >www/zero
printf '#!%s sh\necho; echo "query $QUERY_STRING"; seq 1 2000\n' $B >www/cgi-bin/x
chmod 755 www/cgi-bin/x
$B httpd -f -p "127.0.0.1:$PORT" -h "$D/www" &
S=$!
await connects "$PORT"
U=http://127.0.0.1:$PORT
fetch() {
    for i in 1 2 3; do $B wget -q -O - "$U/zero" | $B wc -c; done
    for i in 1 2 3; do $B wget -q -O - "$U/big" | $B sha256sum; done
    for i in $(seq 8); do $B wget -q -O - "$U/cgi-bin/x?$i"; done | $B md5sum
    for what in cat 'gzip -1' sha256sum; do
        $B nc -l -p "$PORT2" -e $B $what &
        n=$!
        until $B nc 127.0.0.1 "$PORT2" <www/zero >back 2>/dev/null; do :; done
        wait $n
        $B sha256sum <back
    done
}
filters() {
    $B sh -c '
    b=/bin/busybox
    $b cat www/big | $b grep 77 | $b sed s/7/x/ | $b sort | $b uniq | $b wc
    $b head -c 60000000 /dev/zero | $b cat | $b wc -c
    $b tar c www/big | $b gzip -1 | $b gunzip | $b tar t
    $b seq 1 100000 | $b awk "{s += \$1} END {print s}"
    $b dd if=www/zero bs=64k 2>/dev/null | $b md5sum
    $b seq 1 30000 | while read -r a; do case $a in *29999) echo "$a";; esac; done
    '
}
busy fetch
busy filters
kill $S
wait $S
echo "httpd $?"
