// Client with gVisor's network stack: one session over a packet socket on the client's interface,
// beside the host's kernel.
//
// The arguments are those of lab-bench, and --interface, --mac and --address. The client talks to a
// lab-bench server and prints the same lines as lab-bench. Not here: any server, and spinning,
// because Go's runtime decides when a thread sleeps. Read link.go for the link.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// Longest wait for the server to listen.
const patience = 10 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sojourn-bench-netstack:", err)
		os.Exit(1)
	}
}

// options are those of lab-bench that apply to this client.
type options struct {
	size       int
	time, warm time.Duration
	watched    []int
	pin        int
	iface      string
	mac        net.HardwareAddr
	address    net.IP
}

// parse separates plain arguments from options.
func parse(words []string) (plain []string, found options, err error) {
	found = options{size: 1, time: 100 * time.Millisecond, warm: 30 * time.Millisecond, pin: -1}
	for at := 0; at < len(words); at++ {
		if !strings.HasPrefix(words[at], "--") {
			plain = append(plain, words[at])
			continue
		}
		if at+1 == len(words) {
			return nil, found, errors.New(words[at] + ": no value")
		}
		name, value := words[at], words[at+1]
		at++
		number, _ := strconv.Atoi(value)
		switch name {
		case "--size":
			found.size = max(number, 1)
		case "--time-ms":
			found.time = time.Duration(number) * time.Millisecond
		case "--warm-ms":
			found.warm = time.Duration(number) * time.Millisecond
		case "--pin":
			found.pin = number
		case "--watch":
			found.watched = append(found.watched, number)
		case "--interface":
			found.iface = value
		case "--address":
			found.address = net.ParseIP(value).To4()
		case "--mac":
			if found.mac, err = net.ParseMAC(value); err != nil {
				return nil, found, err
			}
		case "--spin", "--congestion":
		default:
			return nil, found, errors.New(name + ": no such option")
		}
	}
	return plain, found, nil
}

func run(words []string) error {
	plain, options, err := parse(words)
	if err != nil || len(plain) != 3 {
		return errors.Join(err, errors.New("ping, bulk or pull, tcp or udp, and an address"))
	}
	if options.pin >= 0 {
		if err := pinAll(options.pin); err != nil {
			return err
		}
	}
	conn, err := connect(&options, plain[1], plain[2])
	if err != nil {
		return err
	}
	c := &client{conn: conn, options: &options, isDatagrams: plain[1] == "udp"}
	said, err := c.measure(plain[0])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}

// pinAll pins every thread of the process to a processor, because Go has already started several.
func pinAll(processor int) error {
	var set unix.CPUSet
	set.Set(processor)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		id, _ := strconv.Atoi(task.Name())
		if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}

// connect connects to a server that may not listen yet.
func connect(options *options, kind, address string) (net.Conn, error) {
	stack, err := newStack(options)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	peer := tcpip.FullAddress{
		NIC:  nic,
		Addr: tcpip.AddrFromSlice(net.ParseIP(host).To4()),
		Port: uint16(number),
	}
	end := time.Now().Add(patience)
	for {
		var conn net.Conn
		if kind == "udp" {
			conn, err = greet(gonet.DialUDP(stack, nil, &peer, ipv4.ProtocolNumber))
		} else {
			conn, err = gonet.DialTCP(stack, peer, ipv4.ProtocolNumber)
		}
		if err == nil || time.Now().After(end) {
			return conn, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// greet sends one question to a datagram server and receives the answer.
func greet(conn *gonet.UDPConn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	answer := make([]byte, 8)
	deadline := time.Now().Add(50 * time.Millisecond)
	if _, err = conn.Write([]byte{sendBack}); err == nil {
		if err = conn.SetReadDeadline(deadline); err == nil {
			_, err = io.ReadFull(conn, answer[:1])
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, conn.SetReadDeadline(time.Time{})
}
