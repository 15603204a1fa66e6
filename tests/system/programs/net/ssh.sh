# Commands in both directions, scp, sftp, a forwarded port.
serve() {
    ssh-keygen -q -t ed25519 -N '' -f host
    ssh-keygen -q -t ed25519 -N '' -f key
    cp key.pub authorized
    chmod 700 "$D"
    is_root && mkdir -p /run/sshd
    cat >server.conf <<END
Port $PORT
ListenAddress $ADDRESS
HostKey $D/host
AuthorizedKeysFile $D/authorized
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
Subsystem sftp internal-sftp
END
    cat >client.conf <<END
Host there
HostName $ADDRESS
Port $PORT
IdentityFile $D/key
IdentitiesOnly yes
UserKnownHostsFile $D/known
StrictHostKeyChecking no
LogLevel ERROR
END
    mkdir -p tree/sub
    for i in $(seq 40); do seq 1 $((i * 300)) >tree/sub/$i; done
    socat -t 60 TCP-LISTEN:$((PORT + 1)),bind=127.0.0.1,reuseaddr,fork SYSTEM:"seq 1 400000" &
    /usr/sbin/sshd -D -f server.conf -E log &
}
call() {
    s="ssh -F $D/client.conf"
    $s there 'echo hello; echo err >&2; exit 7' 2>&1
    echo "status $?"
    seq 1 200000 | $s there 'cat | sort -rn' | sum
    $s there 'seq 1 1500000' | sum
    seq 1 1500000 | $s there sha256sum
    scp -q -F client.conf -r tree there:"$D/copied"
    echo "scp $?"
    scp -q -F client.conf -r there:"$D/tree" back
    echo "scp $?"
    (cd copied && cat sub/* | sum)
    (cd back && cat sub/* | sum)
    rsync -a -e "$s" tree/ there:"$D/synced/"
    echo "rsync $?"
    diff -r tree synced && echo same
    seq 1 300000 >large
    printf 'put large %s/put\nget %s/put got\nls tree/sub\n' "$D" "$D" | sftp -q -F client.conf -b - there | grep -v "sftp>\|$D" | sum
    echo "sftp ${PIPESTATUS[1]}"
    cmp large put && cmp large got && echo same
    # Forwards to a server that listens only on the loopback address of the ssh server's host.
    for i in 1 2; do $s -W 127.0.0.1:$((PORT + 1)) there </dev/null | sum; done
}
