// Checks of the process environment that a Go program relies on, and the two ends of sessions. See
// ../tests/abi.rs.
//
//	go-abi WHAT            ends with status 0, or with 1 and what was wrong
//	go-abi serve NETWORK ADDRESS-FILE
//	go-abi ask NETWORK ADDRESS-FILE END-FILE
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func need(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-abi:", err)
		os.Exit(1)
	}
}

// threads makes goroutines that take their threads with them when they end.
func threads() {
	var group sync.WaitGroup
	for range 1000 {
		group.Add(1)
		go func() {
			runtime.LockOSThread()
			os.Getpid()
			group.Done()
		}()
	}
	group.Wait()
}

func goroutines() {
	var group sync.WaitGroup
	var count atomic.Int64
	for range 2000 {
		group.Add(1)
		go func() {
			defer group.Done()
			time.Sleep(time.Millisecond)
			os.Getpid()
			count.Add(1)
		}()
	}
	group.Wait()
	// Goroutines that make no calls are stopped by a signal.
	var stop atomic.Bool
	for range runtime.NumCPU() * 2 {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	for range 20 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	if count.Load() != 2000 {
		need(fmt.Errorf("%d goroutines", count.Load()))
	}
	// A fault becomes a panic.
	defer func() {
		if recover() == nil {
			need(fmt.Errorf("no panic"))
		}
	}()
	var nowhere *int
	*nowhere = 1
}

func children() {
	for range 20 {
		need(exec.Command("/proc/self/exe", "child").Run())
		out, err := exec.Command("sh", "-c", "echo hi | cat").Output()
		need(err)
		if string(out) != "hi\n" {
			need(fmt.Errorf("said %q", out))
		}
	}
}

func signals() {
	channel := make(chan os.Signal, 1)
	signal.Notify(channel, syscall.SIGUSR1)
	for range 200 {
		need(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		select {
		case <-channel:
		case <-time.After(10 * time.Second):
			need(fmt.Errorf("no signal"))
		}
	}
}

func serve(network, file string) {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = file + ".socket"
	}
	listener, err := net.Listen(network, address)
	need(err)
	need(os.WriteFile(file+".new", []byte(listener.Addr().String()), 0o600))
	need(os.Rename(file+".new", file))
	for {
		session, err := listener.Accept()
		need(err)
		go func() {
			io.Copy(struct{ io.Writer }{session}, struct{ io.Reader }{session})
			session.Close()
		}()
	}
}

func ask(network, file, end string) {
	address, err := os.ReadFile(file)
	need(err)
	var group sync.WaitGroup
	for number := range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			session, err := net.Dial(network, string(address))
			need(err)
			reader := bufio.NewReader(session)
			for at := 0; ; at++ {
				asked := fmt.Sprintf("%d %d\n", number, at)
				_, err = session.Write([]byte(asked))
				need(err)
				answer, err := reader.ReadString('\n')
				need(err)
				if answer != asked {
					need(fmt.Errorf("%q is no answer to %q", answer, asked))
				}
				if at%100 == 0 {
					if _, err := os.Stat(end); err == nil {
						break
					}
				}
			}
			need(session.Close())
		}()
	}
	group.Wait()
}

func main() {
	switch os.Args[1] {
	case "goroutines":
		goroutines()
	case "threads":
		threads()
	case "children":
		children()
	case "child":
	case "signals":
		signals()
	case "serve":
		serve(os.Args[2], os.Args[3])
	case "ask":
		ask(os.Args[2], os.Args[3], os.Args[4])
	default:
		os.Exit(1)
	}
}
