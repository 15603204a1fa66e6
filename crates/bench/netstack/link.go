// Network stack of the client and its link: a packet socket with the interface's offloads.
package main

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	nic = 1
	// Largest IP packet (bytes), and largest segment that the interface divides into such packets.
	mtu     = 1500
	largest = 65000
	// Largest size of either queue of a session (bytes), which is the kernel's.
	queue = 4 << 20
)

// open makes a packet socket on an interface. Frames that leave the host are not received; see
// packet(7).
func open(name string) (int, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	for _, option := range []int{unix.PACKET_VNET_HDR, unix.PACKET_IGNORE_OUTGOING} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
			return -1, fmt.Errorf("option %d of a packet socket: %w", option, err)
		}
	}
	// In network byte order.
	every := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	address := unix.SockaddrLinklayer{Protocol: every, Ifindex: iface.Index}
	return fd, unix.Bind(fd, &address)
}

// newStack configures the stack as gVisor's sandboxes do, with large segments, SACK and growing
// buffers, and with CUBIC as the compared stacks have.
func newStack(options *options) (*stack.Stack, error) {
	fd, err := open(options.iface)
	if err != nil {
		return nil, err
	}
	link, err := fdbased.New(&fdbased.Options{
		FDs:                []int{fd},
		MTU:                mtu,
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(options.mac),
		PacketDispatchMode: fdbased.RecvMMsg,
		GSOMaxSize:         largest,
		RXChecksumOffload:  true,
	})
	if err != nil {
		return nil, err
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	control := tcpip.CongestionControlOption("cubic")
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: 1 << 20, Max: queue}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: 1 << 20, Max: queue}
	for _, option := range []tcpip.SettableTransportProtocolOption{
		&sack, &control, &moderate, &receive, &send,
	} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, errors.New(err.String())
		}
	}
	if err := s.CreateNIC(nic, link); err != nil {
		return nil, errors.New(err.String())
	}
	address := tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address:   tcpip.AddrFromSlice(options.address),
			PrefixLen: 24,
		},
	}
	if err := s.AddProtocolAddress(nic, address, stack.AddressProperties{}); err != nil {
		return nil, errors.New(err.String())
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return s, nil
}
