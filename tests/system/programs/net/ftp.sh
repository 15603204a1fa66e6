# Passive and active, up and down, lists: each transfer is a connection of its own, closed by its sender.
serve() {
    mkdir -p home/up
    for size in 1 1000 100000 3000000; do seq 1 1000000 | head -c $size >home/$size; done
    is_root && chown -R ftp home/up && chmod 755 "$D" home
    chmod 777 home/up
    cat >conf <<END
listen=YES
listen_address=$ADDRESS
listen_port=$PORT
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=$D/home
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_umask=022
write_enable=YES
no_anon_password=YES
connect_from_port_20=NO
xferlog_enable=NO
secure_chroot_dir=$D/empty
$(is_root || echo run_as_launching_user=YES)
END
    mkdir empty
    chmod 555 empty
    vsftpd conf &
}
call() {
    u=ftp://$ADDRESS:$PORT
    for size in 1 1000 100000 3000000; do curl -sS "$u/$size" | sum; done
    curl -sS "$u/1" "$u/1000" "$u/100000" "$u/3000000" "$u/1000" | sum
    curl -sS -P - "$u/3000000" | sum
    curl -sS -l "$u/" | sort
    curl -sS -T home/3000000 "$u/up/first" && sum <home/up/first
    tnftp -n -p "$ADDRESS" "$PORT" <<END
user anonymous x
binary
get 100000 got
put home/3000000 up/second
passive off
get 3000000 active
bye
END
    echo "ftp $?"
    sum <got
    sum <active
    sum <home/up/second
}
