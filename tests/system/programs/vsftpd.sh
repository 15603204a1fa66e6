# vsftpd and curl: lists, downloads and uploads in passive mode.
#: deb=vsftpd,curl
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 0; }
mkdir -p pub/up empty
seq 1 200000 >pub/large
echo small >pub/small
chmod 777 pub/up
chmod 755 "$D" "$D/.." pub
cat >conf <<END
listen=YES
background=NO
listen_address=127.0.0.1
listen_port=$PORT
anonymous_enable=YES
anon_root=$D/pub
anon_upload_enable=YES
write_enable=YES
anon_umask=022
no_anon_password=YES
allow_writeable_chroot=YES
secure_chroot_dir=$D/empty
seccomp_sandbox=NO
xferlog_enable=NO
END
vsftpd conf &
await connects "$PORT"
u=ftp://127.0.0.1:$PORT
curl -sS -l "$u/" | sort
for i in 1 2 3; do curl -sS "$u/large" "$u/small" | sum; done
curl -sS -T pub/large "$u/up/one"
echo "up $?"
sum <pub/up/one
