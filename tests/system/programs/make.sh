# make with four jobs and its job server, a recursive one, and ninja by cmake.
#: deb=make,gcc,cmake,ninja-build limit=120
mkdir src
for i in $(seq 24); do echo "int f$i(int x) { return x * $i; }" >src/f$i.c; done
{ for i in $(seq 24); do echo "int f$i(int);"; done; echo 'int printf(const char *, ...); int main(void) { int s = 0;'; for i in $(seq 24); do echo "s += f$i($i);"; done; echo 'printf("%d\n", s); return 0; }'; } >src/main.c
cat >Makefile <<'END'
S := $(wildcard src/*.c)
all: sub prog
prog: $(S:.c=.o)
	cc -o $@ $^
%.o: %.c
	cc -c -o $@ $<
sub:
	$(MAKE) -f sub.mk
END
cat >sub.mk <<'END'
all: $(addprefix x,1 2 3 4 5 6 7 8)
x%:
	@seq 1 20000 | sort -n | tail -$* | head -1 >$@
END
make -s -j4 all
echo "make $?"
./prog
cat x? | sum
printf 'cmake_minimum_required(VERSION 3.10)\nproject(p C)\nfile(GLOB S src/*.c)\nadd_executable(p ${S})\n' >CMakeLists.txt
cmake -G Ninja -S . -B build >cmake.log 2>&1
echo "cmake $?"
ninja -C build -j4 >ninja.log 2>&1
echo "ninja $?"
build/p
