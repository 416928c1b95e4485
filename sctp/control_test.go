// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestUnknownPathsAndAddresses has calls name what the association does not have.
func TestUnknownPathsAndAddresses(t *testing.T) {
	conn, _ := connect(t, onLoopback())
	other := netip.MustParseAddr("192.0.2.1")
	for name, call := range map[string]func() error{
		"Probe":      func() error { return conn.Probe(Pair{Local: other, Remote: other}) },
		"SetPrimary": func() error { return conn.SetPrimary(Pair{Local: other, Remote: other}) },
		"SetPathParameters": func() error {
			return conn.SetPathParameters(Pair{Local: other, Remote: other}, Defaults().PathParameters)
		},
	} {
		if err := call(); !errors.Is(err, ErrNoPath) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]func(netip.Addr) error{
		"LinkDown": conn.LinkDown, "LinkUp": conn.LinkUp, "RemoveAddress": conn.RemoveAddress, "Prefer": conn.Prefer,
	} {
		if err := call(other); !errors.Is(err, ErrNoAddress) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, none := range []string{"0.0.0.0", "::", "ff02::1", "::ffff:192.0.2.1"} {
		var wrong *net.AddrError
		if err := conn.AddAddress(netip.MustParseAddr(none)); !errors.As(err, &wrong) {
			t.Errorf("AddAddress of %s: %v", none, err)
		}
	}
	if err := conn.AddAddress(netip.Addr{}); err == nil {
		t.Error("AddAddress of no address")
	}
}

// TestLinkDownDuringSetUp has a link of the host go down before the association is there.
func TestLinkDownDuringSetUp(t *testing.T) {
	conn, _ := connect(t, onLoopback())
	turn := conn.endpoint.begin()
	conn.endpoint.present = map[netip.Addr]bool{netip.MustParseAddr("127.0.0.1"): false}
	conn.looked = false
	conn.begun(turn)
	conn.endpoint.finish(turn)
	if paths := conn.Status().Paths; !paths[0].Down {
		t.Errorf("%+v", paths)
	}
}

// TestCausesHaveNames shows causes by the words of the RFCs.
func TestCausesHaveNames(t *testing.T) {
	err := (&Error{Reason: ReasonAborted, Cause: 12}).Error()
	if !strings.Contains(err, "user-initiated abort") {
		t.Error(err)
	}
	if none := (Event{}).Cause.String(); none != "no error cause" {
		t.Error(none)
	}
}
