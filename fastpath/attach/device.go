// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// answer is what is known of a property; the zero value is that nothing is.
type answer uint8

const (
	unknown answer = iota
	no
	yes
)

func answered(b bool) answer {
	if b {
		return yes
	}
	return no
}

// maxNativeMTU is the largest MTU that veth and most drivers take for a program
// without fragments, or with a driver that has none: what fits into a page of 4
// KiB beside the head room.
const maxNativeMTU = 3506

// Kinds of device by rtnetlink that matter here.
const (
	kindVeth = "veth"
	kindTUN  = "tuntap"
)

// mastersOfFrames are kinds of device whose members hand over their frames: the
// master is the device to attach to.
var mastersOfFrames = []string{"bridge", "bond", "team", "openvswitch"}

// kindsWithoutWire receive nothing from a network.
var kindsWithoutWire = []string{"dummy", "ifb", "nlmon", "vcan", "vrf"}

// device is what is known of one network interface.
type device struct {
	name     string
	index    int
	kind     string // as rtnetlink says; "device" for hardware
	driver   string // empty if it has none to name
	ethernet bool   // has Ethernet headers, and is not the loopback
	up       bool
	mtu      int
	rxQueues int
	master   string // the bridge, bond or team whose member it is

	native    answer // whether the driver runs XDP programs
	transmit  answer // whether frames redirected into it by XDP are sent
	fragments answer // whether XDP sees frames of several pages
	xdp       *program
	ingress   []program // tc programs of others, in their order
	far       *farEnd   // of a veth

	loses error // why it has not sent what XDP redirected into it, as the kernel told

	farIndex, farNamespace int // where a veth's far end is, as the kernel counts
}

// farEnd is what is known of the other end of a veth.
type farEnd struct {
	name      string // empty if it is in a namespace that cannot be looked into
	elsewhere bool   // in another network namespace
	known     bool   // the fields below are
	mtu       int
	txQueues  int
	gro       bool
	checksum  bool // transmit checksum offload
	xdp       bool // it has an XDP program
}

func (f *farEnd) String() string {
	switch {
	case f.name == "":
		return "the far end"
	case f.elsewhere:
		return "the far end " + f.name + " in another namespace"
	default:
		return "the far end " + f.name
	}
}

// program is one that someone attached to a device.
type program struct {
	id    uint32
	name  string
	mode  string // of XDP: native, generic, offloaded
	whose string // the instance's of this process, or that which it will be of; else empty
}

func (p program) String() string {
	if p.whose != "" {
		return strconv.Quote(p.whose)
	}
	if p.name == "" {
		return fmt.Sprintf("number %d", p.id)
	}
	if p.id == 0 {
		return p.name
	}
	return fmt.Sprintf("%s (number %d)", p.name, p.id)
}

// unfit returns why a device that no one named is left alone; it is empty for one
// that is to be attached to. The second result is whether an operator would ask
// about it.
func (d *device) unfit() (why string, telling bool) {
	switch {
	case !d.ethernet:
		return "it carries no Ethernet frames", false
	case d.kind == kindTUN:
		return "it is a tunnel of a program", false
	case slices.Contains(kindsWithoutWire, d.kind):
		return "it leads to no network", false
	case d.master != "":
		return fmt.Sprintf("its frames belong to %s", d.master), true
	case !d.up:
		return "it is down", true
	}
	return "", false
}

// refuses returns why a device that was named cannot be used.
func (d *device) refuses() error {
	switch {
	case !d.ethernet || d.kind == kindTUN:
		return fmt.Errorf("%s carries no Ethernet frames: name Ethernet devices in fast_path_devices", d.name)
	case d.master != "":
		return fmt.Errorf("%s hands its frames to %s: name %s in fast_path_devices", d.name, d.master, d.master)
	}
	return nil
}

// programPrefix is how the names of all our programs begin.
const programPrefix = "isthmus_"

// ours reports whether it is a program of another instance.
func (p program) ours() bool {
	return p.whose != "" || strings.HasPrefix(p.name, programPrefix) || strings.HasPrefix(p.name, filterPrefix)
}

// refusesXDP returns why the device cannot take native XDP although the operator
// wants it.
func (d *device) refusesXDP() error {
	switch {
	case d.xdp != nil && d.xdp.ours():
		return fmt.Errorf("%s has the XDP program of another instance, %s: set fast_path to tc, or remove what is left of one that is gone with: isthmus clean", d.name, d.xdp)
	case d.xdp != nil:
		return fmt.Errorf("%s has another XDP program, %s: detach that one first, or set fast_path to tc", d.name, d.xdp)
	case d.native == no && d.kind == kindVeth:
		return fmt.Errorf("%s %s", d.name, d.tooFewQueues())
	case d.native == no:
		return fmt.Errorf("%s runs XDP in the slow generic mode only, because %s has no native one: set fast_path to auto or tc", d.name, d.driverInWords())
	}
	return nil
}

// againstXDP returns why auto does not choose XDP for the device.
func (d *device) againstXDP() string {
	switch {
	case d.xdp != nil && d.xdp.ours():
		return fmt.Sprintf("%s has the XDP program of another instance, %s", d.name, d.xdp)
	case d.xdp != nil:
		return fmt.Sprintf("%s has another XDP program, %s", d.name, d.xdp)
	case d.kind == kindVeth:
		return fmt.Sprintf("%s is one end of a veth pair, where packets come from programs and tc keeps their offloads", d.name)
	case d.native == no:
		return fmt.Sprintf("%s cannot take native XDP, because %s has none", d.name, d.driverInWords())
	case d.mtu > maxNativeMTU && d.fragments == no:
		return fmt.Sprintf("%s has an MTU of %d, and with XDP %s takes up to %d", d.name, d.mtu, d.driverInWords(), maxNativeMTU)
	case len(d.ingress) > 0:
		return fmt.Sprintf("%s has tc programs that XDP would go round: %s", d.name, inWords(d.ingress))
	}
	return ""
}

func (d *device) driverInWords() string {
	switch {
	case d.driver != "":
		return "its driver " + d.driver
	case d.kind != "device":
		return "a device of the kind " + d.kind
	default:
		return "its driver"
	}
}

func (d *device) tooFewQueues() string {
	if d.far != nil && d.far.known && d.far.txQueues > d.rxQueues {
		return fmt.Sprintf("has %s, fewer than the %d by which %s sends, and so takes no XDP program: make the pair with as many of both, or set fast_path to tc",
			queues(d.rxQueues), d.far.txQueues, d.far)
	}
	return "takes no XDP program, most likely because it has fewer receive queues than its far end has transmit queues: " +
		"make the pair with as many of both, or set fast_path to tc"
}

func queues(n int) string {
	if n == 1 {
		return "1 receive queue"
	}
	return fmt.Sprintf("%d receive queues", n)
}

func inWords(programs []program) string {
	words := make([]string, len(programs))
	for i, p := range programs {
		words[i] = p.String()
	}
	return strings.Join(words, ", ")
}
