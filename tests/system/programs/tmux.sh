# tmux: a server of its own, panes, keys, much output, what is on the screens.
#: deb=tmux
t="tmux -S $D/t -f /dev/null"
export TERM=screen PS1='$ ' ENV=
$t new-session -d -x 100 -y 40 -s s 'exec sh'
await $t has-session -t s
for i in $(seq 40); do $t send-keys -t s "echo line $i >>typed" Enter; done
typed() { [ "$(wc -l <typed)" = 40 ]; }
await typed
sum <typed
$t split-window -t s 'seq 1 200000; touch done; exec sleep 60'
await test -e done
last() { $t capture-pane -p -t s.1 | grep -q '^200000$'; }
await last
$t capture-pane -p -t s.1 | grep -v '^$' | sum
$t list-panes -t s -F '#{pane_index} #{pane_width}x#{pane_height}'
for i in $(seq 30); do $t display-message -p -t s '#{session_name}'; done | uniq -c
$t kill-server
echo "killed $?"
