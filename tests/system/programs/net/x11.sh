# A display over TCP. PORT is 6000 and the display's number.
serve() {
    Xvfb ":$((PORT - 6000))" -listen tcp -nolisten unix -nolisten local -ac -noreset -screen 0 1024x768x24 >log 2>&1 &
}
call() {
    export DISPLAY=$ADDRESS:$((PORT - 6000))
    for i in 1 2 3 4 5; do
        xdpyinfo | grep -v 'name of display' | sum
        xwininfo -root -tree | sed 1,3d | grep -v 'Relative\|Absolute' | sum
    done
    # Many small requests, large requests, and requests with answers; each test prints two rates.
    for test in "-noop -reps 100000" "-dot -reps 100000" "-putimage100 -reps 200" "-getimage100 -reps 200" "-prop -reps 2000"; do
        x11perf -repeat 2 $test >perf.out 2>&1
        echo "x11perf $test: $?"
        [ "$(grep -c 'reps @' perf.out)" = 2 ] || tail -n 3 perf.out log
    done
}
