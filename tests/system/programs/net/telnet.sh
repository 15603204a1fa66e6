# A server started by a listener for each connection, a shell at its end; what is typed and what is answered.
serve() {
    cat >shell <<'END'
#!/bin/bash
stty -echo
echo "ready"
while read -r word number; do
    case $word in
        sum*) seq 1 "${number//[!0-9]/}" | tee >(sha256sum >&2) | tail -n 1 ;;
        list*) seq 1 "${number//[!0-9]/}" ;;
        bye*) echo "bye"; exit ;;
    esac
done
END
    chmod 755 shell
    socat TCP-LISTEN:"$PORT",bind="$ADDRESS",reuseaddr,fork EXEC:"telnetd -h -E $D/shell",nofork &
}
# Sends a command and waits until it is answered.
ask() {
    echo "$1" >&"$to"
    while read -r -t 20 -u "$from" line; do
        line=${line//$'\r'/}
        echo "$line"
        [ "$line" != "$2" ] || return 0
    done
    echo "no $2"
}
call() {
    coproc T { exec telnet "$ADDRESS" "$PORT" 2>&1; }
    # A subshell does not inherit the descriptors of coproc, so they are duplicated.
    exec {to}>&"${T[1]}" {from}<&"${T[0]}"
    ask "list 1" 1 >/dev/null
    for n in 3 30 300 3000; do ask "list $n" "$n" | sum; done
    for n in $(seq 40); do ask "list $n" "$n"; done | sum
    ask "list 60000" 60000 | sum
    # The last answer may or may not arrive, because the terminal ends with the shell; it is not
    # printed.
    echo bye >&"$to"
    wait
    echo "ended"
}
