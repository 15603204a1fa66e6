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
}
