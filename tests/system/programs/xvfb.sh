# An X server without a screen, asked by its clients over its Unix socket.
#: deb=xvfb,x11-utils,x11-apps
N=$((PORT % 800 + 100))
Xvfb ":$N" -screen 0 640x480x24 -nolisten tcp -noreset >log 2>&1 &
S=$!
export DISPLAY=":$N"
await xdpyinfo
for i in 1 2 3; do xdpyinfo | grep -v -e '^vendor' -e 'unix time' -e '^name of display' | sum; done
xlsfonts | sum
xwininfo -root | grep -e Width -e Height
for i in 1 2 3; do xwd -root -silent | tail -c 1000000 | sum; done
timeout 20 xlogo &
X=$!
shown() { xwininfo -root -tree | grep -q xlogo; }
await shown
xprop -root | sum
kill $X
wait $X 2>/dev/null
kill $S
wait $S
echo "server $?"
