// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

const synACK = flagSYN | flagACK

// TestStep is the table of RFC 6146 section 3.5.2.2, each state against each event.
func TestStep(t *testing.T) {
	type row struct {
		from  Side
		flags uint8
		want  Change
	}
	const keep, renew = false, true
	tests := map[state.Status][]row{
		state.V4Init: {
			{FromIPv6, flagSYN, Change{state.Established, renew}},
			{FromIPv6, synACK, Change{state.Established, renew}},
			{FromIPv4, flagSYN, Change{state.V4Init, keep}},
			{FromIPv6, flagACK, Change{state.V4Init, keep}},
			{FromIPv4, flagACK, Change{state.V4Init, keep}},
			{FromIPv6, flagFIN, Change{state.V4Init, keep}},
			{FromIPv4, flagFIN, Change{state.V4Init, keep}},
			{FromIPv6, flagRST, Change{state.V4Init, keep}},
			{FromIPv4, flagRST, Change{state.V4Init, keep}},
		},
		state.V6Init: {
			{FromIPv4, flagSYN, Change{state.Established, renew}},
			{FromIPv4, synACK, Change{state.Established, renew}},
			{FromIPv6, flagSYN, Change{state.V6Init, renew}},
			{FromIPv6, flagACK, Change{state.V6Init, keep}},
			{FromIPv4, flagACK, Change{state.V6Init, keep}},
			{FromIPv6, flagFIN, Change{state.V6Init, keep}},
			{FromIPv4, flagFIN, Change{state.V6Init, keep}},
			{FromIPv6, flagRST, Change{state.V6Init, keep}},
			{FromIPv4, flagRST, Change{state.V6Init, keep}},
		},
		state.Established: {
			{FromIPv6, flagSYN, Change{state.Established, renew}},
			{FromIPv4, synACK, Change{state.Established, renew}},
			{FromIPv6, flagACK, Change{state.Established, renew}},
			{FromIPv4, flagACK, Change{state.Established, renew}},
			{FromIPv6, flagFIN | flagACK, Change{state.V6Fin, keep}},
			{FromIPv4, flagFIN | flagACK, Change{state.V4Fin, keep}},
			{FromIPv6, flagRST, Change{state.Trans, renew}},
			{FromIPv4, flagRST | flagACK, Change{state.Trans, renew}},
		},
		state.V4Fin: {
			{FromIPv6, flagSYN, Change{state.V4Fin, renew}},
			{FromIPv6, flagACK, Change{state.V4Fin, renew}},
			{FromIPv4, flagACK, Change{state.V4Fin, renew}},
			{FromIPv4, flagFIN, Change{state.V4Fin, renew}},
			{FromIPv6, flagFIN, Change{state.BothFin, renew}},
			{FromIPv6, flagRST, Change{state.Trans, renew}},
			{FromIPv4, flagRST, Change{state.Trans, renew}},
		},
		state.V6Fin: {
			{FromIPv6, flagSYN, Change{state.V6Fin, renew}},
			{FromIPv6, flagACK, Change{state.V6Fin, renew}},
			{FromIPv4, flagACK, Change{state.V6Fin, renew}},
			{FromIPv6, flagFIN, Change{state.V6Fin, renew}},
			{FromIPv4, flagFIN, Change{state.BothFin, renew}},
			{FromIPv6, flagRST, Change{state.Trans, renew}},
			{FromIPv4, flagRST, Change{state.Trans, renew}},
		},
		state.BothFin: {
			{FromIPv6, flagSYN, Change{state.V6Init, renew}},
			{FromIPv4, flagSYN, Change{state.V4Init, renew}},
			{FromIPv6, synACK, Change{state.V6Init, renew}},
			{FromIPv6, flagSYN | flagRST, Change{state.BothFin, keep}},
			{FromIPv4, flagSYN | flagFIN, Change{state.BothFin, keep}},
			{FromIPv6, flagACK, Change{state.BothFin, keep}},
			{FromIPv4, flagACK, Change{state.BothFin, keep}},
			{FromIPv6, flagFIN, Change{state.BothFin, keep}},
			{FromIPv4, flagRST, Change{state.BothFin, keep}},
		},
		state.Trans: {
			{FromIPv6, flagSYN, Change{state.Established, renew}},
			{FromIPv6, flagACK, Change{state.Established, renew}},
			{FromIPv4, flagACK, Change{state.Established, renew}},
			{FromIPv6, flagFIN, Change{state.Established, renew}},
			{FromIPv4, flagFIN, Change{state.Established, renew}},
			{FromIPv6, flagRST, Change{state.Trans, keep}},
			{FromIPv4, flagRST, Change{state.Trans, keep}},
		},
	}
	for status, rows := range tests {
		for _, r := range rows {
			t.Run(fmt.Sprintf("%s, %s %s", status, []string{"V6", "V4"}[r.from], flagNames(r.flags)), func(t *testing.T) {
				if got := Step(status, r.from, r.flags); got != r.want {
					t.Errorf("%+v, want %+v", got, r.want)
				}
			})
		}
	}
}

