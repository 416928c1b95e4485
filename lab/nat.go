// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// NATKind names a kind of NAT. What it does is said by Behavior in the words
// of RFC 4787.
type NATKind string

// The kinds of NAT a lab can build.
const (
	FullCone            NATKind = "full-cone"
	AddressRestricted   NATKind = "address-restricted"
	PortRestricted      NATKind = "port-restricted"
	SymmetricRandom     NATKind = "symmetric-random"
	SymmetricSequential NATKind = "symmetric-sequential"
	SymmetricPreserving NATKind = "symmetric-preserving"
)

// NATKinds lists all kinds in the order of tables.
var NATKinds = []NATKind{FullCone, AddressRestricted, PortRestricted, SymmetricRandom, SymmetricSequential, SymmetricPreserving}

// Dependence says on what of the remote endpoint a mapping or a filter of a
// NAT depends (RFC 4787 sections 4.1 and 5).
type Dependence string

// The values of Dependence.
const (
	EndpointIndependent     Dependence = "endpoint-independent"
	AddressDependent        Dependence = "address-dependent"
	AddressAndPortDependent Dependence = "address-and-port-dependent"
)

// PortAssignment says how a NAT picks external ports (RFC 4787 section 4.2).
type PortAssignment string

// The values of PortAssignment.
const (
	PortPreserving PortAssignment = "preserving" // the internal port, if free
	PortSequential PortAssignment = "sequential" // one above the port before
	PortRandom     PortAssignment = "random"
)

// NATBehavior describes a NAT in the words of RFC 4787.
type NATBehavior struct {
	Mapping   Dependence
	Filtering Dependence
	Ports     PortAssignment
}

// Behavior says what a kind does.
func (k NATKind) Behavior() (NATBehavior, error) {
	switch k {
	case FullCone:
		return NATBehavior{EndpointIndependent, EndpointIndependent, PortPreserving}, nil
	case AddressRestricted:
		return NATBehavior{EndpointIndependent, AddressDependent, PortPreserving}, nil
	case PortRestricted:
		return NATBehavior{EndpointIndependent, AddressAndPortDependent, PortPreserving}, nil
	case SymmetricRandom:
		return NATBehavior{AddressAndPortDependent, AddressAndPortDependent, PortRandom}, nil
	case SymmetricSequential:
		return NATBehavior{AddressAndPortDependent, AddressAndPortDependent, PortSequential}, nil
	case SymmetricPreserving:
		return NATBehavior{AddressAndPortDependent, AddressAndPortDependent, PortPreserving}, nil
	}
	names := make([]string, len(NATKinds))
	for i, known := range NATKinds {
		names[i] = string(known)
	}
	return NATBehavior{}, fmt.Errorf("there is no NAT kind %q; the kinds are %s", k, strings.Join(names, ", "))
}

// DefaultExternal is the address of a NAT's outside if none is given. Being a
// documentation address, it counts as global.
var DefaultExternal = netip.MustParseAddr("203.0.113.10")

// NATConfig describes a NAT box. Its inner hosts must use different UDP ports
// if the mapping is endpoint-independent: two hosts with one port would share
// a mapping.
type NATConfig struct {
	Kind NATKind
	// InputDrop drops UDP that no mapping takes, as home routers mostly do.
	// Without it such a packet makes state in the box itself, and a later
	// packet of an inner host to the same peer gets another port.
	InputDrop bool
	// Hairpin lets inner hosts reach each other at their external addresses.
	// Hairpinned packets are not filtered. Needs endpoint-independent mapping.
	Hairpin bool
	// External is the outer address, DefaultExternal if not valid. The caller
	// puts it on the outer interface.
	External netip.Addr
	// Outside is the outer interface, "e4" if empty.
	Outside string
	// Inside lists the inner interfaces, "l1" if empty.
	Inside []string
	// Timeout of mappings, a multiple of a second; 300 s if 0 (the kernel's
	// own 30 s for a mapping without an answer is too short for RFC 4787).
	Timeout time.Duration
}

// NAT makes a node that forwards IPv4 and translates as configured. Link joins
// it to the outside and the inside by the interface names of the config.
func (l *Lab) NAT(name string, c NATConfig) *Node {
	n := l.Node(name)
	return n.draw("NAT", func() error {
		c, err := c.complete()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(l.ctx, natLoad)
		defer cancel()
		_, err = n.runInput(ctx, c.ruleset(), "nft", "-f", "-")
		if errors.Is(err, exec.ErrNotFound) {
			return errors.New("the program nft is missing, which NAT boxes need: install the package nftables, or run make peers")
		}
		if err != nil {
			return err
		}
		seconds := strconv.Itoa(int(c.Timeout / time.Second))
		n.Sysctl("net.netfilter.nf_conntrack_udp_timeout", seconds)
		n.Sysctl("net.netfilter.nf_conntrack_udp_timeout_stream", seconds)
		n.Forward(true, false)
		return nil
	})
}

// complete fills in defaults and refuses what cannot be built.
func (c NATConfig) complete() (NATConfig, error) {
	behavior, err := c.Kind.Behavior()
	if err != nil {
		return c, err
	}
	if c.Hairpin && behavior.Mapping != EndpointIndependent {
		return c, fmt.Errorf("a %s NAT cannot hairpin: that needs an endpoint-independent mapping", c.Kind)
	}
	if !c.External.IsValid() {
		c.External = DefaultExternal
	}
	if !c.External.Is4() {
		return c, fmt.Errorf("the external address %v of a NAT is not IPv4", c.External)
	}
	if c.Outside == "" {
		c.Outside = "e4"
	}
	if len(c.Inside) == 0 {
		c.Inside = []string{"l1"}
	}
	if c.Timeout == 0 {
		c.Timeout = defaultMapping
	}
	if c.Timeout < time.Second || c.Timeout%time.Second != 0 {
		return c, fmt.Errorf("the mapping timeout %v is not a whole number of seconds", c.Timeout)
	}
	return c, nil
}
