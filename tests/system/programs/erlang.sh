# Two Erlang nodes: distribution with a name server of its own, messages of all sizes, gen_tcp with active sockets.
#: deb=erlang-base limit=90
export ERL_EPMD_PORT=$PORT ERL_EPMD_ADDRESS=127.0.0.1 ERL_CRASH_DUMP=/dev/null
cat >t.erl <<'END'
-module(t).
-export([serve/0, call/0, echo/1, loop/1]).
serve() -> register(echo, spawn(t, echo, [0])), io:put_chars(""),
  Port = list_to_integer(os:getenv("PORT2")),
  {ok, L} = gen_tcp:listen(Port, [binary, {packet, 4}, {active, true}, {reuseaddr, true}, {ip, {127,0,0,1}}]), accept(L).
accept(L) -> {ok, S} = gen_tcp:accept(L), P = spawn(t, loop, [S]), gen_tcp:controlling_process(S, P), accept(L).
loop(S) -> receive {tcp, S, B} -> gen_tcp:send(S, B), loop(S); {tcp_closed, S} -> ok after 30000 -> ok end.
echo(N) -> receive {From, stop} -> From ! {stopped, N}; {From, X} -> From ! {self(), X}, echo(N + 1) end.
ping(0) -> pong; ping(N) -> case net_adm:ping('one@127.0.0.1') of pong -> pong; _ -> timer:sleep(100), ping(N - 1) end.
call() -> pong = ping(100), connected(100),
  Sizes = [I * 97 rem 40000 || I <- lists:seq(1, 400)],
  Sum = lists:sum([begin B = binary:copy(<<(S rem 256)>>, S), {echo, 'one@127.0.0.1'} ! {self(), B},
     receive {_, B} -> erlang:crc32(B) end end || S <- Sizes]),
  io:format("distribution ~p~n", [Sum]),
  {ok, C} = gen_tcp:connect({127,0,0,1}, list_to_integer(os:getenv("PORT2")), [binary, {packet, 4}, {active, false}]),
  T = lists:sum([begin B = binary:copy(<<(S rem 256)>>, S), ok = gen_tcp:send(C, B), {ok, B} = gen_tcp:recv(C, 0), erlang:crc32(B) end || S <- Sizes]),
  io:format("tcp ~p~n", [T]),
  {echo, 'one@127.0.0.1'} ! {self(), stop}, receive {stopped, N} -> io:format("answered ~p~n", [N]) end,
  rpc:cast('one@127.0.0.1', erlang, halt, [0]), timer:sleep(100), halt(0).
connected(0) -> no; connected(N) -> case rpc:call('one@127.0.0.1', erlang, whereis, [echo]) of P when is_pid(P) -> ok; _ -> timer:sleep(100), connected(N - 1) end.
END
erlc t.erl
echo "compiled $?"
epmd -port "$PORT" &
# Asks as a client does: of a connection that says nothing the name server complains, with the time.
await epmd -port "$PORT" -names
erl -noinput -name one@127.0.0.1 -setcookie c -run t serve >one.log 2>&1 &
S=$!
timeout 60 erl -noinput -name two@127.0.0.1 -setcookie c -run t call
echo "client $?"
wait $S
echo "server $?"
