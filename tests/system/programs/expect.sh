# expect with a shell and with bc on terminals; script.
#: deb=expect,bsdutils
cat >e.exp <<'END'
set timeout 20
log_user 0
spawn sh
send "PS1=; stty -echo\r"
set total 0
for {set i 1} {$i <= 150} {incr i} { send "echo got:\$(($i * 3)):\r"; expect -re {got:([0-9]+):} { incr total $expect_out(1,string) } timeout { puts late; exit 1 } }
puts $total
send "seq 1 3000 | sed 's/\$/;/'; echo fin''ished\r"
expect { finished { puts [regexp -all {;} $expect_out(buffer)] } full_buffer { exp_continue } timeout { puts late } }
send "exit 3\r"
expect eof
puts [lindex [wait] 3]
END
sed -i '1i match_max 200000' e.exp
timeout 50 expect e.exp
echo "expect $?"
script -qec 'seq 1 20000 | sort -rn | head -2' /dev/null </dev/null | tr -d '\r'
