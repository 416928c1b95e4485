// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestProbe: an established connection that was silent for long is asked for, and lives on
// if the host answers (RFC 6146 section 3.5.2.2).
func TestProbe(t *testing.T) {
	probe := pkt{src: server6, dst: clientA, proto: tcpProto, payload: []byte{
		0, 80, 1500 >> 8, 1500 & 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0,
	}}
	k := reach(t, engine(t, nil), state.Established)
	k.wants(k.pass(2*time.Hour+10*time.Second), probe)
	if got := k.status(); got != state.Trans {
		t.Fatalf("state %s after the probe", got)
	}
	k.one(k.v6(flagACK))
	if got := k.status(); got != state.Established {
		t.Fatalf("state %s after the answer", got)
	}
	k.wants(k.pass(2*time.Hour+10*time.Second), probe)
	if got := k.Stats().Probes; got != 2 {
		t.Errorf("%d probes", got)
	}
}

// TestProbeByPacket: a packet that meets the expired connection before the sweep does finds
// it on probation, and brings it back.
func TestProbeByPacket(t *testing.T) {
	k := reach(t, engine(t, nil), state.Established)
	k.now = k.now.Add(2*time.Hour + time.Minute) // without Tick
	got := k.v6(flagACK)
	if len(got) != 2 || k.status() != state.Established {
		t.Errorf("%d packets, state %s", len(got), k.status())
	}
	k.now = k.now.Add(2*time.Hour + 5*time.Minute)
	k.v6(flagACK)
	if got := k.status(); got != state.Free {
		t.Errorf("state %s, long after probation", got)
	}
}

func TestTCPWithoutSession(t *testing.T) {
	t.Run("V6 segment that is no SYN and has no binding", func(t *testing.T) {
		engine(t, nil).refused(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagACK, 0)}, NoSession)
	})
	t.Run("V6 SYN with FIN", func(t *testing.T) {
		engine(t, nil).refused(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN|flagFIN, 0)}, NoSession)
	})
	t.Run("V6 SYN with RST", func(t *testing.T) {
		engine(t, nil).refused(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN|flagRST, 0)}, NoSession)
	})
	t.Run("V4 segment without a binding", func(t *testing.T) {
		engine(t, nil).refused(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, 5000, flagACK, 0)}, NoBinding)
	})
	t.Run("V6 segment with a binding passes and makes nothing", func(t *testing.T) {
		k := reach(t, engine(t, nil), state.Established)
		k.one(k.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 81, flagACK, 0)}))
		if n := k.Engine.Sizes().Sessions; n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
	t.Run("V4 segment with a binding passes and makes nothing", func(t *testing.T) {
		k := reach(t, engine(t, nil), state.Established)
		k.wants(k.in(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagACK, 0)}),
			pkt{src: other6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(81, 1500, flagACK, 0)})
		if n := k.Engine.Sizes().Sessions; n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
	t.Run("V4 segment with a binding, filtered by address", func(t *testing.T) {
		k := reach(t, engine(t, func(s *Settings) { s.FilterTCP = AddressDependent }), state.Established)
		k.refused(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagACK, 0)}, Filtered)
		k.one(k.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagACK, 0)})) // it was met
	})
	for name, p := range map[string]pkt{
		"V6": {src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 81, flagACK, 0)},
	} {
		t.Run(name+" segment with a binding against the policy", func(t *testing.T) {
			reach(t, engine(t, func(s *Settings) { s.DropUnmatchedTCP = true }), state.Established).refused(p, NoSession)
		})
	}
}

func TestTCPFromIPv4(t *testing.T) {
	t.Run("endpoint-independent: another host may connect", func(t *testing.T) {
		k := reach(t, engine(t, nil), state.Established)
		k.wants(k.in(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagSYN, 0)}),
			pkt{src: other6, dst: clientA, hop: 63, proto: tcpProto, payload: tcpMsg(81, 1500, flagSYN, 0)})
		k.one(k.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 81, synACK, 0)}))
		k.pass(time.Hour)
		if n := k.Engine.Sizes().Sessions; n != 2 {
			t.Errorf("%d sessions", n)
		}
	})
	t.Run("external connections are not wanted", func(t *testing.T) {
		k := reach(t, engine(t, func(s *Settings) { s.DropExternalTCP = true }), state.Established)
		k.refused(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagSYN, 0)}, ExternalTCP)
		k.refused(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, 5000, flagSYN, 0)}, ExternalTCP)
		k.refused(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagSYN, 0)}, ExternalTCP) // met, not expected
		k.refused(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagACK, 0)}, NoSession)
	})
	t.Run("address-dependent: another port of a host that was met", func(t *testing.T) {
		k := reach(t, engine(t, func(s *Settings) { s.FilterTCP = AddressDependent }), state.Established)
		k.one(k.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, k.port, flagSYN, 0)}))
	})
	t.Run("a SYN to a port outside of the pool is not stored", func(t *testing.T) {
		engine(t, nil).refused(pkt{src: other4, dst: poolIP, proto: tcpProto, payload: tcpMsg(81, 80, flagSYN, 0)}, NoBinding)
	})
}

// TestLifetimeOfAFIN: the first FIN changes the state and not the lifetime, which runs from the
// last data.
func TestLifetimeOfAFIN(t *testing.T) {
	k := reach(t, engine(t, nil), state.Established)
	k.pass(time.Hour)
	k.one(k.v4(flagFIN | flagACK))
	k.pass(time.Hour + 10*time.Second)
	if n := k.Engine.Sizes().Sessions; n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// TestProbation: it runs from the moment at which the connection expired, not from when that
// was noticed.
func TestProbation(t *testing.T) {
	k := reach(t, engine(t, nil), state.Established)
	k.now = k.now.Add(2*time.Hour + 3*time.Minute) // without Tick
	k.v4(flagRST)
	if got := k.status(); got != state.Trans {
		t.Fatalf("state %s", got)
	}
	k.pass(time.Minute + 10*time.Second)
	if n := k.Engine.Sizes().Sessions; n != 0 {
		t.Errorf("%d sessions", n)
	}
}