func flagNames(flags uint8) (s string) {
	for i, name := range []string{"FIN", "SYN", "RST", "", "ACK"} {
		if flags>>i&1 != 0 {
			s += name
		}
	}
	return s
}

// talk is a connection of the client's port 1500 with the server's port 80.
type talk struct {
	*bench
	port uint16 // t
}

func (k *talk) v6(flags byte) [][]byte {
	k.t.Helper()
	got := k.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flags, 0)})
	if len(got) == 1 && got[0][0]>>4 == 4 {
		k.port = srcPort(got[0])
	}
	return got
}

func (k *talk) v4(flags byte) [][]byte {
	k.t.Helper()
	return k.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, k.port, flags, 0)})
}

// reach brings a connection into a state.
func reach(t *testing.T, b *bench, status state.Status) *talk {
	t.Helper()
	k := &talk{bench: b}
	if status == state.V4Init {
		if err := b.AddStatic(static(t, "tcp", "["+clientA+"]:1500", poolIP+":5000")); err != nil {
			t.Fatal(err)
		}
		k.port = 5000
		k.one(k.v4(flagSYN))
		return k
	}
	k.one(k.v6(flagSYN))
	if status != state.V6Init {
		k.one(k.v4(synACK))
	}
	switch status {
	case state.V4Fin:
		k.one(k.v4(flagFIN | flagACK))
	case state.V6Fin:
		k.one(k.v6(flagFIN | flagACK))
	case state.BothFin:
		k.one(k.v6(flagFIN | flagACK))
		k.one(k.v4(flagFIN | flagACK))
	case state.Trans:
		k.one(k.v4(flagRST))
	}
	if got := k.status(); got != status {
		t.Fatalf("state %s, want %s", got, status)
	}
	return k
}

// TestTCPLifetimes lets each state expire: alive before its lifetime, gone 10 s after it.
func TestTCPLifetimes(t *testing.T) {
	const trans, est = 4 * time.Minute, 2 * time.Hour
	for _, tt := range []struct {
		status   state.Status
		lifetime time.Duration
	}{
		{state.V4Init, trans}, {state.V6Init, trans}, {state.V4Fin, est}, {state.V6Fin, est},
		{state.BothFin, trans}, {state.Trans, trans}, {state.Established, est + trans},
	} {
		t.Run(tt.status.String(), func(t *testing.T) {
			k := reach(t, engine(t, nil), tt.status)
			k.pass(tt.lifetime - 2*time.Second)
			if k.Engine.Sizes().Sessions != 1 {
				t.Fatal("ended before its lifetime")
			}
			k.pass(12 * time.Second)
			if n := k.Engine.Sizes(); n.Sessions != 0 {
				t.Fatalf("sizes %+v 10 s after its lifetime", n)
			}
		})
	}
}

