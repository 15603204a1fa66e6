# A server of one's own: commands, scp, rsync over it.
#: deb=openssh-server,openssh-client,rsync
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f key
cp key.pub authorized
chmod 700 "$D"
[ "$(id -u)" = 0 ] && mkdir -p /run/sshd
cat >server.conf <<END
Port $PORT
ListenAddress 127.0.0.1
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
Host here
HostName 127.0.0.1
Port $PORT
IdentityFile $D/key
IdentitiesOnly yes
UserKnownHostsFile $D/known
StrictHostKeyChecking no
LogLevel ERROR
END
/usr/sbin/sshd -D -f server.conf -E log &
await connects "$PORT"
s="ssh -F $D/client.conf"
$s here 'echo hello; echo err >&2; exit 7' 2>&1
echo "status $?"
seq 1 200000 | $s here 'cat | sort -rn' | sum
$s here 'head -c 5M /dev/zero' | sum
mkdir -p tree/sub
for i in $(seq 40); do seq 1 $((i * 300)) >tree/sub/$i; done
scp -q -F client.conf -r tree here:"$D/copied"
echo "scp $?"
rsync -a -e "$s" tree/ here:"$D/synced/"
echo "rsync $?"
seq 1 77777 >tree/sub/7
rsync -a --delete -e "$s" here:"$D/tree/" synced/
echo "rsync $?"
diff -r tree synced && (cd synced && cat sub/* | sum)
(cd copied && cat sub/* | sum)
