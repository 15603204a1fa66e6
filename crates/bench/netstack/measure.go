// Measurements, as in sojourn_lab::measuring::flow, which also defines the meaning of a frame's
// first byte.
package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sendBack      = 1
	swallow       = 2
	acknowledge   = 3
	processorTime = 4
	sendMany      = 5
	// Number of frames that one request asks for, and of such requests in transit.
	many      = 16
	questions = 3
)

type client struct {
	conn          net.Conn
	options       *options
	isDatagrams   bool
	frame, answer []byte
}

func (c *client) measure(what string) (map[string]any, error) {
	c.frame = make([]byte, c.options.size)
	c.answer = make([]byte, max(c.options.size, 8))
	if !c.isDatagrams {
		size := binary.LittleEndian.AppendUint32(nil, uint32(c.options.size))
		if _, err := c.conn.Write(size); err != nil {
			return nil, err
		}
	}
	switch what {
	case "ping":
		return c.ping()
	case "bulk":
		return c.timed(c.bulk)
	case "pull":
		return c.timed(c.pull)
	}
	return nil, errors.New(what + ": no such measurement")
}

func (c *client) send(what byte) error {
	c.frame[0] = what
	_, err := c.conn.Write(c.frame)
	return err
}

func (c *client) receive(length int) error {
	_, err := io.ReadFull(c.conn, c.answer[:length])
	return err
}

func (c *client) call() error {
	if err := c.send(sendBack); err != nil {
		return err
	}
	return c.receive(len(c.frame))
}

func (c *client) callFor(length time.Duration) error {
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := c.call(); err != nil {
			return err
		}
	}
	return nil
}

// cpuNs returns the processor time that both sides have used so far.
func (c *client) cpuNs() (int64, error) {
	if err := c.send(processorTime); err != nil {
		return 0, err
	}
	if err := c.receive(8); err != nil {
		return 0, err
	}
	var own unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &own); err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(c.answer)) + own.Nano(), nil
}

func (c *client) ping() (map[string]any, error) {
	if err := c.callFor(c.options.warm); err != nil {
		return nil, err
	}
	before, err := c.cpuNs()
	if err != nil {
		return nil, err
	}
	counts := map[int64]int{}
	start := time.Now()
	operations := 0
	for last := start; last.Sub(start) < c.options.time; operations++ {
		if err := c.call(); err != nil {
			return nil, err
		}
		now := time.Now()
		// Steps of 64 ns, which is below 1 % of every measured time.
		counts[now.Sub(last).Nanoseconds()&^63]++
		last = now
	}
	ns := time.Since(start).Nanoseconds()
	after, err := c.cpuNs()
	if err != nil {
		return nil, err
	}
	pairs := make([][2]int64, 0, len(counts))
	for time, count := range counts {
		pairs = append(pairs, [2]int64{time, int64(count)})
	}
	sort.Slice(pairs, func(a, b int) bool { return pairs[a][0] < pairs[b][0] })
	return map[string]any{
		"operations": operations, "ns": ns, "cpu_ns": after - before, "histogram": pairs,
	}, nil
}

// timed measures the transfer of bytes, and returns the number of bytes.
func (c *client) timed(transfer func() (int, error)) (map[string]any, error) {
	if err := c.callFor(c.options.warm); err != nil {
		return nil, err
	}
	before, err := c.cpuNs()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	bytes, err := transfer()
	if err != nil {
		return nil, err
	}
	ns := time.Since(start).Nanoseconds()
	after, err := c.cpuNs()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"operations": bytes / c.options.size, "ns": ns, "cpu_ns": after - before, "bytes": bytes,
	}, nil
}

func (c *client) bulk() (int, error) {
	bytes := len(c.frame)
	for end := time.Now().Add(c.options.time); time.Now().Before(end); bytes += len(c.frame) {
		if err := c.send(swallow); err != nil {
			return 0, err
		}
	}
	if err := c.send(acknowledge); err != nil {
		return 0, err
	}
	return bytes, c.receive(1)
}

func (c *client) pull() (int, error) {
	if c.options.size < 5 {
		return 0, errors.New("frames are too short for a question")
	}
	binary.LittleEndian.PutUint32(c.frame[1:], many)
	each, bytes, asked := many*c.options.size, 0, 0
	end := time.Now().Add(c.options.time)
	for ; asked < questions*each; asked += each {
		if err := c.send(sendMany); err != nil {
			return 0, err
		}
	}
	for bytes < asked {
		got, err := c.conn.Read(c.answer[:min(len(c.answer), asked-bytes)])
		if err != nil {
			return 0, err
		}
		bytes += got
		if asked-bytes <= (questions-1)*each && time.Now().Before(end) {
			if err := c.send(sendMany); err != nil {
				return 0, err
			}
			asked += each
		}
	}
	return bytes, nil
}