// TestRefreshOfTCP sends a segment in the middle of a lifetime and looks what it changed.
func TestRefreshOfTCP(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  state.Status
		send    func(k *talk)
		after   state.Status
		renewed bool
	}{
		{"V6 INIT, SYN again", state.V6Init, func(k *talk) { k.v6(flagSYN) }, state.V6Init, true},
		{"V6 INIT, something else", state.V6Init, func(k *talk) { k.v6(flagACK) }, state.V6Init, false},
		{"one FIN, RST of the same side", state.V6Fin, func(k *talk) { k.v6(flagRST) }, state.Trans, true},
		{"one FIN, RST of the other side", state.V4Fin, func(k *talk) { k.v6(flagRST) }, state.Trans, true},
		{"both FIN, data", state.BothFin, func(k *talk) { k.v6(flagACK) }, state.BothFin, false},
		{"both FIN, RST", state.BothFin, func(k *talk) { k.v4(flagRST) }, state.BothFin, false},
		{"both FIN, opened again", state.BothFin, func(k *talk) { k.v6(flagSYN) }, state.V6Init, true},
		{"both FIN, opened again from the IPv4 side", state.BothFin, func(k *talk) { k.v4(flagSYN) }, state.V4Init, true},
		{"both FIN, SYN and RST", state.BothFin, func(k *talk) { k.v6(flagSYN | flagRST) }, state.BothFin, false},
		{"TRANS, opened again", state.Trans, func(k *talk) { k.v6(flagSYN) }, state.Established, true},
		{"TRANS, RST", state.Trans, func(k *talk) { k.v4(flagRST) }, state.Trans, false},
		{"TRANS, data", state.Trans, func(k *talk) { k.v4(flagACK) }, state.Established, true},
		{"V4 INIT, SYN again", state.V4Init, func(k *talk) { k.v4(flagSYN) }, state.V4Init, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := reach(t, engine(t, nil), tt.status)
			k.pass(2 * time.Minute)
			tt.send(k)
			k.one(k.out.IP)
			if got := k.status(); got != tt.after {
				t.Fatalf("state %s, want %s", got, tt.after)
			}
			k.pass(2*time.Minute + 10*time.Second)
			if alive := k.Engine.Sizes().Sessions == 1; alive != tt.renewed {
				t.Errorf("alive %t, want %t", alive, tt.renewed)
			}
		})
	}
}

// TestReopened: a connection on the ports of one that is over, or was reset, lives as long as
// any, whoever opens it and however it goes on.
func TestReopened(t *testing.T) {
	for _, before := range []state.Status{state.BothFin, state.Trans} {
		t.Run("from the IPv6 side in "+before.String(), func(t *testing.T) {
			k := reach(t, engine(t, nil), before)
			k.pass(3 * time.Minute)
			k.one(k.v6(flagSYN))
			k.one(k.v4(synACK))
			k.goesOn()
		})
		t.Run("from the IPv4 side in "+before.String(), func(t *testing.T) {
			k := reach(t, engine(t, nil), before)
			k.pass(3 * time.Minute)
			k.one(k.v4(flagSYN))
			k.one(k.v6(synACK))
			k.goesOn()
		})
	}
	t.Run("from the IPv4 side, which may not", func(t *testing.T) {
		k := reach(t, engine(t, func(s *Settings) { s.DropExternalTCP = true }), state.BothFin)
		k.pass(3 * time.Minute)
		k.v4(flagSYN)
		if got := k.status(); got != state.BothFin {
			t.Errorf("state %s", got)
		}
	})
}

// goesOn checks that the connection is open for hours with little in them.
func (k *talk) goesOn() {
	k.t.Helper()
	for range 3 {
		k.pass(110 * time.Minute)
		k.one(k.v6(flagACK))
		k.one(k.v4(flagACK))
	}
	if got := k.status(); got != state.Established {
		k.t.Errorf("state %s", got)
	}
}
