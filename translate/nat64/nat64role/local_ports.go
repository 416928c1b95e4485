// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Where the kernel says which ports it gives to connections of this host, and which of
// them it keeps back, in the network namespace of the calling thread.
const (
	localRangeFile    = "/proc/sys/net/ipv4/ip_local_port_range"
	localReservedFile = "/proc/sys/net/ipv4/ip_local_reserved_ports"
)

// enoughLocalPorts is how many ports this host should have left for its own connections.
const enoughLocalPorts = 1024

// portSet is a set of TCP or UDP ports.
type portSet [1 << 16]bool

// add adds all ports of a range.
func (s *portSet) add(first, last uint16) {
	for p := int(first); p <= int(last); p++ {
		s[p] = true
	}
}

// String returns the set as the kernel writes one: 80,8000-8080.
func (s *portSet) String() string {
	var spans []string
	for first := 0; first < len(s); first++ {
		if !s[first] {
			continue
		}
		last := first
		for last+1 < len(s) && s[last+1] {
			last++
		}
		if span := strconv.Itoa(first); last > first {
			spans = append(spans, span+"-"+strconv.Itoa(last))
		} else {
			spans = append(spans, span)
		}
		first = last
	}
	return strings.Join(spans, ",")
}

// readPorts adds ports that the kernel lists to a set. A kernel that does not list them
// adds none.
func (s *portSet) readPorts(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	list := strings.TrimSpace(string(text))
	if file == localRangeFile { // two numbers, not a list
		list = strings.Join(strings.Fields(list), "-")
	}
	for span := range strings.SplitSeq(list, ",") {
		low, high, ok := strings.Cut(span, "-")
		if !ok {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 16)
		last, err2 := strconv.ParseUint(high, 10, 16)
		if err == nil && err2 == nil {
			s.add(uint16(first), uint16(last))
		}
	}
}

// portsApart refuses ports of the pool, at addresses of this host, that the kernel gives to
// the host's own connections: their answers would go to the translator. It is for the
// operator to keep them apart, and to know of it: what is reserved concerns every program
// of the host, would outlive a process that is killed, and the packaged service may write
// no settings of the kernel.
func portsApart(own []nat64.Range) error {
	local, kept, pool := new(portSet), new(portSet), new(portSet)
	local.readPorts(localRangeFile)
	kept.readPorts(localReservedFile)
	var at netip.Addr
	for _, r := range own {
		if r.Transports&(1<<state.TCP|1<<state.UDP) != 0 {
			at = r.Prefix.Addr()
			pool.add(r.First, r.Last)
		}
	}
	shared, left := 0, 0
	for p := range local {
		switch {
		case !local[p] || kept[p]:
		case pool[p]:
			shared++
		default:
			left++
		}
		kept[p] = kept[p] || pool[p]
	}
	if shared == 0 {
		return nil
	}
	err := fmt.Errorf("the pool has ports of %s, an address of this host itself, that the kernel gives to the host's own connections (net.ipv4.ip_local_port_range is %s): their answers would go to clients", at, local)
	if left < enoughLocalPorts {
		return fmt.Errorf("%w. Leave ports to the host: name fewer in pool4", err)
	}
	return fmt.Errorf("%w. Run sysctl -w net.ipv4.ip_local_reserved_ports=%s and write the same to a file in /etc/sysctl.d, or choose other ports in pool4", err, kept)
}
