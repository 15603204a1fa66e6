// The program of doors.c in Go, whose run-time library makes its own system calls.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		return
	}
	// The processor of the second word is left to Go's scheduler.
	runtime.LockOSThread()
	ms, _ := strconv.Atoi(os.Args[3])
	expected := syscall.Getppid()
	null, err := syscall.Open("/dev/null", syscall.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	byte := []byte("x")
	ask := func(count int) {
		for range count {
			if syscall.Getppid() != expected {
				panic("getppid")
			}
		}
	}
	if os.Args[1] == "write" {
		ask = func(count int) {
			for range count {
				if done, _ := syscall.Write(null, byte); done != 1 {
					panic("write")
				}
			}
		}
	}
	const group = 20
	all := time.Duration(ms) * time.Millisecond
	for start := time.Now(); time.Since(start) < all/2; {
		ask(group)
	}
	var samples []string
	for begun, last := time.Now(), time.Now(); len(samples) < 2000 && last.Sub(begun) < all; {
		ask(group)
		now := time.Now()
		each := float64(now.Sub(last).Nanoseconds()) / group
		samples = append(samples, strconv.FormatFloat(each, 'f', 2, 64))
		last = now
	}
	fmt.Printf("{\"samples\":[%s]}\n", strings.Join(samples, ","))
}
